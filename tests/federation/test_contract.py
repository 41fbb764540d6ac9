"""An algorithm that uses all of the contract ends with the same bits in one process, in several, through crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grandrounds
from grandrounds.federation.audit import verify
from grandrounds.registry import ALGORITHMS
from grandrounds.simulation import run as simulation
from tests.conftest import TinyConfig
from tests.federation import toy
from tests.simulation.crashes import cut, metrics, timeless, weights


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Other tests run every registered algorithm: this one is registered while it is tested."""
    ALGORITHMS["toy"] = toy.Toy
    yield
    del ALGORITHMS["toy"]


@pytest.fixture(scope="module")
def undisturbed(tiny_config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ALGORITHMS["toy"] = toy.Toy
    out = tmp_path_factory.mktemp("toy") / "run"
    grandrounds.run(config(tiny_config), out=out)
    return out


def config(tiny_config: TinyConfig, **overrides: Any) -> dict[str, Any]:
    return tiny_config(
        **{"algorithm": {"name": "toy"}, "federation.rounds": 4, "federation.fraction": 0.67, **overrides}
    )


def same(one: Path, other: Path) -> bool:
    assert timeless(metrics(one)) == timeless(metrics(other))
    return weights(one) == weights(other)


def test_it_visits_two_of_three_sites_a_round_in_three_exchanges(undisturbed: Path) -> None:
    lines = metrics(undisturbed)
    assert [len(line["sites"]) for line in lines] == [2, 2, 2, 2]
    assert [line["replies"] for line in lines] == [6, 6, 6, 6]
    assert len({tuple(line["sites"]) for line in lines}) > 1


def test_private_state_lives_on_and_read_only_asks_leave_it_alone(undisturbed: Path) -> None:
    """The toy multiplies the 24 test rows by 1 + how often the first site says that it was visited."""
    visits = 0
    for line in metrics(undisturbed):
        visits += "site-01" in line["sites"]
        assert line["test"]["n"] == 24 * (1 + visits)
    assert 0 < visits < 4


def test_workers_give_the_same_bits(tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "worker_runner", toy.toy_worker_host)
    for workers in (1, 2):
        short = config(tiny_config, workers=workers, **{"federation.rounds": 2})
        grandrounds.run(short, out=tmp_path / str(workers))
    assert same(tmp_path / "2", tmp_path / "1")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_resumed_run_ends_with_the_same_bits(
    undisturbed: Path, tiny_config: TinyConfig, tmp_path: Path, after: int
) -> None:
    cut(config(tiny_config), tmp_path / "run", after)
    grandrounds.run(config(tiny_config), out=tmp_path / "run", resume=True)
    assert same(tmp_path / "run", undisturbed)
    assert verify(tmp_path / "run" / "audit.jsonl") > 20


def test_a_run_cut_in_every_round_ends_with_the_same_bits(
    undisturbed: Path, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    for after in (1, 2, 3, 4):
        cut(config(tiny_config), tmp_path / "run", after, resume=after > 1)
    grandrounds.run(config(tiny_config), out=tmp_path / "run", resume=True)
    assert same(tmp_path / "run", undisturbed)


def test_a_run_that_checkpoints_seldom_goes_back_further_and_ends_with_the_same_bits(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    seldom = config(tiny_config, **{"federation.checkpoint_every": 3, "data.validation": 0.0})
    grandrounds.run(seldom, out=tmp_path / "whole")
    cut(seldom, tmp_path / "cut", 2)
    grandrounds.run(seldom, out=tmp_path / "cut", resume=True)
    assert same(tmp_path / "cut", tmp_path / "whole")


def test_an_abandoned_round_leaves_server_and_sites_as_they_were(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """Site-01 refuses round 3's second exchange, after all have kept new state in the first."""
    every = {"federation.fraction": 1.0, "federation.min_replies": 3, "data.validation": 0.0}
    troubled = {**every, "algorithm": {"name": "toy", "trouble": 3}}
    for name, changes in {"often": {}, "seldom": {"federation.checkpoint_every": 10}}.items():
        grandrounds.run(config(tiny_config, **troubled, **changes), out=tmp_path / name)
    lines = metrics(tmp_path / "often")
    assert [line["abandoned"] for line in lines] == [False, False, True, False]
    assert lines[2]["lost"] == {"site-01": "refused: not today"}
    assert lines[2]["test"] == lines[1]["test"]
    assert lines[3]["lost"] == {}
    saved = json.loads((tmp_path / "often" / "checkpoints" / "round-00003" / "state.json").read_text())
    assert saved["record"]["versions"] == {f"site-0{i}": "00002.3" for i in (1, 2, 3)}
    assert [line["test"]["n"] for line in lines] == [24 * (1 + visits) for visits in (1, 2, 2, 3)]
    assert same(tmp_path / "seldom", tmp_path / "often")
    grandrounds.run(config(tiny_config, **every, **{"federation.rounds": 2}), out=tmp_path / "two")
    assert weights(tmp_path / "two") != weights(tmp_path / "often")


def test_a_run_that_ends_in_an_abandoned_round_ends_as_the_round_before(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    every = {"federation.fraction": 1.0, "federation.min_replies": 3, "data.validation": 0.0}
    troubled = {**every, "algorithm": {"name": "toy", "trouble": 3}, "federation.rounds": 3}
    grandrounds.run(config(tiny_config, **troubled), out=tmp_path / "three")
    grandrounds.run(config(tiny_config, **every, **{"federation.rounds": 2}), out=tmp_path / "two")
    assert weights(tmp_path / "three") == weights(tmp_path / "two")
