"""What an honest but curious coordinator finds out about a hospital, with and without each protection:

    python -m experiments.attacks --out docs/results/attacks.json
    python -m experiments.attacks --only bc5cdr --data DIR --encoder MINILM --out docs/results/attacks.json

Synthetic hospitals: weights of a relation extractor (FedAvg) and gradients of a tagger (FedNER). With --only bc5cdr:
BC5CDR's mentions with a real encoder; it names no patients, so noise is by sentence. Groups that are not asked for stay
in the file as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grandrounds.config.schema import make_config
from grandrounds.runs.loop import Silent
from grandrounds.runs.provenance import provenance
from grandrounds.simulation.curious import attack

Settings = Mapping[str, Any]
PRIVATE: Settings = {"privacy.unit": "patient", "privacy.exact_scores": True}
WEIGHTS: Settings = {
    "task.name": "sentence_re",
    "data": {"format": "synthetic", "public": 0.1, "options": {"hospitals": 3, "notes": 12, "test": 24}},
    "partition": {"scheme": "by", "by": "hospital"},
    "model.encoder": "tiny",
    "training": {"epochs": 8, "batch_size": 16, "learning_rate": 1e-3},
    "federation": {"rounds": 3, "evaluate_on": []},
    "algorithm.name": "fedavg",
}
GRADIENTS: Settings = {
    **WEIGHTS,
    "task": {"name": "ner", "tagger": "bert"},
    "training": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3},
    "algorithm": {"name": "fedner", "batch": 48, "iterations": 20, "private_embeddings": False},
}
BC5CDR: Settings = {
    "task": {"name": "ner", "tagger": "bert", "labels": ["Chemical", "Disease"]},
    "data": {"format": "conll", "train": "bc5cdr-ner/train.tsv", "test": "bc5cdr-ner/test.tsv", "train_share": 0.05},
    "partition": {"scheme": "iid", "sites": 2},
    "model.layers": 2,
    "training": {"epochs": 2, "batch_size": 16, "learning_rate": 5e-4},
    "federation": {"rounds": 2, "evaluate_on": []},
    "algorithm.name": "fedavg",
}
GROUPS: Mapping[str, tuple[Settings, Mapping[str, Settings]]] = {
    "weights": (
        WEIGHTS,
        {
            "nothing": {},
            "by patient, epsilon 8": {**PRIVATE, "privacy.epsilon": 8.0},
            "by patient, epsilon 1": {**PRIVATE, "privacy.epsilon": 1.0},
            "frozen embeddings": {"model.freeze": ["embeddings"]},
            "secure aggregation": {"federation.secure": True},
        },
    ),
    "gradients": (
        GRADIENTS,
        {
            "nothing": {},
            "by patient, epsilon 8": {**PRIVATE, "privacy.epsilon": 8.0},
            "embeddings that stay at the site": {"algorithm.private_embeddings": True},
        },
    ),
    "bc5cdr": (
        BC5CDR,
        {
            "nothing": {},
            "frozen embeddings": {"model.freeze": ["embeddings"]},
            "by example, epsilon 8": {"privacy.unit": "example", "privacy.epsilon": 8.0},
        },
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--encoder", default="tiny", help="For bc5cdr.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    for name in given.only or [name for name in GROUPS if name != "bc5cdr"]:
        group, protections = GROUPS[name]
        more = {"model.encoder": given.encoder} if name == "bc5cdr" else {}
        began, rows = time.process_time(), dict[str, Any]()
        for protection, own in protections.items():
            rows[protection] = over_seeds({**group, **more, **own}, given.data, range(1, given.seeds + 1))
            print(name, protection, rows[protection], flush=True)
            found |= provenance()
            found[name] = {**provenance(), "cpu_seconds": round(time.process_time() - began), "protections": rows}
            given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def over_seeds(settings: Settings, data: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """The means over seeds, and each seed's own figures."""
    leaks = [leak(settings, data, seed) for seed in seeds]
    words = [one["words"] for one in leaks if one["words"]]
    members = sum(one["membership"]["members"] for one in leaks)
    return {
        "words": mean([one["right"] for one in words]) if words else None,
        "words_by_guessing": mean([one["chance"] for one in words]) if words else None,
        "found": sum(one["membership"]["found"] * one["membership"]["members"] for one in leaks) / members,
        "members": members,
        "auc": mean([one["membership"]["auc"] for one in leaks]),
        "canaries": mean([one["canaries"]["bits"] for one in leaks]),
        "canaries_by_guessing": mean([one["canaries"]["chance"] for one in leaks]),
        "score": mean([one["score"] for one in leaks if one["score"] is not None]),
        "objective": leaks[0]["objective"],
        "seeds": leaks,
    }


def leak(settings: Settings, data: Path, seed: int) -> dict[str, Any]:
    config = make_config({}, {**settings, "seed": seed, "device": "cpu"})
    folder = Path(tempfile.mkdtemp())
    try:
        return attack(config, data, folder / "run", Silent()).to_dict()
    finally:
        shutil.rmtree(folder)


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


if __name__ == "__main__":
    sys.exit(main())
