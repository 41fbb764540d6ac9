"""What a map is made of: a config, two dials, the system and its rivals.

A dial is one property of the data or the federation. One end of it must show no advantage: a map says when an idea
works, so it must be able to say that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Overrides = Mapping[str, Any]
"""By dotted key, as in `grandrounds run CONFIG key=value`."""


@dataclass(frozen=True)
class Dial:
    """One axis of a map."""

    name: str
    """In words, with its unit: the label of the axis."""
    values: Sequence[float]
    """From the end without an effect to the end where it should be largest, or by size."""
    overrides: Callable[[float], Overrides]
    """What a value means in the config."""


@dataclass(frozen=True)
class Arm:
    """The system, one of its rivals, or a reference that is shown but not a rival (centralised training)."""

    name: str
    overrides: Overrides
    """`algorithm.name` and whatever else differs from the map's config."""


@dataclass(frozen=True)
class Point:
    """A real corpus on the map."""

    name: str
    x: float
    y: float
    how: str
    """How its dials were estimated, in a sentence, with the command or the file of the estimate."""


def seed_of_run(seed: int) -> Overrides:
    return {"seed": seed}


@dataclass(frozen=True)
class Map:
    system: str
    """The command's argument: feded, fedlcc, lazy_mil, fedner, fedbert."""
    question: str
    """In one sentence: what the picture answers."""
    config: Mapping[str, Any]
    """As nested tables, what every run shares; validation data decide which round counts."""
    x: Dial
    y: Dial
    arm: Arm
    rivals: Sequence[Arm]
    references: Sequence[Arm] = ()
    learning_rates: Sequence[float] = ()
    """Tried for each arm at the middle of the map, by validation, before the map is run."""
    points: Sequence[Point] = ()
    seeded: Callable[[int], Overrides] = seed_of_run
    """What a seed changes: by default the run alone; with the generator's own seed in it, the corpus too."""
