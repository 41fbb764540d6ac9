"""Adapters of several sites: merged exactly by FLoRA, and by FFA-LoRA and FedSA-LoRA as settings of what was there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import grandrounds
from grandrounds import Adapters, Parameters, Payload, Tensors
from grandrounds.algorithms.flora import BASE
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.coordinator import Ledger
from grandrounds.federation.exchange import Ask
from grandrounds.federation.payloads import Expected, PayloadError, unpack
from grandrounds.models.lora import LORA_A as A
from grandrounds.models.lora import LORA_B as B
from grandrounds.models.lora import adapted_layers
from grandrounds.runs.checkpoints import Checkpoints
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import TinyConfig, task_for
from tests.deployment.grids import run_over_grid
from tests.simulation.crashes import cut, metrics, models

LORA = {**task_for("flora"), "data.validation": 0.0, "partition": {"scheme": "by", "by": "hospital"}}
ONE_ROUND = {**LORA, "federation.rounds": 1}


def local(content: dict[str, Any], folder: Path) -> tuple[Simulation, list[Any], list[int]]:
    """What each site sends in round 1, and its size."""
    config = make_config(content)
    simulation = prepare(config, Path(), folder)
    runner, sent, sizes = simulation.runner(config, folder, memory=1 << 30), list[Any](), list[int]()
    algorithm, state = config.make_algorithm(), simulation.model.state_dict()
    payloads: list[Payload] = [Parameters.of(simulation.model, algorithm.shared)]
    if algorithm.name == "flora":
        payloads.append(Tensors({name: value for name, value in state.items() if name.endswith(BASE)}))
    method = "train_merged" if algorithm.name == "flora" else "train"
    for name, data in sorted(simulation.sites.items()):
        start = tuple(payload.pack("fp32") for payload in payloads)
        none = (None, "00001.1", Ledger().needed(name))
        ask = Ask(name, algorithm.name, {}, method, 1, 1, start, config.digest(), *none)
        parts = [part.tensors for part in runner.answer(ask).payloads]
        sent.append({n: v.double().numpy().copy() for part in parts for n, v in part.items()})
        sizes.append(data.registration.counts["examples"])
    return simulation, sent, sizes


def test_the_merged_update_is_the_mean_of_the_sites_products(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """W + sum_k p_k s B_k A_k to 1e-6, and not the product of the means."""
    content = tiny_config(**ONE_ROUND, algorithm={"name": "flora"})
    grandrounds.run(content, out=tmp_path / "run")
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    simulation, sent, sizes = local(content, tmp_path / "again")
    assert len(set(sizes)) > 1
    before = simulation.model.state_dict()
    for name, part in adapted_layers(simulation.model).items():
        w, scale = before[name + BASE].double().numpy(), part.scaling["default"]
        update = np.average([scale * one[name + B] @ one[name + A] for one in sent], axis=0, weights=sizes)
        np.testing.assert_allclose(model[f"{name}.weight"].numpy(), w + update, rtol=0, atol=1e-6)
        a, b = (np.average([one[name + part] for one in sent], axis=0, weights=sizes) for part in (A, B))
        assert np.abs(scale * b @ a - update).max() > 1e-4


def test_the_merge_is_the_product_of_the_stacked_adapters_whatever_their_ranks(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """The paper's form: [p_1 s_1 B_1 ... p_K s_K B_K] times A_1 to A_K, one below the other; s_k = alpha / r_k. What a
    site sends grows with its rank."""
    ranks = {"charity": 1, "general": 2, "university": 7}  # mercy has model.lora_rank, which is 4
    own = {f"sites.{name}.lora_rank": rank for name, rank in ranks.items()}
    content = tiny_config(**ONE_ROUND, algorithm={"name": "flora"}, **own)
    grandrounds.run(content, out=tmp_path / "run")
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    simulation, sent, sizes = local(content, tmp_path / "again")
    before = simulation.model.state_dict()
    for name in adapted_layers(simulation.model):
        assert [len(one[name + A]) for one in sent] == [1, 2, 4, 7]
        shares = [size / sum(sizes) * 16 / len(one[name + A]) for size, one in zip(sizes, sent, strict=True)]
        left = np.concatenate([share * one[name + B] for share, one in zip(shares, sent, strict=True)], axis=1)
        update = left @ np.concatenate([one[name + A] for one in sent], axis=0)
        assert np.abs(update).max() > 1e-3
        w = before[name + BASE].double().numpy()
        np.testing.assert_allclose(model[f"{name}.weight"].numpy(), w + update, rtol=0, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    went = {line["site"]: line["bytes"] for line in lines if line.get("kind") == "adapters"}
    a_rank = 4 * sum(sum(layer.base_layer.weight.shape) for layer in adapted_layers(simulation.model).values())
    assert went["university"] - went["charity"] == pytest.approx(6 * a_rank, rel=0.02)


def test_sites_of_other_ranks_have_the_bits_of_one_process(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(**LORA, algorithm={"name": "flora"})
    content["sites"] = {"charity": {"lora_rank": 2}}
    grandrounds.run(content, out=tmp_path / "process")
    run_over_grid(content, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")


def test_each_site_draws_an_a_of_its_own(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """With one A for all, all updates would lie near the same few directions, however many sites there are."""
    slow = {**ONE_ROUND, "training.learning_rate": 1e-9}
    simulation, sent, _ = local(tiny_config(**slow, algorithm={"name": "flora"}), tmp_path)
    for name in adapted_layers(simulation.model):
        stacked = np.concatenate([one[name + A] for one in sent])
        assert np.linalg.matrix_rank(stacked) == len(stacked) == 16


def test_what_the_server_trains_and_a_warm_start_become_part_of_the_weights(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """Else the sites would never see it: adapters don't come down."""
    still = {"training.learning_rate": 1e-9, "server.learning_rate": 5e-2, "server.epochs": 2, "model.warm_up": 1}
    content = tiny_config(**{**LORA, "algorithm": {"name": "flora"}, **still})
    grandrounds.run(content, out=tmp_path / "run")
    moved = []
    for round in (0, 1, 2):
        _, state = Checkpoints(tmp_path / "run" / "checkpoints").load(round)
        moved.append({name[name.index("/") + 1 :]: v for name, v in state["merged weights"].tensors.items()})
        assert all(not v.any() for name, v in state["model"].tensors.items() if name.endswith(B))
    (tmp_path / "again").mkdir()
    spec = prepare(make_config(content), Path(), tmp_path / "again").spec
    pretrained = replace(spec, start=None).initial_model().state_dict()
    for name, value in moved[0].items():
        assert float((value - pretrained[name]).abs().max()) > 1e-5  # the warm start
        assert float((moved[1][name] - value).abs().max()) > 1e-5  # the server's epochs
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name, value in moved[2].items():
        np.testing.assert_array_equal(model[name.replace(".base_layer", "")].numpy(), value.numpy())


