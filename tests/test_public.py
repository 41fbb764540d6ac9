"""The public names of the package: there, documented, quick to import, and doing what they say."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

import grandrounds
from grandrounds import subprocesses
from grandrounds.errors import ConfigError
from tests.conftest import TinyConfig, corpus, write_corpus

PROMISED = [
    *("Algorithm", "algorithm", "on_site", "mean", "Parameters", "Server", "Site", "Cohort"),
    *("run", "compare", "load", "save", "read", "Document"),
]


def test_importing_the_package_imports_nothing_heavy() -> None:
    look = (
        "import sys, grandrounds; print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60).stdout == "[]\n"


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_public(name: str) -> None:
    assert name in dir(grandrounds)


@pytest.mark.parametrize("name", [name for name in grandrounds.__all__ if name != "__version__"])
def test_a_public_name_has_a_docstring_of_its_own(name: str) -> None:
    thing = getattr(grandrounds, name)
    assert (thing.__doc__ or "").strip()
    assert not thing.__doc__.startswith(f"{name}("), "that is what dataclasses write themselves"
    if inspect.isclass(thing):
        methods = [own for key, own in vars(thing).items() if inspect.isfunction(own) and not key.startswith("_")]
        assert [method.__name__ for method in methods if not inspect.getdoc(method)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'grandrounds' has no attribute 'rum'"):
        grandrounds.rum  # noqa: B018


def test_read_gives_the_documents_of_all_paths(tmp_path: Path) -> None:
    first, second = corpus(4), corpus(2, "t")
    paths = [write_corpus(tmp_path / "a.jsonl", first), write_corpus(tmp_path / "b.jsonl", second)]
    found = grandrounds.read(paths, "json")
    assert list(found) == [*first, *second]
    assert (len(found), found.warnings) == (6, {})
    assert all(isinstance(document, grandrounds.Document) for document in found)


def test_compare_runs_each_arm_and_says_how_far_it_is_from_the_baseline(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocesses, "multiprocessing", multiprocessing)  # new interpreters, as for users
    arms = ["fedavg", "fedatt"]
    rows = grandrounds.compare(
        tiny_config(), arms, overrides={"federation.rounds": 1}, out=tmp_path, baseline="fedatt", processes=2
    )
    results = {arm: json.loads((tmp_path / arm / "result.json").read_text()) for arm in arms}
    by_name = {row.name: row for row in rows if not row.trivial}
    assert {name: row.f1_mean for name, row in by_name.items()} == {arm: results[arm]["test"]["f1"] for arm in arms}
    assert {arm: results[arm]["rounds"] for arm in arms} == {"fedavg": 1, "fedatt": 1}
    assert (by_name["fedavg"].baseline, by_name["fedatt"].baseline) == ("fedatt", None)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arms", "baseline", "reported"),
    [
        (["fedavgg"], None, "unknown algorithm 'fedavgg'; did you mean 'fedavg'"),
        ([], None, "there is no algorithm to compare"),
        (["fedavg"], "fedatt", "unknown arm for the baseline 'fedatt'"),
    ],
)
def test_compare_refuses_arms_that_nobody_knows(
    arms: list[str], baseline: str | None, reported: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reported):
        grandrounds.compare(tiny_config(), arms, out=tmp_path, baseline=baseline)


def test_overrides_reach_a_config_in_whatever_form_it_comes(tiny_config: TinyConfig) -> None:
    from grandrounds.config.schema import make_config
    from grandrounds.simulation.run import opened

    for config in (tiny_config(), make_config(tiny_config())):
        assert opened(config, {"federation.rounds": 7})[0].federation.rounds == 7
