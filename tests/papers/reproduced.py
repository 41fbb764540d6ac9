"""What the tests of papers share: targets run in this process, planned arms, and what was reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.protocol import Paper, reproduce
from grandrounds.simulation.run import run_config as run
from grandrounds.simulation.sweep import Arm


class InProcess:
    """Runs arms here, one after another: a process each would mostly import torch."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, arms: Sequence[Arm], base: Path) -> None:
        for arm in arms:
            self.ran.append(arm.folder.name)
            run(arm.config, base, arm.folder, resume=True)


def reported(out: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((out / f"{name}.json").read_text("utf-8")))


def cells(out: Path, name: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row["cells"] for row in reported(out, name)["rows"]}


def run_all(paper: Paper, options: Callable[[str], ReproduceOptions]) -> InProcess:
    """Every table and figure of a paper; gives what was run for them."""
    runner = InProcess()
    for name in paper.targets:
        reproduce(paper, name, options(name), runner)
    return runner


def planned(paper: Paper, target: str, options: ReproduceOptions) -> list[Arm]:
    """A target's first arms, none of which is run."""
    found: list[Arm] = []

    def stop(arms: Sequence[Arm], base: Path) -> None:
        found.extend(arms)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        reproduce(paper, target, options, stop)
    return found
