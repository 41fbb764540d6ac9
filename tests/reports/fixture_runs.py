"""Small run folders as a run writes them, for the tests of reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from grandrounds.metrics.outcomes import OUTCOMES, Outcomes, Record, digest_of, to_bytes
from grandrounds.metrics.score import AUC, F1, LOSS, Objective
from grandrounds.runs.results import Result
from tests.results import made_result

CONFIG = """seed = {seed}

[task]
name = "{task}"

[partition]
scheme = "iid"
sites = {sites}

[federation]
rounds = {rounds}

[algorithm]
name = "{algorithm}"
"""


def score(f1: float) -> dict[str, Any]:
    other = {"precision": 0.5, "recall": 0.4, "f1": 0.444, "support": 61}
    return {
        "precision": f1 - 0.02,
        "recall": f1 + 0.02,
        "f1": f1,
        "accuracy": 0.77,
        "n": 160,
        "baseline_f1": 0.691,
        "baseline": "all 'associated'",
        "per_class": {
            "associated": {"precision": f1 - 0.02, "recall": f1 + 0.02, "f1": f1, "support": 99},
            "other": other,
        },
    }


def ranked(auc: float) -> dict[str, Any]:
    """A score of distant_re."""
    return {
        "auc": auc,
        "auc_2000": auc - 0.1,
        "p@100": 0.75,
        "p@20": 0.9,
        "n": 60,
        "facts": 21,
        "precision": 0.6,
        "recall": 0.3,
        "f1": 0.4,
        "baseline": "every relation of every pair",
        "baseline_f1": 0.125,
        "baseline_auc": 0.067,
        "per_class": {},
        "curve": {"recall": [0.1, 0.5, 1.0], "precision": [1.0, auc, 0.2]},
    }


def language(loss: float) -> dict[str, Any]:
    """A score of masked_lm."""
    return {"loss": loss, "perplexity": exp(loss), "accuracy": 0.3, "n": 500, "per_class": {}}


def write_run(
    folder: Path,
    *,
    algorithm: str = "fedavg",
    seed: int = 1,
    f1: float = 0.8,
    rounds: int = 10,
    number: int = 4,
    site: str = "site",
    finished: bool = True,
    bytes_up: int = 1_200_000,
    task: str = "sentence_re",
    scored: Callable[[float], dict[str, Any]] = score,
    objective: Objective = F1,
    **result: Any,
) -> Path:
    """A run of a number of sites whose F1, or what `scored` makes of it, climbs to `f1`; site-01 is late in round 2."""
    folder.mkdir(parents=True)
    names = [f"{site}-{i:02d}" for i in range(1, number + 1)]
    config = CONFIG.format(seed=seed, sites=number, rounds=rounds, algorithm=algorithm, task=task)
    (folder / "config.toml").write_text(config, "utf-8")
    done = range(1, rounds + 1 if finished else rounds // 2 + 1)
    lines = [
        {
            "round": i,
            "sites": names,
            "replies": number - (i == 2),
            "lost": {names[0]: "late"} if i == 2 else {},
            "abandoned": False,
            "seconds": 12.5,
            "bytes_up": bytes_up * (number - (i == 2)),
            "bytes_down": 1_300_000 * number,
            "steps": 48,
            "examples": 1234,
            "server_steps": 0,
            "server_examples": 0,
            "objective": asdict(objective),
            "validation": scored(f1 - 0.3 / i**0.9),
            "test": scored(f1 - 0.33 / i + 0.006 * (i % 3)),
        }
        for i in done
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    if finished:
        rows = [
            {
                "name": name,
                "documents": 10 + i,
                "examples": 30 + 7 * (i * i % 11),
                "labels": {"associated": 20 + 2 * i % 9, "other": 10 + 7 * (i * i % 11) - 2 * i % 9},
            }
            for i, name in enumerate(names)
        ]
        content = {
            "task": task,
            "algorithm": algorithm,
            "seed": seed,
            "rounds": rounds,
            "rounds_planned": rounds,
            "best_round": rounds - 1,
            "selected_by": "validation",
            "objective": objective,
            "test": scored(f1),
            "validation": scored(f1 - 0.01),
            "seconds": 125.0,
            "bytes_up_per_site_round": bytes_up,
            "bytes_up": 40 * bytes_up,
            "sites": rows,
            "left_out": ["site-99"],
            "warnings": {"sentences longer than 512 tokens were cut": 7},
        }
        (folder / "result.json").write_text(json.dumps(made_result(**content | result).to_dict()), "utf-8")
    return folder


def write_ranked(folder: Path, *, auc: float = 0.5, **more: Any) -> Path:
    """A run of distant_re whose AUC climbs to `auc`."""
    return write_run(folder, f1=auc, task="distant_re", scored=ranked, objective=AUC, **more)


def write_language(folder: Path, *, loss: float, **more: Any) -> Path:
    """A run of masked_lm."""
    return write_run(folder, f1=loss, task="masked_lm", scored=language, objective=LOSS, **more)


GOOD, FAIR = [(3, 1, 0)] * 30 + [(2, 1, 1)] * 10, [(1, 1, 2)] * 20 + [(2, 1, 1)] * 20
"""Right, wrong and missed answers by unit."""


def outcomes(rows: Sequence[Sequence[int]], gold: str = "test") -> Outcomes:
    tp, fp, fn = np.array(rows).T
    return Outcomes("f1", {"tp": tp, "fp": fp, "fn": fn}, digest_of(gold))


def leave(folder: Path, *records: Record) -> Path:
    """Outcomes, where a run leaves them."""
    (folder / OUTCOMES).mkdir(parents=True)
    for record in records:
        (folder / OUTCOMES / f"{record.learner}.safetensors").write_bytes(to_bytes([record]))
    return folder


def result(algorithm: str, seed: int, f1: float, **more: object) -> Result:
    test = {"f1": f1, "precision": 0.5, "recall": 0.7, "baseline_f1": 0.6, "baseline": "all 'associated'"}
    content = {"algorithm": algorithm, "seed": seed, "seconds": 60.0 * seed, "test": test}
    work = {"steps": 1234, "examples": 56_780, "bytes_up": 40_000_000, "bytes_down": 60_000_000}
    return made_result(**content | work | {"bytes_up_per_site_round": 2_000_000} | more)
