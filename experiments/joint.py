"""One model for entities and relations beside a pipeline of two, and sites that annotate only a part.

    python -m experiments.joint --runs DIR --out docs/results/joint.json
    python -m experiments.joint --config experiments/joint-ade.toml --data DIR --runs DIR --out joint-ade.json

First, `joint` and a pipeline of `ner` (spans) and a relation model: alone at a site, federated and centralised. All are
scored by one function, on whole documents: end to end. Without a config this is done on synthetic hospitals with the
encoder `tiny`; and then, second, with three sites of which one annotates everything, one only entities and one only
relations. Seeds draw weights, batches and shares; the test documents are the same. A run that is there is not repeated,
one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import grandrounds
from grandrounds.config.overrides import parse_override
from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document
from grandrounds.metrics.end_to_end import relation_counts, relation_score
from grandrounds.metrics.outcomes import Outcomes
from grandrounds.metrics.significance import resample
from grandrounds.metrics.spans import span_counts, span_score
from grandrounds.pipeline.load import load
from grandrounds.runs.provenance import provenance
from grandrounds.simulation.prepare import held_out
from grandrounds.tasks.joint_scoring import annotation_of

HOSPITALS, NOTES, ROUNDS = 3, 40, 15
MODELS = {"joint": ["joint"], "pipeline": ["ner", "relater"]}
ALGORITHMS = ("fedavg", "centralized", "local_only")
TASKS: Mapping[str, Mapping[str, Any]] = {
    "joint": {"name": "joint"},
    "ner": {"name": "ner", "tagger": "spans"},
    "relater": {"name": "sentence_re"},
}
ANNOTATED = {"st-anne": ["entities", "relations"], "riverside": ["entities"], "northgate": ["relations"]}
FIGURES = ("precision", "recall", "f1", "relaxed_f1")
CAUSES = ("mention", "type", "relation", "pair")
Content = dict[str, Any]
Make = Callable[[str, str, int], Content]
"""The config of a run: of a task, an algorithm and a seed."""


def synthetic(task: str, algorithm: str, seed: int) -> Content:
    keep = {"optimizer_state": "keep"} if algorithm == "centralized" else {}
    return {
        "seed": seed,
        "device": "cpu",
        "task": dict(TASKS[task]),
        "data": {"format": "synthetic", "public": 0.1, "options": {"hospitals": HOSPITALS, "notes": NOTES}},
        "partition": {"scheme": "by", "by": "hospital"},
        "model": {"encoder": "tiny"},
        "training": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, **keep},
        "federation": {
            "rounds": ROUNDS,
            "evaluate_every": ROUNDS,
            "evaluate_on": ["test"],
            "checkpoint_every": ROUNDS,
        },
        "algorithm": {"name": algorithm},
    }


def of_config(path: Path, overrides: Sequence[str]) -> Make:
    """Its [compare] tables are the models."""
    content = tomllib.loads(path.read_text())

    def make(task: str, algorithm: str, seed: int) -> Content:
        keep = {"training.optimizer_state": "keep"} if algorithm == "centralized" else {}
        changes = {**content["compare"][task], **keep, **dict(map(parse_override, overrides)), "seed": seed}
        return make_config(content, {**changes, "algorithm": {"name": algorithm}, "compare": {}}).model_dump(
            exclude_none=True
        )

    return make


class Runs:
    """Runs in a folder, each made once."""

    def __init__(self, folder: Path, data: Path | None = None) -> None:
        self.folder, self.data = folder, data

    def result(self, name: str, content: Content) -> dict[str, Any]:
        path = self.folder / name / "result.json"
        if not path.exists():
            grandrounds.run(content, out=self.folder / name, data=self.data, resume=True)
            print(name, flush=True)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def models(self, name: str) -> dict[str, Path]:
        """By site, or the one for all."""
        own = sorted((self.folder / name / "models").glob("*"))
        return {path.name: path for path in own} or {"server": self.folder / name / "model"}

    def gold(self, content: Content) -> list[Document]:
        return held_out(make_config(content), self.data or Path())


def found_by(models: Sequence[Path], documents: Sequence[Document]) -> list[Document]:
    bare = [replace(d, mentions=(), entities=(), relations=(), attributes={}) for d in documents]
    return list(load(*models, assertions=False).pipe(bare))


def counted(gold: Sequence[Document], found: Sequence[Document], ordered: bool) -> list[dict[str, float]]:
    """Of each document: its relations, and its mentions under names that begin with 'entity '."""
    concepts = all(relation.mentions is None for document in gold for relation in document.relations)
    types = sorted({mention.type for document in (*gold, *found) for mention in document.mentions})
    relations = sorted({relation.type for document in (*gold, *found) for relation in document.relations})
    counts = []
    for pair in zip(gold, found, strict=True):
        one, other = (annotation_of(document, concepts) for document in pair)
        mentions = span_counts([one.mentions], [other.mentions], types)
        of_mentions = {f"entity {name}": number for name, number in mentions.items()}
        counts.append(relation_counts([one], [other], relations, ordered) | of_mentions)
    return counts


def figures(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total = {name: sum(one[name] for one in counts) for name in counts[0]}
    own = {name.removeprefix("entity "): value for name, value in total.items() if name.startswith("entity ")}
    relations = relation_score(total, [name[3:] for name in total if name.startswith("tp/")])
    mentions = span_score(own, [name[3:] for name in own if name.startswith("tp/")])
    causes = {f"{what}_{cause}": relations[f"{what}_{cause}"] for what in ("missed", "wrong") for cause in CAUSES}
    return {name: relations[name] for name in FIGURES} | {"entity_f1": mentions["f1"]} | causes


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(row[name] for row in rows) for name in rows[0]}


def beside(runs: Runs, seeds: int, make: Make) -> Iterator[dict[str, Any]]:
    """The first table, as far as it has come."""
    first = make("joint", "fedavg", 1)
    gold, ordered = runs.gold(first), first["task"].get("ordered", True)
    rows: dict[str, list[dict[str, Any]]] = {}
    outcomes: dict[str, list[dict[str, Outcomes]]] = {}
    for seed in range(1, seeds + 1):
        for algorithm in ALGORITHMS:
            results = {t: runs.result(f"{t}-{algorithm}-{seed}", make(t, algorithm, seed)) for t in TASKS}
            models = {task: runs.models(f"{task}-{algorithm}-{seed}") for task in TASKS}
            for name, tasks in MODELS.items():
                by_learner = {
                    who: counted(gold, found_by([models[task][who] for task in tasks], gold), ordered)
                    for who in models["ner"]
                }
                costs = {
                    "seconds": sum(results[task]["seconds"] for task in tasks),
                    "bytes_up": sum(results[task]["bytes_up_per_site_round"] or 0 for task in tasks),
                }
                arm = f"{name} {algorithm}"
                scored = mean([figures(counts) for counts in by_learner.values()])
                rows.setdefault(arm, []).append({"seed": seed, **scored, **costs})
                outcomes.setdefault(arm, []).append(
                    {who: Outcomes.of_counts(counts) for who, counts in by_learner.items()}
                )
            drawn = resample(outcomes)
            yield {
                "arms": rows,
                "f1": {arm: asdict(one.estimate()) for arm, one in drawn.items()},
                "joint_over_pipeline": {
                    name: asdict(drawn[f"joint {name}"].over(drawn[f"pipeline {name}"]))
                    for name in ALGORITHMS
                    if f"joint {name}" in drawn
                },
            }


def partly(runs: Runs, seeds: int) -> Iterator[dict[str, Any]]:
    """The second table, as far as it has come."""
    sites = {name: {"task": {"annotated": annotated}} for name, annotated in ANNOTATED.items()}
    gold = runs.gold(synthetic("joint", "fedavg", 1))
    rows: dict[str, list[dict[str, Any]]] = {}
    outcomes: dict[str, list[dict[str, Outcomes]]] = {}
    for seed in range(1, seeds + 1):
        for arm, algorithm, own in (
            ("alone", "local_only", sites),
            ("federated", "fedavg", sites),
            ("centralised", "centralized", sites),
            ("all annotated, federated", "fedavg", {}),
        ):
            name = f"partly-{arm}-{seed}" if own else f"joint-{algorithm}-{seed}"
            runs.result(name, {**synthetic("joint", algorithm, seed), "sites": own})
            for who, model in runs.models(name).items():
                counts = counted(gold, found_by([model], gold), ordered=True)
                row = arm if who == "server" else f"{arm}, {' and '.join(ANNOTATED[who])}"
                rows.setdefault(row, []).append({"seed": seed, **figures(counts)})
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
    parser.add_argument(
        "--config", type=Path, help="a corpus instead of synthetic hospitals, for the first table alone"
    )
    parser.add_argument("--data", type=Path, help="the folder of the corpora")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the config")
    wanted = parser.parse_args()
    runs, make = Runs(wanted.runs, wanted.data), synthetic
    tables = {"partly": partly(runs, wanted.seeds), "beside": beside(runs, wanted.seeds, make)}
    settings: dict[str, Any] = {"hospitals": HOSPITALS, "notes": NOTES, "rounds": ROUNDS, "annotated": ANNOTATED}
    if wanted.config is not None:
        tables = {"beside": beside(runs, wanted.seeds, of_config(wanted.config, wanted.overrides))}
        settings = {"config": wanted.config.name, "overrides": [o for o in wanted.overrides if "encoder" not in o]}
    found: dict[str, Any] = {**provenance(), "settings": settings}
    for key, parts in tables.items():
        for part in parts:
            found[key] = part
            wanted.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
