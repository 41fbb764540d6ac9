"""Algorithms, tasks and formats are known by name before their code is loaded, and others' come in the same way."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.registry import ALGORITHMS, FORMATS, TASKS, Registry, load_modules


@pytest.mark.parametrize("registry", [ALGORITHMS, TASKS, FORMATS], ids=lambda registry: registry.kind)
def test_every_built_in_stands_under_its_own_name(registry: Registry[object]) -> None:
    assert registry
    assert {name: getattr(thing, "name", None) for name, thing in registry.items()} == {name: name for name in registry}


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown format 'pubtatr'; did you mean 'pubtator'"):
        FORMATS.named("pubtatr")


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    registry = Registry[object]("plant", {"fern": "html.entities:codepoint2name", "rose": "no_such_module:Rose"})
    assert list(registry) == ["fern", "rose"]
    assert isinstance(registry["fern"], dict)
    with pytest.raises(ImportError):
        registry["rose"]


def test_a_module_may_register_what_is_not_built_in() -> None:
    registry = Registry[object]("plant", {"fern": "garden:Fern"})
    registry.register("oak", 1, "wood:Oak")
    registry.register("fern", 2, "garden:Fern")
    assert (registry["oak"], registry["fern"], len(registry)) == (1, 2, 2)
    with pytest.raises(ConfigError, match="'wood:Fern' registers the plant 'fern', which is built in"):
        registry.register("fern", 3, "wood:Fern")
    with pytest.raises(ConfigError, match="which 'wood:Oak' has registered already"):
        registry.register("oak", 4, "park:Oak")


def test_an_entry_point_is_known_by_name_and_loaded_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry[object]("plant", {})
    monkeypatch.setattr("math.moss", SimpleNamespace(name="moss"), raising=False)
    wanted = {"moss": "math:moss", "ivy": "math:ivy", "oak": "math:moss"}
    points = [EntryPoint(name, value, "grandrounds.plants") for name, value in wanted.items()]
    monkeypatch.setattr("grandrounds.registry.entry_points", lambda group: points if "plants" in group else [])
    assert sorted(registry) == ["ivy", "moss", "oak"]
    assert not registry.at_hand("moss")
    assert registry["moss"] == SimpleNamespace(name="moss")
    assert not registry.at_hand("moss")
    with pytest.raises(GrandRoundsError, match="the entry point 'oak' is not a plant of that name"):
        registry["oak"]
    with pytest.raises(GrandRoundsError, match="the plant 'ivy' can't be loaded"):
        registry["ivy"]


def test_a_module_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="imports: the module 'no_such_garden' can't be imported"):
        load_modules(["no_such_garden"])
    for wrong in ("", ".a_garden"):
        with pytest.raises(ConfigError, match="can't be imported"):
            load_modules([wrong])
    (tmp_path / "a_torn_garden.py").write_text("planted =\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="'a_torn_garden' can't be imported"):
        load_modules(["a_torn_garden"])
    (tmp_path / "a_garden.py").write_text("planted = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_modules(["a_garden"])
    assert sys.modules["a_garden"].planted
