"""Every cell of a declared map is a config that can run, and its first arm is the system."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

from grandrounds.config.schema import Config, make_config
from grandrounds.maps.declaration import Arm, Map
from grandrounds.simulation.prepare import prepare

SITES = {"fedlcc": 3, "fedner": 3, "fedbert": 2}
SYSTEMS = tuple(SITES)


def declared(system: str) -> Map:
    made = import_module(f"grandrounds.maps.{system}").declare()
    assert isinstance(made, Map)
    return made


def config_of(map: Map, arm: Arm, x: float, y: float, seed: int = 1) -> Config:
    dials = {**map.x.overrides(x), **map.y.overrides(y)}
    rate = {"training.learning_rate": map.learning_rates[1]}
    return make_config(map.config, {**map.seeded(seed), **dials, **arm.overrides, **rate})


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_arm_of_every_cell_is_a_config_of_its_own(system: str) -> None:
    map = declared(system)
    arms = (map.arm, *map.rivals, *map.references)
    configs = [config_of(map, arm, x, y) for arm, x, y in product(arms, map.x.values, map.y.values)]
    assert len({config.digest() for config in configs}) == len(arms) * len(map.x.values) * len(map.y.values)
    assert all(config.federation.early_stopping and config.data.validation for config in configs)
    assert map.system == system
    assert len(map.learning_rates) == 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_smallest_cell_has_data_at_every_site_to_train_and_judge_by(system: str, tmp_path: Path) -> None:
    map = declared(system)
    made = prepare(config_of(map, map.arm, map.x.values[-1], map.y.values[0]), tmp_path, tmp_path)
    assert len(made.sites) == SITES[system]
    assert made.scored >= {"validation", "test"}
    assert not made.left_out
