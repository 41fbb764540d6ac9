"""The runs of a map: learning rates at its middle, then every arm in every cell with every seed.

A run's folder is named by what it is of, so a map that is started again goes on, and a quick look is a part of the
whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, make_config
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.maps.declaration import Arm, Dial, Map
from grandrounds.maps.result import ChosenRate
from grandrounds.runs.results import Result, read_result
from grandrounds.simulation.sweep import Arm as Run

RATE = "training.learning_rate"
RATES_SEED = 0
"""Of the runs that choose learning rates; the map's own seeds begin at 1."""
RunAll = Callable[[str, Sequence[Run]], None]
"""Runs what is not finished yet; the word says what it is for."""


@dataclass(frozen=True)
class Cell:
    x: float
    y: float

    @property
    def name(self) -> str:
        return f"x{self.x:g}-y{self.y:g}"


def arms_of(map: Map) -> list[Arm]:
    return [map.arm, *map.rivals, *map.references]


def middle(map: Map) -> Cell:
    return Cell(map.x.values[len(map.x.values) // 2], map.y.values[len(map.y.values) // 2])


def cells(map: Map, corners: bool = False) -> list[Cell]:
    """By rows."""
    return [Cell(x, y) for y, x in product(_shown(map.y, corners), _shown(map.x, corners))]


def _shown(dial: Dial, corners: bool) -> Sequence[float]:
    return (dial.values[0], dial.values[-1]) if corners else dial.values


def choose_rates(map: Map, out: Path, run_all: RunAll) -> dict[str, ChosenRate]:
    """Each arm's learning rate with the best score on validation data at the middle of the map."""
    if not map.learning_rates:
        return {arm.name: ChosenRate(chosen=None) for arm in arms_of(map)}
    place, tried = middle(map), list(product(arms_of(map), map.learning_rates))
    runs = [
        Run(arm.name, config_of(map, arm, place, RATES_SEED, rate), out / "rates" / f"{_folder(arm)}-{rate:g}")
        for arm, rate in tried
    ]
    run_all("learning rates", runs)
    found = {(arm.name, rate): read_result(run.folder) for (arm, rate), run in zip(tried, runs, strict=True)}
    return {arm.name: _chosen({rate: found[arm.name, rate] for rate in map.learning_rates}) for arm in arms_of(map)}


def _chosen(found: Mapping[float, Result]) -> ChosenRate:
    objective, rates = next(iter(found.values())).objective, list(found)
    tried = {rate: validated(result) for rate, result in found.items()}
    best = min(rates, key=lambda rate: objective.rank(tried[rate]))
    scores = {f"{rate:g}": value for rate, value in tried.items()}
    return ChosenRate(chosen=best, tried=scores, at_edge=len(rates) > 1 and best in (min(rates), max(rates)))


def validated(result: Result) -> float:
    """The score of the run's chosen round on validation data."""
    value = result.validation.value(result.objective) if result.validation else None
    if value is None:
        raise GrandRoundsError(f"a run of {result.algorithm} has no score on validation data: nothing can be chosen")
    return value


def runs_of(map: Map, cell: Cell, seeds: Sequence[int], rates: Mapping[str, ChosenRate], out: Path) -> list[Run]:
    """Those of a cell, by seed and then by arm."""
    return [
        Run(
            arm.name,
            config_of(map, arm, cell, seed, rates[arm.name].chosen),
            out / "cells" / cell.name / f"{_folder(arm)}-seed{seed}",
        )
        for seed, arm in product(seeds, arms_of(map))
    ]


def _folder(arm: Arm) -> str:
    return re.sub(r"\W+", "-", arm.name).strip("-")


def config_of(map: Map, arm: Arm, cell: Cell, seed: int, rate: float | None) -> Config:
    """What the dials say outweighs the map's config, and what the arm says outweighs the dials."""
    made = make_config(map.config, dict(_overrides(map, arm, cell, seed, rate)))
    if not (made.data.validation or any(site.validation for site in made.sites.values())):
        raise ConfigError(f"the map of {map.system} has no validation data to choose rounds and rivals by")
    return made


def _overrides(map: Map, arm: Arm, cell: Cell, seed: int, rate: float | None) -> Iterator[tuple[str, Any]]:
    for part in (map.seeded(seed), map.x.overrides(cell.x), map.y.overrides(cell.y), arm.overrides):
        yield from part.items()
    if rate is not None:
        yield RATE, rate
