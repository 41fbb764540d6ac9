"""Each layer against NumPy loops; zeros past the end go in and come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.models.word_layers import BiLSTM, CharacterCNN, CharacterLSTM, GramCNN, LayerMix, WordCNN, slide

LENGTHS = [7, 3, 1, 5]


def values(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def sentences(width: int = 6) -> tuple[Tensor, Tensor]:
    words = torch.randn(len(LENGTHS), max(LENGTHS), width, generator=torch.Generator().manual_seed(1))
    inside = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return (words * inside[:, :, None]).double(), torch.tensor(LENGTHS)


def made(kind: Any, *options: Any, **more: Any) -> Any:
    torch.manual_seed(0)
    return kind(*options, **more).double().eval()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(x: np.ndarray, p: dict[str, np.ndarray], way: str) -> np.ndarray:
    """States of an LSTM over [words, width], by torch's order of gates: i, f, g, o."""
    hidden = p[f"weight_hh_l0{way}"].shape[1]
    h, c, out = np.zeros(hidden), np.zeros(hidden), []
    for word in x:
        gates = p[f"weight_ih_l0{way}"] @ word + p[f"bias_ih_l0{way}"] + p[f"weight_hh_l0{way}"] @ h
        i, f, g, o = np.split(gates + p[f"bias_hh_l0{way}"], 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)


def check(layer: nn.Module, by_hand: Any) -> None:
    """The layer's output is by_hand(words) for each sentence alone, and zero past its end."""
    words, lengths = sentences()
    found = layer(words, lengths).detach().numpy()
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(found[row, :length], by_hand(words[row, :length].numpy()), atol=1e-12)
        assert np.abs(found[row, length:]).sum() == 0


WORDS = [[3, 1, 4, 1, 5], [2], [9, 2], [6, 5, 3, 5, 8, 9, 7]]


def characters(words: list[list[int]] = WORDS, width: int = 9) -> Tensor:
    return torch.tensor([word + [0] * (width - len(word)) for word in words])


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_a_character_cnn_is_a_convolution_pooled_over_the_word_alone(window: int) -> None:
    layer = made(CharacterCNN, 10, 4, 6, window)
    p = values(layer)
    expected = []
    for word in WORDS:
        x = np.pad(p["embedding.weight"][word], (((window - 1) // 2, window // 2), (0, 0)))
        at = [np.einsum("fcw,wc->f", p["convolution.weight"], x[i : i + window]) for i in range(len(word))]
        expected.append(np.maximum(np.stack(at) + p["convolution.bias"], 0).max(axis=0))
    np.testing.assert_allclose(layer(characters()).detach().numpy(), np.stack(expected), atol=1e-12)


def test_a_character_cnn_has_conv1ds_gradients_and_padding_learns_nothing() -> None:
    layer, weight = made(CharacterCNN, 10, 4, 6), torch.randn(4, 6, dtype=torch.float64)
    ids = characters()
    plain = F.relu(
        F.conv1d(layer.embedding(ids).transpose(1, 2), layer.convolution.weight, layer.convolution.bias, padding="same")
    )
    plain = plain.masked_fill((ids == 0)[:, None], 0).amax(dim=2)
    expected = torch.autograd.grad((plain * weight).sum(), list(layer.parameters()))
    found = torch.autograd.grad((layer(ids) * weight).sum(), list(layer.parameters()))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-12)
    assert found[0][0].abs().sum() == 0


def test_characters_past_the_end_never_win_and_a_word_without_any_is_zero() -> None:
    layer = made(CharacterCNN, 10, 4, 6)
    with torch.no_grad():
        layer.convolution.bias.fill_(3)
        layer.embedding.weight[1:] = -1
        layer.convolution.weight.fill_(1)
        assert layer(torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0]])).abs().sum() == 0


def test_a_character_lstm_gives_the_last_states_of_both_ways() -> None:
    layer = made(CharacterLSTM, 10, 4, 3)
    p = values(layer)
    inner = {name.removeprefix("lstm."): value for name, value in p.items()}
    expected = [
        np.concatenate(
            [
                lstm_by_hand(p["embedding.weight"][word], inner, "")[-1],
                lstm_by_hand(p["embedding.weight"][word[::-1]], inner, "_reverse")[-1],
            ]
        )
        for word in WORDS
    ]
    np.testing.assert_allclose(layer(characters()).detach().numpy(), np.stack(expected), atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_bi_lstm_reads_each_sentence_both_ways(layers: int) -> None:
    layer = made(BiLSTM, 6, 3, layers)

    def by_hand(x: np.ndarray) -> np.ndarray:
        for both in layer.layers:
            forwards, backwards = values(both.forwards), values(both.backwards)
            x = np.concatenate([lstm_by_hand(x, forwards, ""), lstm_by_hand(x[::-1], backwards, "")[::-1]], axis=1)
        return x

    check(layer, by_hand)


def test_a_word_cnn_is_a_convolution_over_the_sentence() -> None:
    layer = made(WordCNN, 6, 5, 3)
    p = values(layer)

    def by_hand(x: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((1, 1), (0, 0)))
        at = [np.einsum("fcw,wc->f", p["convolution.weight"], padded[i : i + 3]) for i in range(len(x))]
        return np.maximum(np.stack(at) + p["convolution.bias"], 0)

    check(layer, by_hand)


def test_a_gram_cnn_takes_the_best_of_the_n_grams_that_hold_a_word() -> None:
    layer = made(GramCNN, 6, 2, (1, 2, 4))

    def by_hand(x: np.ndarray) -> np.ndarray:
        out = np.zeros((len(x), 6))
        for block, (n, convolution) in enumerate(zip((1, 2, 4), layer.convolutions, strict=True)):
            p = values(convolution)
            grams = {
                start: np.tanh(np.einsum("fcw,wc->f", p["weight"], x[start : start + n]) + p["bias"])
                for start in range(len(x) - n + 1)
            }
            for word in range(len(x)):
                holding = [gram for start, gram in grams.items() if start <= word < start + n]
                if holding:
                    out[word, 2 * block : 2 * block + 2] = np.max(holding, axis=0)
        return out

    check(layer, by_hand)


def test_layers_are_mixed_by_softmax_weights_and_a_scale() -> None:
    mix = made(LayerMix, 3)
    states = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    np.testing.assert_allclose(mix(states).detach().numpy(), states.numpy().mean(axis=2), atol=1e-12)
    with torch.no_grad():
        mix.weight.copy_(torch.tensor([0.0, 1.0, -1.0]))
        mix.scale.fill_(2)
    weight = np.exp([0, 1, -1]) / np.exp([0, 1, -1]).sum()
    np.testing.assert_allclose(
        mix(states).detach().numpy(), 2 * np.einsum("l,swld->swd", weight, states.numpy()), atol=1e-12
    )


@pytest.mark.parametrize("window", [1, 3, 5])
def test_sliding_is_conv1d(window: int) -> None:
    words, _ = sentences()
    convolution = made(nn.Conv1d, 6, 4, window)
    expected = F.conv1d(words.transpose(1, 2), convolution.weight, convolution.bias, padding="same").transpose(1, 2)
    np.testing.assert_allclose(
        slide(words, convolution, (window - 1) // 2).detach().numpy(), expected.detach().numpy(), atol=1e-12
    )
