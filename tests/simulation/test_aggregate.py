"""federation.aggregate in whole runs: every algorithm that takes a mean has it, norms are logged, outliers left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.runs.results import read_rounds
from tests.conftest import TinyConfig, task_for
from tests.simulation.crashes import cut, weights

RULES = ("norm_bound", "median", "trimmed", "krum")
HOSTILE = {"site-02": {"attack": "scale"}}


def kept_models(out: Path) -> list[dict[str, torch.Tensor]]:
    return [load_file(path) for path in sorted((out / "models").glob("*/model.safetensors"))]


def farthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("aggregate", RULES)
def test_an_attacker_of_five_moves_the_model_a_hundred_times_less(
    aggregate: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = {
        **tiny_config(**{"partition.sites": 5, "federation.rounds": 1, "federation.byzantine": 0.2}),
        "sites": HOSTILE,
    }
    grandrounds.run({**content, "sites": {}}, out=tmp_path / "clean")
    grandrounds.run(content, out=tmp_path / "mean")
    grandrounds.run(content, {"federation.aggregate": aggregate}, out=tmp_path / aggregate)
    clean, mean, robust = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("clean", "mean", aggregate)
    )
    assert farthest(robust, clean) < 0.01 * farthest(mean, clean)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedner", "lazy_mil", "moon"])
@pytest.mark.parametrize("aggregate", ["norm_bound", "median"])
def test_every_algorithm_that_takes_a_mean_has_it_without_a_line_of_its_own(
    algorithm: str, aggregate: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"iterations": 2, "private": ["head"]} if algorithm == "fedner" else {}
    content = tiny_config(
        **{"federation.rounds": 1, "algorithm": {"name": algorithm, **options}}, **task_for(algorithm)
    )
    grandrounds.run(content, {"federation.aggregate": aggregate}, out=tmp_path)
    ((only,), _) = read_rounds(tmp_path)
    assert only.norms.keys() == {"site-01", "site-02", "site-03"}
    assert all(norm > 0 for norm in only.norms.values())


def test_the_mean_logs_no_norms(tiny_config: TinyConfig, tmp_path: Path) -> None:
    grandrounds.run(tiny_config(**{"federation.rounds": 1}), out=tmp_path)
    assert "norms" not in (tmp_path / "metrics.jsonl").read_text()


def test_logged_norms_are_those_of_the_difference_to_what_was_sent(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """With one site the new model is its reply, and the difference of both models its update."""
    changes = {"partition.sites": 1, "federation.rounds": 1, "federation.aggregate": "median"}
    grandrounds.run(tiny_config(**changes, **{"federation.keep_models": True}), out=tmp_path)
    start, end = kept_models(tmp_path)
    expected = np.sqrt(sum(((end[name] - start[name]).double() ** 2).sum().item() for name in start))
    ((only,), _) = read_rounds(tmp_path)
    assert only.norms["site-01"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("aggregate", RULES)
def test_two_workers_have_the_bits_of_one_process(aggregate: str, tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(**{"federation.rounds": 1, "federation.aggregate": aggregate, "partition.sites": 4})
    grandrounds.run(content, out=tmp_path / "one")
    grandrounds.run(content, {"workers": 2}, out=tmp_path / "two")
    assert weights(tmp_path / "two") == weights(tmp_path / "one")


def audited(out: Path) -> list[tuple[int, str, str]]:
    lines = map(json.loads, (out / "audit.jsonl").read_text().splitlines())
    return [(line["round"], line["site"], line["event"]) for line in lines if "outlier" in line.get("event", "")]


LEAVING = {
    "partition.sites": 5,
    "federation.rounds": 4,
    "federation.aggregate": "median",
    "federation.leave_out_after": 2,
}


def test_a_repeat_offender_is_left_out_and_the_log_says_so(tiny_config: TinyConfig, tmp_path: Path) -> None:
    grandrounds.run({**tiny_config(**LEAVING), "sites": HOSTILE}, out=tmp_path)
    rounds, _ = read_rounds(tmp_path)
    assert ["site-02" in one.sites for one in rounds] == [True, True, False, False]
    assert [[*one.outliers] for one in rounds] == [["site-02"], ["site-02"], [], []]
    assert rounds[0].outliers["site-02"] > 100
    assert audited(tmp_path) == [(1, "site-02", "outlier"), (2, "site-02", "outlier, and asked no more")]


def test_a_resumed_run_remembers_who_is_left_out(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = {**tiny_config(**LEAVING), "sites": HOSTILE}
    grandrounds.run(content, out=tmp_path / "whole")
    cut(content, tmp_path / "cut", 3)
    grandrounds.run(content, out=tmp_path / "cut", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert [one.sites for one in read_rounds(tmp_path / "cut")[0]] == [
        one.sites for one in read_rounds(tmp_path / "whole")[0]
    ]


def test_half_of_the_sites_are_always_asked(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """Two of three are hostile: the median is theirs, and whoever is an outlier then, two sites go on."""
    hostile = {"site-02": {"attack": "scale"}, "site-03": {"attack": "substitute"}}
    changes = {**LEAVING, "partition.sites": 3, "federation.leave_out_after": 1}
    grandrounds.run({**tiny_config(**changes), "sites": hostile}, out=tmp_path)
    assert all(len(one.sites) >= 2 for one in read_rounds(tmp_path)[0])


def test_zero_never_leaves_anybody_out(tiny_config: TinyConfig, tmp_path: Path) -> None:
    changes = {**LEAVING, "federation.leave_out_after": 0, "federation.rounds": 2}
    grandrounds.run({**tiny_config(**changes), "sites": HOSTILE}, out=tmp_path)
    assert all(len(one.sites) == 5 for one in read_rounds(tmp_path)[0])


def test_an_unknown_rule_is_refused_with_those_that_exist(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"federation.aggregate"):
        make_config(tiny_config(**{"federation.aggregate": "krumm"}))
