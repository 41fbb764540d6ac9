"""Runs that are killed and go on, beside one that nobody disturbed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from grandrounds.federation.audit import verify
from tests.cli.commands import Running, run, start
from tests.conftest import DISTANT_RE, DOCUMENT_RE, JOINT
from tests.simulation.crashes import models

ROUNDS = 6


SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"model.encoder": "tiny"},
    "local_only": {"algorithm.name": "local_only", "training.optimizer_state": "keep"},
    "feded": {"algorithm": {"name": "feded", "download": "predictions", "vote": "counts"}, "federation.fraction": 0.5},
    "fedlcc": {"algorithm": {"name": "fedlcc", "mu": 1.0}, "task": DOCUMENT_RE, "federation.fraction": 0.5},
    "lazy_mil": {"algorithm": {"name": "lazy_mil"}, "task": DISTANT_RE},
    "joint": {
        "task": JOINT,
        "sites": {"site-02": {"task": {"annotated": ["entities"]}}, "site-03": {"task": {"annotated": ["relations"]}}},
    },
    "fedner": {"algorithm": {"name": "fedner", "batch": 12, "iterations": 4}},
}


class Federation:
    """A small run: its config, how long it takes undisturbed, and what it then leaves."""

    def __init__(self, folder: Path, content: Mapping[str, Any]) -> None:
        self.folder, self.config = folder, folder / "config.toml"
        self.config.write_text(tomli_w.dumps(content))
        run("--version").good()  # so that the clock does not count the import of torch
        began = time.monotonic()
        self.run("undisturbed")
        self.seconds = time.monotonic() - began
        self.models = models(folder / "undisturbed")

    def command(self, name: str, workers: int = 1) -> tuple[str | Path, ...]:
        return ("run", self.config, f"workers={workers}", "--out", self.folder / name, "--resume")

    def run(self, name: str, workers: int = 1) -> None:
        run(*self.command(name, workers)).good()

    def killed(self, name: str, delay: float, workers: int = 1) -> bool:
        """Whether the run was still going on after so many seconds, and so was killed."""
        running = start(*self.command(name, workers), fresh_workers=True)
        if running.ended(delay):
            running.wait().good()
            return False
        return end(running, 30)  # a busy machine may take its time

    def check(self, name: str, workers: int = 1) -> None:
        """To its end, and then the same as the undisturbed run."""
        self.run(name, workers)
        folder = self.folder / name
        assert models(folder) == self.models
        lines, undisturbed = metrics(folder), metrics(self.folder / "undisturbed")
        assert [line["round"] for line in lines] == list(range(1, ROUNDS + 1))
        assert lines == undisturbed
        head = json.loads((folder / "result.json").read_text())["audit_head"]
        assert verify(folder / "audit.jsonl", head) > ROUNDS


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def end(running: Running, seconds: float = 5) -> bool:
    """Kill it; no worker outlives its parent by more than a few seconds, though it may still import torch. False:
    it had just ended by itself."""
    running.send(signal.SIGKILL)
    outcome = running.wait()
    assert outcome.code in (0, -signal.SIGKILL)
    limit = time.monotonic() + seconds
    while running.family() and time.monotonic() < limit:
        time.sleep(0.02)
    assert running.family() == {}
    return outcome.code != 0


def killed_at_random(disturbed: Federation, kills: int, moments: random.Random, workers: int = 1) -> None:
    """So many kills that did hit a run on its way; one that ends before its moment is checked, and another begins."""
    done = runs = 0
    while done < kills:
        runs += 1
        name = f"random-{workers}-{runs}"
        for _ in range(min(5, kills - done)):
            # Workers import torch first.
            delay = moments.uniform(0.05, 0.9) * disturbed.seconds + (workers > 1) * moments.uniform(0, 12)
            if not disturbed.killed(name, delay, workers):
                break
            done += 1
        disturbed.check(name, workers)
