"""Words as pieces, and long sentences in windows of which none loses a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grandrounds.models.encoder import Encoder
from grandrounds.tasks.ner_pieces import pieces_of, shown_best, windows_of


def test_each_word_has_its_pieces_and_one_at_least(encoder: Encoder) -> None:
    (text,) = pieces_of([["the", " heparinx", " \x00", " pain"]], encoder)
    assert encoder.tokenizer.convert_ids_to_tokens(text.ids[: text.first[1]].tolist()) == ["the"]
    assert text.first.tolist() == [0, 1, *(1 + text.sizes[1] + np.arange(2)).tolist()]
    assert text.ids[text.first[2]] == encoder.tokenizer.unk_token_id
    assert text.sizes.sum() == len(text.ids)


def test_a_space_before_a_word_matters_to_who_reads_spaces(encoder_folder: Callable[[str], Path]) -> None:
    roberta = Encoder.find(str(encoder_folder("roberta")))
    (text,) = pieces_of([["The", " pain", "."]], roberta)
    assert text.ids.tolist() == roberta.pieces(["The pain."])[0]


def test_a_piece_is_read_where_its_nearer_edge_is_farthest() -> None:
    starts = np.array([0, 4, 8])
    assert shown_best(14, starts, 6).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("window", [5, 16, 40])
def test_every_piece_of_every_sentence_stands_at_its_place(window: int, encoder: Encoder) -> None:
    sentences = [["pain"] * n for n in (1, 3, 14, 37, 120)]
    sentences = [[f" {word}" for word in words] for words in sentences]
    texts = pieces_of(sentences, encoder)
    for i, text in enumerate(texts):
        text.ids[:] = np.arange(len(text.ids)) % 60 + 5 + i  # tell them apart
    windows = windows_of(texts, window, encoder)
    assert windows.input_ids.shape[1] <= window
    assert windows.attention_mask.sum(dim=1).max() <= window
    flat = windows.input_ids.flatten().numpy()
    for text, places in zip(texts, windows.places, strict=True):
        assert (flat[places] == text.ids).all()
    assert (windows.input_ids[:, 0] == encoder.tokenizer.cls_token_id).all()


def test_context_on_both_sides_is_a_quarter_of_a_window_at_least(encoder: Encoder) -> None:
    (text,) = pieces_of([["pain"] * 300], encoder)
    windows = windows_of([text], 64, encoder)
    place = windows.places[0] % 64 - 1
    inner = np.arange(300)
    assert (np.minimum(place, inner) >= np.minimum(inner, 15)).all()
    assert (np.minimum(61 - place, 299 - inner) >= np.minimum(299 - inner, 15)).all()
