"""Documents as word pieces with a "*" on both sides of every mention, cut into windows that overlap.

In one of a document's windows at least every mention has CONTEXT pieces on each side, where the document has them, and
it is read from those windows that give it as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.data.documents import Document
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.task import Batch

if TYPE_CHECKING:
    from grandrounds.tasks.document_re import DocumentExample

MARKER = "*"
CONTEXT = 64


@dataclass(frozen=True)
class MarkedDocument:
    """A document's word pieces, without [CLS] and [SEP]."""

    ids: NDArray[np.int32]
    sentences: NDArray[np.int32]
    """The sentence that each piece is of, -1: none."""
    mentions: NDArray[np.int64]
    """[M, 2]: each mention's opening marker, and the piece past its closing one."""


def mark_document(documents: Sequence[Document], encoder: Encoder) -> list[MarkedDocument]:
    """Each distinct stretch of text between two markers is tokenised once."""
    stretches = [_stretches(document) for document in documents]
    distinct = sorted({text for parts in stretches for text, _ in parts})
    pieces = dict(zip(distinct, encoder.pieces(distinct), strict=True))
    marker = encoder.tokenizer.convert_tokens_to_ids(MARKER)
    return [
        _marked(document, [(pieces[text], at) for text, at in parts], marker)
        for document, parts in zip(documents, stretches, strict=True)
    ]


def _stretches(document: Document) -> list[tuple[str, int]]:
    """The text between markers and sentences' ends, with the character that each stretch begins at."""
    cuts = {0, len(document.text), *(end for sentence in document.sentences for end in sentence)}
    cuts.update(end for mention in document.mentions for end in (mention.start, mention.end))
    points, text = sorted(cuts), document.text
    parts = []
    for start, end in pairwise(points):
        # Byte-level pieces tell a word's beginning by the space before it.
        space = " " if text[start].isspace() or (start and text[start - 1].isspace()) else ""
        parts.append((space + text[start:end].strip(), start))
    return parts


def _marked(document: Document, parts: Sequence[tuple[list[int], int]], marker: int) -> MarkedDocument:
    opens = {mention.start for mention in document.mentions}
    closes = {mention.end for mention in document.mentions}
    starts = [sentence.start for sentence in document.sentences]
    ids: list[int] = []
    sentences: list[int] = []
    opened, closed = dict[int, int](), dict[int, int]()
    for pieces, at in [*parts, (list[int](), len(document.text))]:
        if at in closes:
            ids.append(marker)
            sentences.append(sentences[-1])
            closed[at] = len(ids)
        sentence = bisect_right(starts, at) - 1
        if sentence >= 0 and at >= document.sentences[sentence].end:
            sentence = -1
        if at in opens:
            opened[at] = len(ids)
            ids.append(marker)
            sentences.append(sentence)
        ids += pieces
        sentences += [sentence] * len(pieces)
    mentions = [(opened[mention.start], closed[mention.end]) for mention in document.mentions]
    return MarkedDocument(
        np.array(ids, dtype=np.int32),
        np.array(sentences, dtype=np.int32),
        np.array(mentions, dtype=np.int64).reshape(-1, 2),
    )


