"""A map of four cells, and runs that are made up instead of trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from grandrounds.maps.declaration import Arm, Dial, Map, Point
from grandrounds.metrics.outcomes import OUTCOMES, Outcomes, Record, digest_of, to_bytes
from grandrounds.metrics.score import F1, LOSS
from grandrounds.simulation.sweep import Arm as Run
from tests.results import made_result

UNITS = 60
CONFIG = {
    "task": {"name": "sentence_re"},
    "data": {"format": "synthetic", "public": 0.1, "validation": 0.2, "options": {"hospitals": 2, "notes": 6}},
    "partition": {"scheme": "iid", "sites": 2},
    "training": {"batch_size": 16},
    "federation": {"rounds": 2, "evaluate_on": ["validation"]},
}
FAKE = Map(
    system="fake",
    question="When does it help?",
    config=CONFIG,
    x=Dial("number of sites", (2, 4), lambda v: {"partition.sites": int(v)}),
    y=Dial("share of labels (%)", (10, 40), lambda v: {"data.public": v / 100}),
    arm=Arm("ours", {"algorithm.name": "fedatt"}),
    rivals=(
        Arm("plain", {"algorithm.name": "fedavg"}),
        Arm("plain, longer", {"algorithm.name": "fedavg", "training.epochs": 2}),
    ),
    references=(Arm("pooled", {"algorithm.name": "centralized"}),),
    learning_rates=(1e-4, 1e-3, 1e-2),
    points=(Point("corpus", 3, 20, "By hand."),),
)


@dataclass(frozen=True)
class Told:
    """What a made-up run found: its score on validation data, and of how many units of the test it is right."""

    validation: float
    right: int
    best_round: int = 5


@dataclass
class MadeUp:
    """Runs arms by asking `tell`; as the real one, it runs no finished arm again."""

    tell: Callable[[Run], Told]
    loss: bool = False
    ran: list[str] = field(default_factory=list)

    def __call__(self, what: str, runs: Sequence[Run]) -> None:
        for run in runs:
            if not (run.folder / "result.json").exists():
                self.ran.append(f"{what}: {run.folder.parent.name}/{run.folder.name}")
                _leave(run.folder, self.tell(run), self.loss)


def _leave(folder: Path, reported: Told, loss: bool) -> None:
    right = np.arange(UNITS) < reported.right
    if loss:
        columns = {"nats": np.where(right, 1.0, 3.0), "masked": np.ones(UNITS, dtype=np.int64)}
        test: dict[str, object] = {"loss": float(columns["nats"].mean())}
        outcomes = Outcomes("loss", columns, digest_of("test"))
    else:
        counts = {"tp": right.astype(np.int64), "fp": (~right).astype(np.int64), "fn": (~right).astype(np.int64)}
        test, outcomes = {"f1": reported.right / UNITS}, Outcomes("f1", counts, digest_of("test"))
    (folder / OUTCOMES).mkdir(parents=True)
    (folder / OUTCOMES / "server.safetensors").write_bytes(to_bytes([Record("server", "test", outcomes)]))
    result = made_result(
        objective=LOSS if loss else F1,
        validation={"loss" if loss else "f1": reported.validation},
        test=test,
        rounds=9,
        best_round=reported.best_round,
        steps=10,
        examples=20,
        bytes_up=1000,
        bytes_down=3000,
    )
    (folder / "result.json").write_text(json.dumps(result.to_dict()))


def helps_where_sites_are_many(run: Run) -> Told:
    """The system is better with four sites and worse with two and few labels; else as good. Of the rivals, the one that
    is better on test data is worse on validation data."""
    sites, public = run.config.partition.sites, run.config.data.public
    if run.name == "ours":
        return Told(0.7, 50 if sites == 4 else 10 if public == 0.1 else 30)
    return {"plain": Told(0.6, 30), "plain, longer": Told(0.5, 40), "pooled": Told(0.9, 59)}[run.name]
