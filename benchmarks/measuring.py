"""What a benchmark is given and what it gives back. Everything is a ratio of two things measured in turn, in one run:
seconds of different days, or of different machines, say nothing about each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Settings:
    """What all benchmarks share."""

    folder: Path
    """Scratch space, gone afterwards."""
    encoder: str
    """A folder with an encoder of real size."""
    encoder_name: str
    quick: bool
    say: Callable[[str], None]

    @property
    def encoders(self) -> list[tuple[str, str]]:
        """`tiny` and, unless it must be quick, the one of real size: each with its name."""
        return [("tiny", "tiny")] + ([] if self.quick else [(self.encoder, self.encoder_name)])


@dataclass(frozen=True)
class Row:
    """A line of the table: a ratio, or a number that stands beside one."""

    case: str
    measured: float
    goal: float | None = None
    """None: for information."""
    unit: str = "x"
    low: float | None = None
    high: float | None = None
    note: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.measured <= self.goal


class Clocks(NamedTuple):
    """Seconds of the wall clock and of this process: on a busy machine the second is the steadier."""

    wall: float = 0.0
    cpu: float = 0.0

    @classmethod
    def now(cls) -> Clocks:
        return cls(time.perf_counter(), time.process_time())

    def plus_since(self, mark: Clocks) -> Clocks:
        now = self.now()
        return Clocks(self.wall + now.wall - mark.wall, self.cpu + now.cpu - mark.cpu)


def ratio(case: str, ones: Sequence[float], others: Sequence[float], goal: float | None, **more: Any) -> Row:
    """The median of the pairs' ratios, with the smallest and the largest."""
    pairs = [one / other for one, other in zip(ones, others, strict=True)]
    return Row(case, median(pairs), goal, low=min(pairs), high=max(pairs), **more)


def apart(module: str, *arguments: object) -> Any:
    """The JSON that the module prints last, run in a process of its own."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def load() -> float:
    """How many processes wanted a core in the last minute; above the number of cores, seconds are not to be trusted."""
    return round(os.getloadavg()[0], 2)
