"""Sentences of words as a transformer's word pieces; long ones in windows that overlap.

Each piece is read in the window that shows most on both its sides; [CLS] and [SEP] are in every window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_features import window_starts


@dataclass(frozen=True)
class PieceText:
    """A sentence's pieces, and where each word's begin."""

    ids: NDArray[np.int32]
    first: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many pieces each word has."""
        return np.diff(self.first, append=len(self.ids))


@dataclass(frozen=True)
class Windows:
    """Sentences side by side, [windows, pieces], and for each its pieces' places in that, end to end."""

    input_ids: Tensor
    attention_mask: Tensor
    places: list[NDArray[np.int64]]


def pieces_of(sentences: Sequence[Sequence[str]], encoder: Encoder) -> list[PieceText]:
    """Words have the space before them, if any: to some tokenizers it matters. Every word has a piece."""
    distinct = sorted({word for words in sentences for word in words})
    lost = [encoder.tokenizer.unk_token_id]  # a word of signs that the tokenizer takes for nothing
    known = {word: ids or lost for word, ids in zip(distinct, encoder.pieces(distinct), strict=True)}
    texts = []
    for words in sentences:
        parts = [known[word] for word in words]
        sizes = np.array([len(ids) for ids in parts], dtype=np.int64)
        flat = np.array([id for ids in parts for id in ids], dtype=np.int32)
        texts.append(PieceText(flat, sizes.cumsum() - sizes))
    return texts


def windows_of(texts: Sequence[PieceText], window: int, encoder: Encoder) -> Windows:
    room, tokenizer = window - 2, encoder.tokenizer
    starts = [window_starts(len(text.ids), room, 1) for text in texts]
    longest = min(max(len(text.ids) for text in texts), room) + 2
    count = sum(map(len, starts))
    ids = np.full((count, longest), tokenizer.pad_token_id, dtype=np.int64)
    mask = np.zeros((count, longest), dtype=np.int64)
    places, row = [], 0
    for text, begins in zip(texts, starts, strict=True):
        read_in = row + shown_best(len(text.ids), begins, room)
        places.append(read_in * longest + 1 + np.arange(len(text.ids)) - begins[read_in - row])
        for begin in begins.tolist():
            part = text.ids[begin : begin + room]
            ids[row, : len(part) + 2] = [tokenizer.cls_token_id, *part, tokenizer.sep_token_id]
            mask[row, : len(part) + 2] = 1
            row += 1
    return Windows(torch.from_numpy(ids), torch.from_numpy(mask), places)


def shown_best(length: int, starts: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """For each piece the window in which its nearer edge is farthest; a sentence's own ends are no edges."""
    piece = np.arange(length)[:, None]
    ends = np.minimum(starts + room, length)
    left = np.where(starts == 0, length, piece - starts)
    right = np.where(ends == length, length, ends - 1 - piece)
    inside = (starts <= piece) & (piece < ends)
    best: NDArray[np.int64] = np.where(inside, np.minimum(left, right), -1).argmax(axis=1)
    return best
