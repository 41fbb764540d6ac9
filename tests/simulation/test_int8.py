"""Runs in which weights and gradients travel in bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.differences import Downlink
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Parameters
from grandrounds.federation.rows import Tables
from grandrounds.simulation.in_process import InProcess
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig, task_for
from tests.deployment.grids import run_over_grid
from tests.simulation.crashes import cut, metrics, models, timeless

INT8 = {"federation.compression": "int8"}


def content(tiny_config: TinyConfig, name: str, **more: Any) -> dict[str, Any]:
    few = {"iterations": 2} if name == "fedner" else {}
    return tiny_config(**{"algorithm": {"name": name, **few}, "federation.rounds": 2, **task_for(name), **INT8, **more})


def same(one: Path, other: Path) -> None:
    assert models(one) == models(other)
    assert timeless(metrics(one)) == timeless(metrics(other))


@pytest.mark.parametrize("name", ["fedavg", "fedner", "lazy_mil"])
def test_a_cut_run_and_one_over_the_grid_have_the_bits_of_one_process(
    name: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    one = content(tiny_config, name)
    grandrounds.run(one, out=tmp_path / "whole")
    run_over_grid(one, tmp_path / "grid")
    same(tmp_path / "grid", tmp_path / "whole")
    cut(one, tmp_path / "cut", 1)
    grandrounds.run(one, out=tmp_path / "cut", resume=True)
    same(tmp_path / "cut", tmp_path / "whole")


def test_two_workers_have_the_bits_of_one_process(tiny_config: TinyConfig, tmp_path: Path) -> None:
    for workers in (1, 2):
        grandrounds.run(content(tiny_config, "fedavg", workers=workers), out=tmp_path / str(workers))
    same(tmp_path / "1", tmp_path / "2")


def test_weights_take_a_quarter_of_the_bytes_both_ways_and_are_nearly_the_same(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    found, after = {}, dict[str, list[dict[str, Tensor]]]()
    for name, more in (("fp32", {"federation.compression": "fp32"}), ("int8", {}), ("plain", {})):
        own = {"federation.error_feedback": False} if name == "plain" else more
        grandrounds.run(content(tiny_config, "fedavg", **own, **{"federation.keep_models": True}), out=tmp_path / name)
        found[name] = metrics(tmp_path / name)[0]
        kept = sorted((tmp_path / name / "models").glob("*/model.safetensors"))
        after[name] = [load_file(path) for path in kept]
    for way in ("bytes_up", "bytes_down"):
        assert found["int8"][way] < 0.3 * found["fp32"][way]  # names and shapes of so small a model are no fewer
    for round, models_differ in ((1, False), (2, True)):  # what rounding took is there from the second upload on
        one, other = (after[name][round] for name in ("int8", "plain"))
        assert any(not one[name].equal(other[name]) for name in one) == models_differ
    start, exact, rounded = after["fp32"][0], after["fp32"][1], after["int8"][1]
    moved, apart = (
        sum(float(((x[name] - exact[name]) ** 2).sum()) for name in exact if exact[name].is_floating_point()) ** 0.5
        for x in (start, rounded)
    )
    assert 0 < apart < 0.01 * moved


def losing(what: str, site: str, round: int) -> type[InProcess]:
    """A transport that loses the ask of this site in this round, or its reply."""

    class Losing(InProcess):
        def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
            for ask in asks:
                lost = (ask.site, ask.round) == (site, round)
                if not lost or what == "reply":
                    (answer,) = super().exchange([ask])
                yield Answer(site, lost="cut off") if lost else answer

    return Losing


def test_after_a_lost_reply_a_site_adds_what_rounding_took_before_it(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site whose reply was lost and one that got no ask go on alike, since the server names the version."""
    for name in ("reply", "ask"):
        monkeypatch.setattr("grandrounds.simulation.run.InProcess", losing(name, "site-02", 2))
        grandrounds.run(content(tiny_config, "fedavg", **{"federation.rounds": 3}), out=tmp_path / name)
        assert metrics(tmp_path / name)[1]["lost"] == {"site-02": "cut off"}
    same(tmp_path / "reply", tmp_path / "ask")


def test_noise_of_differential_privacy_comes_first(tiny_config: TinyConfig, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")
    private = {"privacy.unit": "example", "privacy.noise": 1.0, "privacy.epsilon": 50.0, "federation.rounds": 1}
    for compression in ("fp32", "int8"):
        one = content(tiny_config, "fedavg", **{**private, "federation.compression": compression})
        grandrounds.run(one, out=tmp_path / compression)
    spent = [(tmp_path / name / "privacy" / "site-01.jsonl").read_text() for name in ("fp32", "int8")]
    assert [json.loads(line)["noise"] for line in spent[0].splitlines()] == [
        json.loads(line)["noise"] for line in spent[1].splitlines()
    ]
    assert metrics(tmp_path / "int8")[0]["epsilon"] == metrics(tmp_path / "fp32")[0]["epsilon"]


def test_a_site_with_another_start_refuses_differences(tiny_config: TinyConfig, tmp_path: Path) -> None:
    config = make_config(content(tiny_config, "fedavg"))
    simulation = prepare(config, Path(), tmp_path)
    runner, start = simulation.runner(config, tmp_path, memory=0), simulation.spec.initial_model().state_dict()
    first, *_ = start
    other = {**start, first: start[first] + 1}
    longer = {**start, "surplus": start[first]}
    for weights, refused in ((start, False), (other, True), (longer, True)):
        packed = Downlink(Tables(lambda weights=weights: weights), frozenset(), 1).pack(Parameters(weights), 1, 1, 0)
        ask = Ask("site-01", "fedavg", {}, "train", 1, 1, (packed,), config.digest(), None, "00001.1", ())
        said = runner.answer(ask).lost or ""
        assert said.startswith("refused: this site does not start with the server's weights") == refused


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"federation.secure": True}, "has no effect under federation.secure"),
        ({"privacy.unit": "site"}, "rounds an update after it was clipped"),
        ({"algorithm.name": "scaffold"}, "what 'scaffold' uploads travels as fp32 or fp16"),
        ({"algorithm.name": "flora"}, "what 'flora' uploads travels as fp32 or fp16"),
        ({"federation.compression": "fp16", "federation.error_feedback": False}, "has no effect without"),
    ],
)
def test_what_does_not_go_with_bytes_is_refused(own: dict[str, Any], why: str, tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config(tiny_config(**{**INT8, **own}))
