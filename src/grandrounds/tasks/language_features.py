"""Notes as rows of word pieces, packed once; masks and second segments are drawn where a batch is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.tasks.masking import Keys, Masking, hashed, mask_rows, uniform
from grandrounds.tasks.task import Batch

SPLIT, LABEL, OTHER, FROM = range(4)
SEGMENTS = 3
"""The purpose of what is drawn for a row's two segments, beside those of masks."""


@dataclass(frozen=True)
class LanguageRows(Batch):
    input_ids: Tensor
    attention_mask: Tensor
    segments: Tensor | None
    places: Tensor
    """Of what is masked: row * length + position."""
    targets: Tensor
    """The pieces there."""
    unrelated: Tensor | None
    """[rows]: 1 where B is from another note, 0 where it follows A."""


@dataclass(frozen=True)
class Specials:
    cls: int
    sep: int
    pad: int


@dataclass(frozen=True)
class LanguageFeatures:
    """Every row's word pieces end to end, without [CLS] and [SEP]; rows of a document follow one another."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    """[rows + 1]"""
    opens: NDArray[np.bool_]
    """[pieces]: the first of a sentence, or of what of it is in this row."""
    continues: NDArray[np.bool_]
    """[word pieces of the vocabulary]: those that don't begin a word."""
    documents: NDArray[np.int64]
    """[rows]: the number of the example that each is of."""
    specials: Specials
    masking: Masking
    length: int
    next_sentence: bool
    seed: int = 0
    """By what masks and segments are drawn; 0, the same for all, where a model is tested."""
    among: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows that another second segment may come from: a learner's own."""

    def drawn(self, rows: NDArray[np.int64], seed: int) -> Self:
        return replace(self, seed=seed, among=np.sort(rows))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts) + (3 if self.next_sentence else 2)

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        return np.ones(len(self.documents), dtype=np.int64)

    def of_examples(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these documents, in their order."""
        first = np.searchsorted(self.documents, examples, side="left")
        counts = np.searchsorted(self.documents, examples, side="right") - first
        before = np.concatenate([[0], counts.cumsum()[:-1]]) if len(counts) else counts
        return np.repeat(first - before, counts) + np.arange(counts.sum())

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> LanguageRows:
        index = np.asarray(rows, dtype=np.int64)
        bodies = [self._body(row) for row in index.tolist()]
        keys = hashed(_keys(bodies) ^ hashed(np.full(1, self.seed, dtype=np.uint64)))
        parts: list[list[NDArray[np.int32]]] = [[body] for body in bodies]
        unrelated = None
        if self.next_sentence:
            draws = uniform(keys, SEGMENTS, 4)
            others = [
                self._another(row, u[OTHER]) if u[LABEL] < 0.5 else None for row, u in zip(index, draws, strict=True)
            ]
            unrelated = np.array([other is not None for other in others])
            parts = [self._segments(row, u, other) for row, u, other in zip(index.tolist(), draws, others, strict=True)]
        ids, segments = self._lay_out(parts)
        there = segments >= 0
        maskable = there & (ids != self.specials.cls) & (ids != self.specials.sep)
        masked = mask_rows(ids, maskable, ~self.continues[ids], keys, self.masking)
        return LanguageRows(
            index=torch.from_numpy(index),
            input_ids=torch.from_numpy(masked.ids),
            attention_mask=torch.from_numpy(there.astype(np.int64)),
            segments=torch.from_numpy(np.maximum(segments, 0)) if self.next_sentence else None,
            places=torch.from_numpy(np.flatnonzero(masked.chosen)),
            targets=torch.from_numpy(ids[masked.chosen]),
            unrelated=None if unrelated is None else torch.from_numpy(unrelated.astype(np.int64)),
        )

    def _body(self, row: int) -> NDArray[np.int32]:
        return self.ids[self.starts[row] : self.starts[row + 1]]

    def _segments(self, row: int, draws: NDArray[np.float64], other: int | None) -> list[NDArray[np.int32]]:
        """A, and what follows it; or A, and text from the document of another row."""
        body, cut = self._body(row), self._cut(row, draws[SPLIT])
        return [body[:cut], body[cut:] if other is None else self._stretch(other, draws[FROM], self.length - 3 - cut)]

    def _cut(self, row: int, draw: float) -> int:
        """The start of a sentence within the row, or where there is but one, of a word near its middle."""
        body = self._body(row)
        opens = np.flatnonzero(self.opens[self.starts[row] + 1 : self.starts[row + 1]]) + 1
        if len(opens):
            return int(opens[int(draw * len(opens))])
        middle = (len(body) + 1) // 2
        return _between_words(body, 0, middle, self.continues) if middle < len(body) else middle

    def _stretch(self, row: int, draw: float, room: int) -> NDArray[np.int32]:
        """Whole sentences of the row's document one after the other, as many as fit, as in a row that goes on: what
        does not follow must be as long, begin and end as what does, or that alone would tell them apart."""
        first, past = np.searchsorted(self.documents, self.documents[row] + np.arange(2))
        begin, end = int(self.starts[first]), int(self.starts[past])
        opens = np.append(np.flatnonzero(self.opens[begin:end]), end - begin)
        fitting = np.flatnonzero(np.diff(opens) <= room)
        if not len(fitting):
            at = begin + int(opens[int(draw * (len(opens) - 1))])
            return self.ids[at : at + room]
        start = int(opens[fitting[int(draw * len(fitting))]])
        stop = int(opens[np.searchsorted(opens, start + room, side="right") - 1])
        return self.ids[begin + start : begin + stop]

    def _another(self, row: int, draw: float) -> int | None:
        """A row of the learner's, of another document; None: it has but this one."""
        first, past = np.searchsorted(self._documents_among, self.documents[row] + np.arange(2)).tolist()
        others = len(self.among) - (past - first)
        if not others:
            return None
        place = int(draw * others)
        return int(self.among[place if place < first else place + past - first])

    @cached_property
    def _documents_among(self) -> NDArray[np.int64]:
        return self.documents[self.among]

    def _lay_out(self, parts: Sequence[Sequence[NDArray[np.int32]]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[rows, length]: [CLS] A [SEP] or [CLS] A [SEP] B [SEP], padded to the longest; and the number of each piece's
        segment, -1 for padding."""
        longest = max(sum(map(len, row)) + len(row) for row in parts) + 1
        ids = np.full((len(parts), longest), self.specials.pad, dtype=np.int64)
        segments = np.full((len(parts), longest), -1, dtype=np.int64)
        ids[:, 0], segments[:, 0] = self.specials.cls, 0
        for row, pieces in enumerate(parts):
            at = 1
            for segment, part in enumerate(pieces):
                end = at + len(part)
                ids[row, at:end], ids[row, end] = part, self.specials.sep
                segments[row, at : end + 1] = segment
                at = end + 1
        return ids, segments


def _keys(bodies: Sequence[NDArray[np.int32]]) -> Keys:
    """[rows]: of what stands in them, so that it does not matter how they are numbered."""
    ids = np.concatenate(bodies)
    lengths = np.array([len(body) for body in bodies])
    starts = lengths.cumsum() - lengths
    place = np.arange(len(ids)) - np.repeat(starts, lengths)
    mixed = hashed((place.astype(np.uint64) << np.uint64(32)) ^ ids.astype(np.uint64))
    return np.add.reduceat(mixed, starts)


@dataclass(frozen=True)
class Packed:
    ids: NDArray[np.int32]
    opens: NDArray[np.bool_]
    ends: list[int]
    """Where each row ends."""


def pack(sentences: Iterable[Sequence[int]], room: int, continues: NDArray[np.bool_]) -> Packed:
    """The sentences of a document one after the other in rows of at most `room` pieces. One that does not fit begins
    a row; one that is longer than a row fills it and goes on in the next, if it can between words."""
    ids: list[int] = []
    opens: list[bool] = []
    ends: list[int] = []
    start = 0
    for sentence in sentences:
        if len(ids) + len(sentence) - start > room and len(ids) > start:
            ends.append(start := len(ids))
        at = 0
        while at < len(sentence):
            take = min(room, len(sentence) - at)
            if at + take < len(sentence):
                take = _between_words(sentence, at, take, continues)
            ids += sentence[at : at + take]
            opens += [True] + [False] * (take - 1)
            at += take
            if at < len(sentence):
                ends.append(start := len(ids))
    if len(ids) > start:
        ends.append(len(ids))
    return Packed(np.array(ids, dtype=np.int32), np.array(opens, dtype=np.bool_), ends)


def _between_words(
    sentence: Sequence[int] | NDArray[np.int32], at: int, take: int, continues: NDArray[np.bool_]
) -> int:
    shorter = take
    while shorter > take // 2 and continues[sentence[at + shorter]]:
        shorter -= 1
    return take if continues[sentence[at + shorter]] else shorter
