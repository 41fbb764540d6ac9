"""FedProx's term against NumPy, and what it does to sites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import grandrounds
from grandrounds.algorithms.fedprox import distance
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig

Run = Callable[..., Path]


@pytest.fixture
def run(tiny_config: TinyConfig, tmp_path: Path) -> Run:
    def go(name: str, **options: Any) -> Path:
        out = tmp_path / f"{name}{options}"
        grandrounds.run(tiny_config(**{"algorithm": {"name": name, **options}, "federation.rounds": 1}), out=out)
        return out

    return go


def test_the_term_and_its_gradient_are_those_of_the_paper() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    start = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    w = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    w_t = {name: value.double().numpy() for name, value in start.items()}
    found = distance(model, start)
    assert found.item() == pytest.approx(sum(np.sum((w[name] - w_t[name]) ** 2) for name in w), rel=1e-5)
    (0.3 / 2 * found).backward()
    for name, value in model.named_parameters():
        assert value.grad is not None
        np.testing.assert_allclose(value.grad.numpy(), 0.3 * (w[name] - w_t[name]), rtol=1e-4, atol=1e-6)


def test_without_mu_it_is_fedavg_to_the_bit(run: Run) -> None:
    plain, held = (run(name, **options) / "model" / "model.safetensors" for name, options in SAME.items())
    assert plain.read_bytes() == held.read_bytes()


SAME: dict[str, dict[str, Any]] = {"fedavg": {}, "fedprox": {"mu": 0.0}}


def test_the_stronger_it_holds_the_less_sites_move(run: Run, tiny_config: TinyConfig, tmp_path: Path) -> None:
    start = prepare(make_config(tiny_config()), Path(), tmp_path / "start").model.state_dict()

    def moved(mu: float) -> float:
        end = load_file(run("fedprox", mu=mu) / "model" / "model.safetensors")
        return sum(float(((end[name] - start[name]) ** 2).sum()) for name in start)

    free, little, much = (moved(mu) for mu in (0.0, 1.0, 100.0))
    assert much < 0.7 * little < 0.7 * free


def test_mu_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.mu = -1"):
        make_config({"algorithm": {"name": "fedprox", "mu": -1}})
