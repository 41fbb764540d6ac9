"""One model for entities and relations beside a pipeline of two, and sites that annotate only a part.

    python -m experiments.joint --runs DIR --out docs/results/joint.json

Synthetic hospitals and the encoder `tiny`. First, `joint` and a pipeline of `ner` (spans) and `sentence_re`: alone at a
site, federated and centralised. All are scored by one function, on whole documents: end to end. Second, three sites of
which one annotates everything, one only entities and one only relations. Seeds draw weights, batches and the server's
share; the notes are the same. A run that is there is not repeated, one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document
from grandrounds.data.synthetic import RELATIONS
from grandrounds.metrics.end_to_end import relation_counts, relation_score
from grandrounds.metrics.outcomes import Outcomes
from grandrounds.metrics.significance import resample
from grandrounds.metrics.spans import span_counts, span_score
from grandrounds.pipeline.load import load as load_pipeline
from grandrounds.runs.provenance import provenance
from grandrounds.simulation.prepare import held_out
from grandrounds.tasks.joint_scoring import annotation_of
from grandrounds.tasks.saved import load

HOSPITALS = 3
NOTES, ROUNDS = 30, 12
"""Of the first table; the second has more of both."""
PART_NOTES, PART_ROUNDS = 40, 15
TYPES = ("problem", "test", "treatment")
ALGORITHMS = ("local_only", "fedavg", "centralized")
TASKS: Mapping[str, Mapping[str, Any]] = {
    "joint": {"name": "joint"},
    "ner": {"name": "ner", "tagger": "spans"},
    "sentence_re": {"name": "sentence_re"},
}
ANNOTATED = {"st-anne": ["entities", "relations"], "riverside": ["entities"], "northgate": ["relations"]}
FIGURES = ("precision", "recall", "f1", "relaxed_f1")
CAUSES = ("mention", "type", "relation", "pair")


def config(task: str, algorithm: str, seed: int, notes: int = NOTES, rounds: int = ROUNDS) -> dict[str, Any]:
    keep = {"optimizer_state": "keep"} if algorithm == "centralized" else {}
    return {
        "seed": seed,
        "device": "cpu",
        "task": dict(TASKS[task]),
        "data": {"format": "synthetic", "public": 0.1, "options": {"hospitals": HOSPITALS, "notes": notes}},
        "partition": {"scheme": "by", "by": "hospital"},
        "model": {"encoder": "tiny"},
        "training": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, **keep},
        "federation": {
            "rounds": rounds,
            "evaluate_every": rounds,
            "evaluate_on": ["test"],
            "checkpoint_every": rounds,
        },
        "algorithm": {"name": algorithm},
    }


class Runs:
    """Runs in a folder, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def result(self, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
        path = self.folder / name / "result.json"
        if not path.exists():
            grandrounds.run(content, out=self.folder / name, resume=True)
            print(name, flush=True)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def models(self, name: str) -> dict[str, Path]:
        """By site, or the one for all."""
        own = sorted((self.folder / name / "models").glob("*"))
        return {path.name: path for path in own} or {"server": self.folder / name / "model"}


def found_by(models: Sequence[Path], documents: Sequence[Document]) -> list[Document]:
    bare = [replace(d, mentions=(), entities=(), relations=(), attributes={}) for d in documents]
    if len(models) == 1:
        return load(models[0]).extract_all(bare)[0]
    return list(load_pipeline(*models, assertions=False).pipe(bare))


def counted(gold: Sequence[Document], found: Sequence[Document]) -> list[dict[str, float]]:
    """Of each document: its relations, and its mentions under names that begin with 'entity '."""
    counts = []
    for document, said in zip(gold, found, strict=True):
        one, other = annotation_of(document), annotation_of(said)
        mentions = span_counts([one.mentions], [other.mentions], TYPES)
        counts.append(
            relation_counts([one], [other], RELATIONS) | {f"entity {name}": n for name, n in mentions.items()}
        )
    return counts


def summed(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def figures(counts: Mapping[str, float]) -> dict[str, float]:
    relations = relation_score(counts, RELATIONS)
    mentions = span_score({n.removeprefix("entity "): v for n, v in counts.items() if n.startswith("entity ")}, TYPES)
    causes = {f"{what}_{cause}": relations[f"{what}_{cause}"] for what in ("missed", "wrong") for cause in CAUSES}
    return {name: relations[name] for name in FIGURES} | {"entity_f1": mentions["f1"]} | causes


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(row[name] for row in rows) for name in rows[0]}


def beside(runs: Runs, seeds: int) -> Iterator[dict[str, Any]]:
    """The first table, as far as it has come."""
    gold = held_out(make_config(config("joint", "fedavg", 1)), Path())
    rows: dict[str, list[dict[str, Any]]] = {}
    outcomes: dict[str, list[dict[str, Outcomes]]] = {}
    for seed in range(1, seeds + 1):
        for algorithm in ALGORITHMS:
            results = {t: runs.result(f"{t}-{algorithm}-{seed}", config(t, algorithm, seed)) for t in TASKS}
            models = {task: runs.models(f"{task}-{algorithm}-{seed}") for task in TASKS}
            for name, tasks in (("joint", ["joint"]), ("pipeline", ["ner", "sentence_re"])):
                by_learner = {
                    who: counted(gold, found_by([models[task][who] for task in tasks], gold)) for who in models["ner"]
                }
                costs = {
                    "seconds": sum(results[task]["seconds"] for task in tasks),
                    "bytes_up": sum(results[task]["bytes_up_per_site_round"] or 0 for task in tasks),
                }
                arm = f"{name} {algorithm}"
                scored = mean([figures(summed(counts)) for counts in by_learner.values()])
                rows.setdefault(arm, []).append({"seed": seed, **scored, **costs})
                outcomes.setdefault(arm, []).append(
                    {who: Outcomes.of_counts(counts) for who, counts in by_learner.items()}
                )
        yield {"arms": rows, **intervals(outcomes)}


def intervals(outcomes: Mapping[str, Sequence[Mapping[str, Outcomes]]]) -> dict[str, Any]:
    drawn = resample(outcomes)
    return {
        "f1": {arm: asdict(one.estimate()) for arm, one in drawn.items()},
        "joint_over_pipeline": {
            name: asdict(drawn[f"joint {name}"].over(drawn[f"pipeline {name}"])) for name in ALGORITHMS
        },
    }


def partly(runs: Runs, seeds: int) -> Iterator[dict[str, Any]]:
    """The second table, as far as it has come."""
    sites = {name: {"task": {"annotated": annotated}} for name, annotated in ANNOTATED.items()}
    gold = held_out(make_config(config("joint", "fedavg", 1, PART_NOTES, PART_ROUNDS)), Path())
    rows: dict[str, list[dict[str, Any]]] = {}
    outcomes: dict[str, list[dict[str, Outcomes]]] = {}
    for seed in range(1, seeds + 1):
        for arm, algorithm, own in (
            ("alone", "local_only", sites),
            ("federated", "fedavg", sites),
            ("centralised", "centralized", sites),
            ("all annotated, federated", "fedavg", {}),
        ):
            name = f"partly-{arm.replace(', ', '-').replace(' ', '-')}-{seed}"
            runs.result(name, {**config("joint", algorithm, seed, PART_NOTES, PART_ROUNDS), "sites": own})
            for who, model in runs.models(name).items():
                counts = counted(gold, found_by([model], gold))
                row = arm if who == "server" else f"{arm}, {' and '.join(ANNOTATED[who])}"
                rows.setdefault(row, []).append({"seed": seed, **figures(summed(counts))})
                outcomes.setdefault(row, []).append({"server": Outcomes.of_counts(counts)})
        drawn = resample(outcomes)
        full = drawn["alone, entities and relations"]
        yield {
            "arms": rows,
            "f1": {arm: asdict(one.estimate()) for arm, one in drawn.items()},
            "federated_over_alone": asdict(drawn["federated"].over(full)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2, help="of the first table")
    parser.add_argument("--part-seeds", type=int, default=3, help="of the second")
    wanted = parser.parse_args()
    runs = Runs(wanted.runs)
    settings = {
        "hospitals": HOSPITALS,
        "beside": {"notes": NOTES, "rounds": ROUNDS},
        "partly": {"notes": PART_NOTES, "rounds": PART_ROUNDS, "annotated": ANNOTATED},
    }
    found: dict[str, Any] = {**provenance(), "settings": settings}
    for key, parts in (("partly", partly(runs, wanted.part_seeds)), ("beside", beside(runs, wanted.seeds))):
        for part in parts:
            found[key] = part
            wanted.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
