"""Where a new BERT looks, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from grandrounds.errors import ConfigError
from grandrounds.models.attention import attentions, transformer_in
from grandrounds.models.beginnings import SHARPNESS, look_beside, sinusoids
from grandrounds.models.encoder import Encoder, Size

SIZE = Size(layers=3, width=64, heads=4, pieces=100, dropout=0.0, positions="sinusoidal", attention="beside")
OFFSETS = (-1, 1, -2, 2)
WORDS = "fever cough chills rash pain nausea fatigue headache dizziness vomiting swelling itching tremor "


def test_scores_are_the_cosines_of_how_far_a_place_is_from_the_one_looked_at() -> None:
    """Of place m from place i with offset d: SHARPNESS times the mean of cos(w (i + d - m)) over the head's
    frequencies w = 10000^(-2k / width), the fastest ones."""
    width, size, places = 64, 16, 40
    bert = BertModel(BertConfig(vocab_size=9, hidden_size=width, num_hidden_layers=3, num_attention_heads=4))
    for layer in bert.encoder.layer:
        torch.nn.init.zeros_(layer.attention.self.query.weight)
        torch.nn.init.zeros_(layer.attention.self.key.weight)
    look_beside(bert)
    # Coordinates that positions share with words and segments have three times the variance of the first quarter.
    read = sinusoids(places, width) / (0.25 * 1 + 0.75 * 3) ** 0.5
    i, m = np.arange(places)[:, None], np.arange(places)[None, :]
    frequencies = 10000.0 ** (-2 * np.arange(size // 2) / width)
    for layer in bert.encoder.layer[:2]:
        query, key = layer.attention.self.query.weight, layer.attention.self.key.weight
        for head, offset in enumerate(OFFSETS):
            own = slice(head * size, (head + 1) * size)
            scores = (read @ query[own].T) @ (read @ key[own].T).T / size**0.5
            expected = SHARPNESS * np.mean([np.cos(w * (i + offset - m)) for w in frequencies], axis=0)
            np.testing.assert_allclose(scores.detach().numpy(), expected, atol=1e-4)
    assert bert.encoder.layer[2].attention.self.query.weight.abs().max() == 0


def looked_at(size: Size) -> np.ndarray:
    """[layers, heads]: the offset that gets most attention, on the mean over places."""
    torch.manual_seed(3)
    encoder = Encoder.new(size, [WORDS], None)
    (seen,) = attentions(transformer_in(encoder.build()), encoder, [WORDS * 3], 40)
    weights = np.asarray(seen)
    near = np.arange(-3, 4)
    places = np.arange(5, weights.shape[-1] - 5)
    by_offset = np.stack([weights[..., places, places + offset].mean(axis=-1) for offset in near], axis=-1)
    return near[by_offset.argmax(axis=-1)]


def test_heads_of_the_first_half_of_the_layers_look_beside_among_words_too() -> None:
    assert looked_at(SIZE)[:2].tolist() == [list(OFFSETS)] * 2


def test_heads_look_elsewhere_where_they_are_not_told() -> None:
    assert looked_at(replace(SIZE, attention="random"))[:2].tolist() != [list(OFFSETS)] * 2


def test_without_sinusoids_no_place_can_be_told() -> None:
    with pytest.raises(ConfigError, match=r"model\.attention = 'beside'.*model\.positions = 'sinusoidal'"):
        Encoder.new(replace(SIZE, positions="random"), [WORDS], None)


@pytest.mark.parametrize(("width", "heads"), [(8, 8), (64, 16), (48, 2)])
def test_heads_too_small_to_tell_places_apart_are_refused(width: int, heads: int) -> None:
    with pytest.raises(ConfigError, match=f"with model.width = {width} and {heads} heads there are fewer"):
        replace(SIZE, width=width, heads=heads)


def test_marks_of_entities_have_nothing_where_places_are_told_apart() -> None:
    encoder = Encoder.new(SIZE, [WORDS], None, ["[E1]", "[E2]"])
    words = encoder.build().embeddings.word_embeddings.weight
    assert len(words) == len(encoder.tokenizer)
    assert words[:, :16].abs().max() == 0
    assert words[-2:, 16:].abs().min() > 0