def window_starts(length: int, room: int, longest: int) -> NDArray[np.int64]:
    """Where windows of `room` pieces begin, evenly spread, so that any stretch of `longest` pieces has CONTEXT on both
    sides in one of them, as far as a window can hold that."""
    if length <= room:
        return np.zeros(1, dtype=np.int64)
    step = max(room - 2 * CONTEXT - longest, room // 4, 1)
    number = -(-(length - room) // step) + 1
    return np.linspace(0, length - room, number).astype(np.int64)


def shown_well(mentions: NDArray[np.int64], starts: NDArray[np.int64], length: int, room: int) -> NDArray[np.bool_]:
    """[M, W]: which windows give each mention CONTEXT on both sides, where there is as much; if none does, for it is
    too long, those that give its opening marker the most."""
    opening, past = mentions[:, :1], mentions[:, 1:]
    ends = np.minimum(starts + room, length)
    inside = (starts <= opening) & (opening < ends)
    well = inside & (starts <= np.maximum(opening - CONTEXT, 0)) & (ends >= np.minimum(past + CONTEXT, length))
    margin = np.where(inside, np.minimum(opening - starts, ends - opening), -1)
    best = margin == margin.max(axis=1, keepdims=True)
    shown: NDArray[np.bool_] = np.where(well.any(axis=1, keepdims=True), well, best)
    return shown


@dataclass(frozen=True)
class DocumentRows(Batch):
    """What models/localized_context.py calls a DocumentBatch, with the answers."""

    input_ids: Tensor
    attention_mask: Tensor
    markers: Tensor
    places: Tensor
    window_document: Tensor
    mentions: Tensor
    entities: Tensor
    pairs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class _Row:
    marked: MarkedDocument
    starts: NDArray[np.int64]
    shown: NDArray[np.bool_]
    entities: list[list[int]]
    pairs: NDArray[np.int64]
    """[P, 2]: entities, by their places."""
    gold: NDArray[np.bool_]
    within: NDArray[np.bool_]
    outside: tuple[int, ...]
    seen: NDArray[np.bool_] | None


@dataclass(frozen=True)
class DocumentFeatures:
    rows: Sequence[_Row]
    relations: int
    room: int
    special: tuple[int, int, int]
    """[CLS], [SEP] and padding."""

    @classmethod
    def of(
        cls,
        examples: Sequence[DocumentExample],
        marked: Sequence[MarkedDocument],
        relations: int,
        window: int,
        tokenizer: Any,
    ) -> Self:
        room = window - 2
        rows = []
        for example, pieces in zip(examples, marked, strict=True):
            length = len(pieces.ids)
            longest = int((pieces.mentions[:, 1] - pieces.mentions[:, 0]).max())
            starts = window_starts(length, room, longest)
            entities = [list(dict.fromkeys(entity.mentions)) for entity in example.source.entities]
            place = {entity.id: i for i, entity in enumerate(example.source.entities)}
            pairs = np.array([(place[head], place[tail]) for head, tail in example.pairs], dtype=np.int64)
            rows.append(
                _Row(
                    pieces,
                    starts,
                    shown_well(pieces.mentions, starts, length, room),
                    entities,
                    pairs,
                    _many_hot(example.gold, relations),
                    _within(example, pairs),
                    example.outside,
                    None if example.seen is None else _many_hot(example.seen, relations),
                )
            )
        return cls(rows, relations, room, (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """What a document costs: the pieces of all its windows."""
        pieces = [len(row.starts) * min(self.room, len(row.marked.ids)) + 2 * len(row.starts) for row in self.rows]
        return np.array(pieces, dtype=np.int64)

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        return np.array([len(row.pairs) for row in self.rows], dtype=np.int64)

    def gold(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[pairs, relations]"""
        return np.concatenate([self.rows[i].gold for i in rows])

    def within(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[pairs]: whether some sentence names both entities."""
        return np.concatenate([self.rows[i].within for i in rows])

    def outside(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """[relations]: how many hold between entities of no pair."""
        missed = [relation for i in rows for relation in self.rows[i].outside]
        return np.bincount(missed, minlength=self.relations).astype(np.int64)

    def seen(self, rows: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """[pairs, relations]: what the training data state too; None where nobody has looked."""
        found = [self.rows[i].seen for i in rows]
        known = [one for one in found if one is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    @cached_property
    def sentences(self) -> int:
        """As many as the document that has the most."""
        return max((int(row.marked.sentences.max()) + 1 for row in self.rows), default=0)

    def by_sentence(self, row: int, over_pieces: Tensor) -> Tensor:
        """[P, N], for pairs of one row something over the pieces of its document, [CLS] first, as its sum over each
        sentence, [P, sentences]; [CLS], [SEP], padding and pieces of no sentence are left out."""
        sentences = self.rows[row].marked.sentences
        held = np.flatnonzero(sentences >= 0)
        of = torch.from_numpy(sentences[held]).to(over_pieces.device)
        return over_pieces.new_zeros(len(over_pieces), self.sentences).index_add(1, of, over_pieces[:, held + 1])

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> DocumentRows:
        index = np.asarray(rows, dtype=np.int64)
        chosen = [self.rows[i] for i in index]
        cls, sep, pad = self.special
        windows = [
            (d, row, w, row.marked.ids[start : start + self.room])
            for d, row in enumerate(chosen)
            for w, start in enumerate(row.starts)
        ]
        longest = max(len(pieces) for *_, pieces in windows) + 2
        ids = np.full((len(windows), longest), pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        places = np.full_like(ids, -1)
        markers: list[list[int]] = [[] for _ in windows]
        first = np.cumsum([0, *(len(row.marked.mentions) for row in chosen)])
        shown: list[list[tuple[int, int]]] = [[] for _ in range(first[-1])]
        for i, (d, row, w, pieces) in enumerate(windows):
            n, start = len(pieces), row.starts[w]
            ids[i, : n + 2] = [cls, *pieces, sep]
            mask[i, : n + 2] = 1
            # [CLS] and [SEP] are a document's once: the first window's and the last one's.
            places[i, 0] = 0 if w == 0 else -1
            places[i, 1 : n + 1] = np.arange(start, start + n) + 1
            places[i, n + 1] = len(row.marked.ids) + 1 if w == len(row.starts) - 1 else -1
            for m in np.flatnonzero(row.shown[:, w]).tolist():
                shown[first[d] + m].append((i, len(markers[i])))
                markers[i].append(int(row.marked.mentions[m, 0] - start) + 1)
        most = max(len(held) for held in markers)
        return DocumentRows(
            index=torch.from_numpy(index),
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            markers=_filled(markers),
            places=torch.from_numpy(places if len(windows) > len(chosen) else places[:0]),
            window_document=torch.tensor([d for d, *_ in windows]),
            mentions=_filled([[w * most + k for w, k in places_of] for places_of in shown]),
            entities=_filled_groups(
                [[[int(first[d]) + m for m in held] for held in row.entities] for d, row in enumerate(chosen)]
            ),
            pairs=torch.from_numpy(
                np.concatenate([np.insert(row.pairs, 0, d, axis=1) for d, row in enumerate(chosen)])
            ),
            labels=torch.from_numpy(np.concatenate([row.gold for row in chosen]).astype(np.float32)),
        )


def _many_hot(answers: Sequence[frozenset[int]], relations: int) -> NDArray[np.bool_]:
    hot = np.zeros((len(answers), relations), dtype=bool)
    for i, held in enumerate(answers):
        hot[i, list(held)] = True
    return hot


def _within(example: DocumentExample, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    document = example.source
    sentences = [
        {document.sentence_of(document.mentions[m]) for m in entity.mentions} - {None} for entity in document.entities
    ]
    return np.array([bool(sentences[head] & sentences[tail]) for head, tail in pairs], dtype=bool)


def _filled(lists: Sequence[Sequence[int]]) -> Tensor:
    """[lists, longest], -1 fills up."""
    filled = np.full((len(lists), max((len(one) for one in lists), default=0)), -1, dtype=np.int64)
    for i, one in enumerate(lists):
        filled[i, : len(one)] = one
    return torch.from_numpy(filled)


def _filled_groups(groups: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """[groups, most lists, longest], -1 fills up."""
    most, longest = max(len(group) for group in groups), max(len(one) for group in groups for one in group)
    filled = np.full((len(groups), most, longest), -1, dtype=np.int64)
    for i, group in enumerate(groups):
        for j, one in enumerate(group):
            filled[i, j, : len(one)] = one
    return torch.from_numpy(filled)
