"""One and two of eleven hostile sites under each rule of federation.aggregate: the test F1.

    python -m experiments.byzantine --runs DIR --out docs/results/byzantine.json

Synthetic hospitals and the encoder `tiny`; relations and entities, with sites alike and with skewed ones. Nobody is
left out for being an outlier, so that each figure is the rule's alone. A run that is there is not repeated, and the
JSON is written after each one, so it can be stopped at any time.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import grandrounds
from grandrounds.runs.provenance import provenance

RULES = ("mean", "norm_bound", "median", "trimmed", "krum")
ATTACKS = ("scale", "reverse", "mislabel", "substitute", "flip", "noise")
TASKS = ("sentence_re", "ner")
SCHEMES = ("iid", "dirichlet")
SITES, ROUNDS, NOTES, ALPHA = 11, 5, 24, 0.3
HOSTILE = ("site-03", "site-08")
PARTITION = {"iid": {}, "dirichlet": {"alpha": ALPHA}}


class Run(NamedTuple):
    task: str
    scheme: str
    attack: str
    hostile: int
    rule: str
    seed: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


def planned(seeds: int) -> Iterator[Run]:
    """One part after the other, each with its honest runs, so that what there is in the end is of whole parts. Two
    hostile sites come first, and sites that are alike, and relations."""
    for seed in range(1, seeds + 1):
        for hostile, scheme, task in product((2, 1), SCHEMES, TASKS):
            yield from (Run(task, scheme, "none", 0, rule, seed) for rule in RULES if hostile == 2)
            yield from (Run(task, scheme, attack, hostile, rule, seed) for attack in ATTACKS for rule in RULES)


def config(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "device": "cpu",
        "task": {"name": run.task},
        "data": {"format": "synthetic", "public": 0.1, "options": {"hospitals": 6, "notes": NOTES}},
        "partition": {"scheme": run.scheme, "sites": SITES, **PARTITION[run.scheme]},
        "sites": {site: {"attack": run.attack} for site in HOSTILE[: run.hostile]},
        "model": {"encoder": "tiny", "warm_up": 6, "attention_dropout": 0.0},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3},
        "federation": {
            "rounds": ROUNDS,
            "evaluate_on": ["test"],
            "evaluate_every": ROUNDS,
            "checkpoint_every": ROUNDS,
            "aggregate": run.rule,
            "leave_out_after": 0,
        },
        "algorithm": {"name": "fedavg"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="a folder for the runs' results")
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--seeds", type=int, default=1)
    wanted = parser.parse_args()
    found, where = [], provenance()
    for run in planned(wanted.seeds):
        kept = wanted.runs / f"{run.name}.json"
        if not kept.exists():
            folder = wanted.runs / run.name
            result = grandrounds.run(config(run), out=folder, resume=folder.exists())
            kept.write_text(json.dumps({**run._asdict(), "f1": result.test.f1, "steps": result.steps}))
            shutil.rmtree(folder)
        found.append(json.loads(kept.read_text()))
        print(f"{run.name}: F1 {found[-1]['f1']:.3f}", flush=True)
        written = {
            "command": "python -m experiments.byzantine --runs DIR --out docs/results/byzantine.json",
            "commit": where["commit"],
            "versions": where["versions"],
            "sites": SITES,
            "rounds": ROUNDS,
            "notes": NOTES,
            "alpha": ALPHA,
            "planned": len(list(planned(wanted.seeds))),
            "runs": found,
        }
        wanted.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