def test_a_rule_against_hostile_sites_holds_for_adapters_too(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(**ONE_ROUND, algorithm={"name": "flora"}, **{"federation.aggregate": "median"})
    grandrounds.run(content, out=tmp_path / "run")
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    simulation, sent, _ = local(content, tmp_path / "again")
    before = simulation.model.state_dict()
    for name, part in adapted_layers(simulation.model).items():
        update = np.median([part.scaling["default"] * one[name + B] @ one[name + A] for one in sent], axis=0)
        w = before[name + BASE].double().numpy()
        np.testing.assert_allclose(model[f"{name}.weight"].numpy(), w + update, rtol=0, atol=1e-6)


def test_adapters_are_checked_when_they_come(tiny_config: TinyConfig, tmp_path: Path) -> None:
    expected = Expected(adapted={"query": (3, 4)})

    def came(a: tuple[int, ...], b: tuple[int, ...], **more: Tensor) -> Payload:
        sent = {"query" + A: torch.ones(a), "query" + B: torch.ones(b), **more}
        return unpack(Adapters(sent).pack("fp32"), expected)

    assert came((3, 4), (3, 3)).kind == "adapters"
    for a, b in (((0, 4), (3, 0)), ((4, 4), (3, 4)), ((4,), (3, 1))):
        with pytest.raises(PayloadError, match="the adapter of 'query' must have a rank from 1 to 3"):
            came(a, b)
    for a, b in (((2, 4), (3, 1)), ((2, 5), (3, 2)), ((2, 4), (4, 2))):
        with pytest.raises(PayloadError, match="has shape"):
            came(a, b)
    with pytest.raises(PayloadError, match="undeclared 'value'"):
        came((1, 4), (3, 1), value=torch.ones(1))
    with pytest.raises(PayloadError, match="not finite"):
        unpack(
            Adapters({"query" + A: torch.full((1, 4), torch.nan), "query" + B: torch.ones(3, 1)}).pack("fp32"), expected
        )


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


def test_a_rank_of_one_s_own_is_refused_where_adapters_are_averaged(tiny_config: TinyConfig) -> None:
    own = {"sites.charity.lora_rank": 2}
    with pytest.raises(
        ConfigError, match=r"sites\.charity\.lora_rank: 'fedavg' needs adapters of one rank; take flora"
    ):
        make_config(tiny_config(**LORA, **own))
    with pytest.raises(ConfigError, match=r"sites\.charity\.lora_rank is for adapters: set model\.parameter_efficient"):
        make_config(tiny_config(algorithm={"name": "flora"}, **own))


def test_without_adapters_it_is_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'flora' merges adapters: set model\.parameter_efficient = 'lora'"):
        grandrounds.run(tiny_config(algorithm={"name": "flora"}), out=tmp_path / "run")
