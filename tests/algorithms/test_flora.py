"""Adapters of several sites: merged exactly by FLoRA, and by FFA-LoRA and FedSA-LoRA as settings of what was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import grandrounds
from grandrounds import Parameters
from grandrounds.algorithms.flora import BASE, A, B
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.coordinator import Ledger
from grandrounds.federation.exchange import Ask
from grandrounds.federation.payloads import Packed
from grandrounds.models.lora import adapted_layers
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import TinyConfig, task_for
from tests.simulation.crashes import cut, metrics, models

LORA = {**task_for("flora"), "data.validation": 0.0, "partition": {"scheme": "by", "by": "hospital"}}
ONE_ROUND = {**LORA, "federation.rounds": 1}


def local(content: dict[str, Any], folder: Path) -> tuple[Simulation, list[Any], list[int]]:
    """What each site sends in round 1 of fedavg, and its size."""
    config = make_config({**content, "algorithm": {"name": "fedavg"}})
    simulation = prepare(config, Path(), folder)
    runner, sent, sizes = simulation.runner(config, folder, memory=1 << 30), list[Any](), list[int]()
    start: Packed = Parameters.of(simulation.model).pack("fp32")
    for name, data in sorted(simulation.sites.items()):
        ask = Ask(name, "fedavg", {}, "train", 1, 1, (start,), config.digest(), None, "00001.1", Ledger().needed(name))
        sent.append({n: v.double().numpy().copy() for n, v in runner.answer(ask).payloads[0].tensors.items()})
        sizes.append(data.registration.counts["examples"])
    return simulation, sent, sizes


def test_the_merged_update_is_the_mean_of_the_sites_products(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """W + sum_k p_k s B_k A_k to 1e-6, and not the product of the means."""
    grandrounds.run(tiny_config(**ONE_ROUND, algorithm={"name": "flora"}), out=tmp_path / "run")
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    simulation, sent, sizes = local(tiny_config(**ONE_ROUND), tmp_path / "again")
    assert len(set(sizes)) > 1
    before = simulation.model.state_dict()
    for name, part in adapted_layers(simulation.model).items():
        w, scale = before[name + BASE].double().numpy(), part.scaling["default"]
        update = np.average([scale * one[name + B] @ one[name + A] for one in sent], axis=0, weights=sizes)
        np.testing.assert_allclose(model[f"{name}.weight"].numpy(), w + update, rtol=0, atol=1e-6)
        a, b = (np.average([one[name + part] for one in sent], axis=0, weights=sizes) for part in (A, B))
        assert np.abs(scale * b @ a - update).max() > 1e-4


def test_with_one_site_a_round_is_fedavg_s(tiny_config: TinyConfig, tmp_path: Path) -> None:
    for name in ("flora", "fedavg"):
        one = {**ONE_ROUND, "partition": {"scheme": "iid", "sites": 1}, "algorithm": {"name": name}}
        grandrounds.run(tiny_config(**one), out=tmp_path / name)
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("flora", "fedavg"))
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) < 1e-6


def test_a_run_that_was_cut_and_one_stopped_early_have_the_weights_of_their_round(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = tiny_config(**{**LORA, "federation.rounds": 3, "algorithm": {"name": "flora"}})
    grandrounds.run(content, out=tmp_path / "whole")
    cut(content, tmp_path / "cut", 1)
    grandrounds.run(content, out=tmp_path / "cut", resume=True)
    assert models(tmp_path / "cut") == models(tmp_path / "whole")
    chosen = tiny_config(**{**LORA, "federation.rounds": 3, "algorithm": {"name": "flora"}, "data.validation": 0.2})
    result = grandrounds.run(chosen, out=tmp_path / "chosen")
    best = metrics(tmp_path / "chosen")[result.best_round - 1]["test"]["f1"]
    assert result.test.f1 == best


def test_freezing_a_makes_the_mean_exact(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """FFA-LoRA (Sun et al., ICLR 2024): with one A for all, mean(B) A is the mean of B A, and half of it travels."""
    frozen = {**ONE_ROUND, "model.freeze": ["lora_A"], "algorithm": {"name": "fedavg"}}
    grandrounds.run(tiny_config(**frozen), out=tmp_path / "run")
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    simulation, sent, sizes = local(tiny_config(**frozen), tmp_path / "again")
    assert not any(A in name for one in sent for name in one)
    before = simulation.model.state_dict()
    for name, part in adapted_layers(simulation.model).items():
        a = before[name + A].double().numpy()
        update = np.average([part.scaling["default"] * one[name + B] @ a for one in sent], axis=0, weights=sizes)
        w = before[name + BASE].double().numpy()
        np.testing.assert_allclose(model[f"{name}.weight"].numpy(), w + update, rtol=0, atol=1e-6)


def test_b_stays_at_the_site_and_a_is_shared(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """FedSA-LoRA (Guo et al., ICLR 2025) is fedper with private B."""
    content = tiny_config(**ONE_ROUND, algorithm={"name": "fedper", "private": ["*.lora_B"]})
    manifest = prepare(make_config(content), Path(), tmp_path / "setup").expected.manifest
    assert any(A in name for name in manifest)
    assert not any(B in name for name in manifest)
    grandrounds.run(content, out=tmp_path / "run")
    assert len(models(tmp_path / "run")) == 4  # a hospital each


def test_without_adapters_it_is_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'flora' merges adapters: set model\.parameter_efficient = 'lora'"):
        grandrounds.run(tiny_config(algorithm={"name": "flora"}), out=tmp_path / "run")
