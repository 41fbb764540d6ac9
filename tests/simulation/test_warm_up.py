"""A start learnt from the public set: made once, the same for every learner and every process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import grandrounds
from grandrounds.errors import ConfigError
from grandrounds.federation.state import rebuild
from grandrounds.federation.state_folder import read_folder
from tests.conftest import TinyConfig
from tests.simulation.crashes import cut, weights


def start(folder: Path) -> dict[str, torch.Tensor]:
    state, _ = read_folder(folder / "checkpoints" / "round-00000")
    weights: dict[str, torch.Tensor] = rebuild(state["model"])
    return weights


def test_round_one_starts_from_what_the_public_set_taught(tiny_config: TinyConfig, tmp_path: Path) -> None:
    for name, epochs in (("cold", 0), ("warm", 2)):
        grandrounds.run(tiny_config(**{"federation.rounds": 1, "model.warm_up": epochs}), out=tmp_path / name)
    warm, cold = start(tmp_path / "warm"), start(tmp_path / "cold")
    learnt = load_file(tmp_path / "warm" / "start.safetensors")
    assert all(torch.equal(warm[name], value) for name, value in learnt.items())
    assert any(not torch.equal(warm[name], cold[name]) for name in cold)


def test_sites_alone_start_from_it_too(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(
        **{"federation.rounds": 1, "model.warm_up": 2, "algorithm.name": "local_only", "training.learning_rate": 1e-12}
    )
    grandrounds.run(content, out=tmp_path / "run")
    learnt = load_file(tmp_path / "run" / "start.safetensors")
    for model in (tmp_path / "run" / "models").iterdir():
        own = load_file(model / "model.safetensors")
        assert all(torch.allclose(own[name], value, atol=1e-9) for name, value in learnt.items())


def test_a_warm_run_resumes_with_the_same_bits(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(**{"federation.rounds": 2, "model.warm_up": 2})
    grandrounds.run(content, out=tmp_path / "whole")
    cut(content, tmp_path / "cut", after=1)
    grandrounds.run(content, out=tmp_path / "cut", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_without_a_public_set_there_is_nothing_to_warm_up_on(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"public"):
        grandrounds.run(tiny_config(**{"data.public": 0.0, "model.warm_up": 1}), out=tmp_path / "run")
