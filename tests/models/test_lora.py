"""Adapters in an encoder: what they compute, what is trained, and the standard form they end in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from grandrounds.errors import ConfigError
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.lora import Lora, adapted_layers, without_adapters
from tests.conftest import FAMILIES, TEXTS

LORA = Lora(rank=3, alpha=6.0)


def built(encoder: Encoder, lora: Lora | None = LORA, stirred: bool = False) -> nn.Module:
    """`stirred`: as if it had been trained, so that adapters are not zero."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = replace(encoder, lora=lora).build().eval()
        if stirred:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def states(model: nn.Module, encoder: Encoder) -> torch.Tensor:
    batch = encoder.tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    with torch.no_grad():
        return last_hidden(model, batch["input_ids"], batch["attention_mask"])


@pytest.mark.parametrize("family", FAMILIES)
def test_it_starts_as_the_encoder_and_ends_as_one(family: str, encoder_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.find(str(encoder_folder(family)))
    plain, start = built(encoder, None), built(encoder)
    assert len(adapted_layers(start)) == 2 * 2  # query and value of both layers, whatever they are called
    torch.testing.assert_close(states(start, encoder), states(plain, encoder))
    trained = built(encoder, stirred=True)
    moved = states(trained, encoder)
    assert (moved - states(plain, encoder)).abs().max() > 0.01
    standard = without_adapters(trained)
    assert standard.keys() == plain.state_dict().keys()
    plain.load_state_dict(standard)
    torch.testing.assert_close(states(plain, encoder), moved, atol=1e-5, rtol=1e-5)


def test_an_adapted_layer_is_w_plus_alpha_over_rank_b_a(encoder: Encoder) -> None:
    model = built(encoder, stirred=True)
    layers = adapted_layers(model)
    assert len(layers) == 2 * 2  # query and value of both layers
    for name, layer in layers.items():
        w, a, b = (
            part.weight.detach().double().numpy()
            for part in (layer.base_layer, layer.lora_A["default"], layer.lora_B["default"])
        )
        assert (a.shape, b.shape) == ((3, 32), (32, 3))
        x = np.random.default_rng(0).normal(size=(4, 32))
        expected = x @ w.T + layer.base_layer.bias.detach().numpy() + 6 / 3 * (x @ a.T) @ b.T
        np.testing.assert_allclose(layer(torch.from_numpy(x).float()).detach().numpy(), expected, atol=1e-5)
        np.testing.assert_allclose(without_adapters(model)[f"{name}.weight"], w + 6 / 3 * b @ a, atol=1e-6)


def test_gradients_are_taken_of_adapters_alone(encoder: Encoder) -> None:
    trained = {name for name, p in built(encoder).named_parameters() if p.requires_grad}
    assert len(trained) == 2 * 4
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)


def test_a_module_that_is_not_there_is_named_with_those_that_are(encoder: Encoder) -> None:
    with pytest.raises(ConfigError, match=r"has no linear 'q_lin'; it has dense, key, query, value"):
        built(encoder, replace(LORA, modules=("q_lin",)))
    with pytest.raises(ConfigError, match=r"has no linear 'valve'; it has dense, key, query, value"):
        built(encoder, replace(LORA, modules=("query", "valve")))
    with pytest.raises(ConfigError, match="encoder 'words' has no linear 'query' or 'value'; it has none"):
        built(Encoder.find("words", public=TEXTS))


def test_a_list_may_name_more_of_a_name_than_its_end(encoder: Encoder) -> None:
    layers = adapted_layers(built(encoder, replace(LORA, modules=("attention.output.dense",))))
    assert list(layers) == [f"encoder.layer.{i}.attention.output.dense" for i in range(2)]


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")
def test_deberta_calls_its_queries_otherwise() -> None:
    from transformers import DebertaV2Config, DebertaV2Model

    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = LORA.put_into(DebertaV2Model(DebertaV2Config(vocab_size=20, **shape)), "deberta")
    assert [name.rpartition(".")[2] for name in adapted_layers(model)] == ["query_proj", "value_proj"]


def test_without_peft_the_extra_is_named(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"pip install grandrounds\[lora\]"):
        built(encoder)
