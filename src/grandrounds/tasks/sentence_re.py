"""Sentence-level relation extraction as in FedED (Sui et al., EMNLP 2020, section 3.2).

An example is a pair of mentions in a sentence, whose types a relation may join. The two mentions are blinded
(replaced by their type) and marked with four reserved word pieces; one class, or None, is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.data.documents import Document, Relation, Span, owned
from grandrounds.errors import DataError
from grandrounds.metrics.relation_f1 import macro_f1, relation_counts, relation_score
from grandrounds.models.encoder import Encoder
from grandrounds.models.entity_pair import EntityPair, SentenceOnly
from grandrounds.models.ranking_cnn import RankingCNN, ranking_loss
from grandrounds.tasks.abilities import PrivateParts, Response, SingleLabel
from grandrounds.tasks.batching import starts_of
from grandrounds.tasks.task import (
    NO_CLASS,
    NO_LABEL,
    NONE,
    Batch,
    Counts,
    Example,
    ExtractionTask,
    Reading,
    check_relations,
)

MARKERS = ("<e1>", "</e1>", "<e2>", "</e2>")
AROUND = 6
"""Word pieces that a pair needs beside its mentions: [CLS], [SEP] and four markers."""
TOO_LONG = "pairs of mentions that together are longer than the model's window, not asked about"
ACROSS = "relations across sentences, between overlapping mentions or between types that are never paired"
HEADS: dict[str, type[nn.Module]] = {
    "entity_pair": EntityPair,
    "cls": SentenceOnly,
    "ranking_cnn": RankingCNN,
}


class SentenceREOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["sentence_re"] = "sentence_re"
    head: Literal["entity_pair", "cls", "ranking_cnn"] = "entity_pair"
    blind: bool = True
    """Replace the two mentions by their types."""
    max_length: int = Field(128, ge=16)
    """Word pieces; a longer sentence is cut to a window round the pair."""
    dropout: float = Field(0.1, ge=0, lt=1)
    labels: list[str] | None = None
    """Relation types, without None; by default those of the corpora."""
    pairs: list[tuple[str, str]] | None = None
    """(head type, tail type) that a relation may join; by default those of the corpora."""


@dataclass(frozen=True)
class PairExample(Example):
    """A sentence and two mentions in it (head and tail), as characters of the sentence."""

    text: str
    head: Span
    tail: Span
    types: tuple[str, str]
    mentions: tuple[int, int]
    blinded: bool
    """The corpus came with the mentions already replaced."""


class SentenceRE(ExtractionTask, SingleLabel, PrivateParts):
    name: ClassVar[str] = "sentence_re"
    unit: ClassVar[str] = "sentence"
    markers: ClassVar[Sequence[str]] = MARKERS
    Options: ClassVar[type[SentenceREOptions]] = SentenceREOptions
    options: SentenceREOptions

    def __init__(self, options: SentenceREOptions, labels: Sequence[str], pairs: Iterable[tuple[str, str]]) -> None:
        self.options = options
        self._labels = (NONE, *labels)
        self.pairs = frozenset(pairs)
        self._ids = {label: i for i, label in enumerate(self._labels)}

    @classmethod
    def private_parts(cls, options: SentenceREOptions, encoder: str) -> Mapping[str, Sequence[str]]:
        return {"default": ("head",), "nothing": ()}

    @classmethod
    def of(cls, options: SentenceREOptions, documents: Iterable[Document]) -> Self:
        found: set[str] = set()
        pairs: set[tuple[str, str]] = set()
        for document in documents:
            for relation in document.relations:
                found.add(relation.type)
                pairs.update(_types(document, pair) for pair in _mention_pairs(document, relation))
        labels = sorted(found) if options.labels is None else options.labels
        check_relations(labels, cls.name)
        return cls(options, labels, options.pairs if options.pairs is not None else pairs)

    @property
    def labels(self) -> Sequence[str]:
        return self._labels

    def schema(self) -> dict[str, Any]:
        return {"options": self.options.model_dump(), "labels": self._labels[1:], "pairs": sorted(self.pairs)}

    @classmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self:
        return cls(
            cls.Options(**schema["options"]),
            schema["labels"],
            [(head, tail) for head, tail in schema["pairs"]],
        )

    # From documents to examples

    def examples(self, documents: Sequence[Document]) -> tuple[list[PairExample], dict[str, int]]:
        examples: list[PairExample] = []
        warnings: dict[str, int] = {}
        for index, document in enumerate(documents):
            examples += self._document_examples(index, document, warnings)
        return examples, warnings

    def _document_examples(self, index: int, document: Document, warnings: dict[str, int]) -> Iterator[PairExample]:
        gold = self._gold(document, warnings)
        by_sentence: dict[int, list[int]] = {}
        for m, mention in enumerate(document.mentions):
            sentence = document.sentence_of(mention)
            if sentence is None:
                _warn(warnings, "mentions across a sentence boundary, in no pair")
            else:
                by_sentence.setdefault(sentence, []).append(m)
        for sentence, members in sorted(by_sentence.items()):
            for pair in self._candidates(document, members):
                head, tail = (document.mentions[m] for m in pair)
                if head.start < tail.end and tail.start < head.end:
                    _warn(warnings, "pairs of overlapping mentions, which can't both be marked")
                    continue
                start, end = document.sentences[sentence]
                yield PairExample(
                    document=index,
                    sentence=sentence,
                    label=gold.pop(pair, NONE),
                    text=document.text[start:end],
                    head=Span(head.start - start, head.end - start),
                    tail=Span(tail.start - start, tail.end - start),
                    types=(head.type, tail.type),
                    mentions=pair,
                    blinded="blinded" in head.attributes and "blinded" in tail.attributes,
                )
        if gold:
            _warn(warnings, ACROSS, len(gold))

    def _candidates(self, document: Document, members: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Ordered pairs of a sentence's mentions whose types may be joined; one order, the text's, for equal types."""
        in_text_order = sorted(members, key=lambda m: (document.mentions[m].start, document.mentions[m].end, m))
        for first, second in combinations(in_text_order, 2):
            if _types(document, (first, second)) in self.pairs:
                yield first, second
            if _types(document, (second, first)) in self.pairs and not _same_type(document, first, second):
                yield second, first

    def _gold(self, document: Document, warnings: dict[str, int]) -> dict[tuple[int, int], str]:
        gold: dict[tuple[int, int], str] = {}
        for relation in document.relations:
            if relation.type not in self._ids:
                raise DataError(
                    f"relation type '{relation.type}' is not in the label set ({', '.join(self._labels[1:])}); "
                    "name it in task.labels, or take it out of the corpus"
                )
            pairs = list(_mention_pairs(document, relation))
            if not pairs:
                _warn(warnings, ACROSS)
            for pair in pairs:
                head, tail = (document.mentions[m] for m in pair)
                if _same_type(document, *pair) and (tail.start, tail.end) < (head.start, head.end):
                    pair = (
                        pair[1],
                        pair[0],
                    )  # as _candidates orders them: the order must not give a relation away
                if gold.setdefault(pair, relation.type) != relation.type:
                    _warn(warnings, "second relations of a pair, which has one class")
        return gold

    def without_answers(self, document: Document) -> Document:
        return replace(document, relations=())

    def without_label(self, example: PairExample) -> PairExample:
        return replace(example, label=NO_LABEL)

    def class_of(self, example: PairExample) -> int:
        return NO_CLASS if example.label == NO_LABEL else self._ids[example.label]

    def pair_types(self) -> frozenset[tuple[str, str]]:
        return self.pairs

    # From examples to numbers

    def text(self, example: PairExample) -> str:
        return "".join(segment for segment, _ in self._segments(example))

    def question(self, example: PairExample) -> dict[str, Any]:
        return {name: getattr(example, name) for name in ("text", "head", "tail", "types", "blinded")}

    def from_question(self, question: Mapping[str, Any]) -> PairExample:
        try:
            head, tail, (first, second) = Span(*question["head"]), Span(*question["tail"]), question["types"]
            text, blinded = str(question["text"]), bool(question["blinded"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                "an example of the public set is not one of sentence_re; has the server another task?"
            ) from error
        return PairExample(0, 0, NO_LABEL, text, head, tail, (str(first), str(second)), (0, 1), blinded)

    def label_counts(self, features: PairFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(features.labels[rows], minlength=len(self._labels)).astype(np.int64)

    def features(self, examples: Sequence[PairExample], encoder: Encoder) -> PairFeatures:
        segments = [self._segments(example) for example in examples]
        distinct = sorted({text for parts in segments for text, _ in parts})
        pieces = dict(zip(distinct, encoder.pieces(distinct), strict=True))
        window = min(self.options.max_length, encoder.window)
        tokenizer = encoder.tokenizer
        marker = dict(zip(MARKERS, tokenizer.convert_tokens_to_ids(list(MARKERS)), strict=True))
        rows = [
            mark_pair(
                [(pieces[text], role) for text, role in parts],
                window,
                tokenizer.cls_token_id,
                tokenizer.sep_token_id,
                marker,
            )
            for parts in segments
        ]
        return PairFeatures.of(rows, list(map(self.class_of, examples)), tokenizer.pad_token_id)

    def fitting(
        self, examples: Sequence[PairExample], encoder: Encoder
    ) -> tuple[Sequence[PairExample], Mapping[str, int]]:
        """Without pairs whose mentions alone are longer than the window."""
        return fitting_pairs(examples, self._segments, encoder, min(self.options.max_length, encoder.window) - AROUND)

    def _segments(self, example: PairExample) -> list[tuple[str, int]]:
        """Left context, first mention, middle, second mention, right context; role 1 and 2 are e1 and e2, 0 context."""
        (first, first_role), (second, second_role) = sorted([(example.head, 1), (example.tail, 2)])
        text = example.text
        return [
            (text[: first.start].rstrip(), 0),
            (self._name(example, first, first_role), first_role),
            (text[first.end : second.start].rstrip(), 0),
            (self._name(example, second, second_role), second_role),
            (text[second.end :].rstrip(), 0),
        ]

    def _name(self, example: PairExample, span: Span, role: int) -> str:
        if self.options.blind and not example.blinded:
            return f" @{example.types[role - 1]}$"
        return " " + example.text[span.start : span.end]

    # The network and its score

    def model(self, encoder: Encoder) -> nn.Module:
        return HEADS[self.options.head](encoder, len(self._labels), self.options.dropout)

    def read(self, model: Any, batch: PairRows) -> Reading:
        h = model.represent(batch)
        return Reading(model.classify(h), h)

    def grade(self, reading: Reading, batch: PairRows) -> Tensor:
        criterion = ranking_loss if self.options.head == "ranking_cnn" else F.cross_entropy
        return criterion(reading.logits, batch.labels)

    def outputs(self, model: nn.Module, batch: PairRows) -> Tensor:
        logits: Tensor = model(batch)
        return logits

    def classes(self) -> int:
        return len(self._labels)

    def questions(self, features: PairFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.ones_like(rows)

    def respond(self, model: nn.Module, batch: PairRows) -> Response:
        logits: Tensor = model(batch)
        labelled = (batch.labels != NO_CLASS).sum().clamp(min=1)
        entropy = F.cross_entropy(logits, batch.labels, ignore_index=NO_CLASS, reduction="sum")
        return Response(logits, entropy / labelled)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=1)

    def counts(self, outputs: NDArray[np.float32], features: PairFeatures, rows: NDArray[np.int64]) -> Counts:
        return relation_counts(features.labels[rows], outputs.argmax(axis=1), self._labels)

    def score(self, counts: Counts) -> dict[str, Any]:
        return {**relation_score(counts, self._labels), "f1_macro": macro_f1(counts, self._labels)}

    def annotate(
        self,
        document: Document,
        examples: Sequence[PairExample],
        probabilities: NDArray[np.float32],
        threshold: float,
    ) -> Document:
        document = owned(document)
        owner = {m: entity.id for entity in document.entities for m in entity.mentions}
        relations = []
        for example, row in zip(examples, probabilities, strict=True):
            best = int(row.argmax())
            if best and row[best] >= threshold:
                head, tail = example.mentions
                score = {"score": f"{row[best]:.4f}"}
                relations.append(Relation(self._labels[best], owner[head], owner[tail], (head, tail), score))
        return replace(document, relations=tuple(relations))


class Marked(NamedTuple):
    """A sentence as word pieces, and where the pieces of e1 and e2 lie."""

    ids: list[int]
    spans: tuple[int, int, int, int]


P = TypeVar("P", bound=PairExample)
Segments = Sequence[tuple[str, int]]


def fitting_pairs(
    examples: Sequence[P], segments: Callable[[P], Segments], encoder: Encoder, room: int
) -> tuple[list[P], dict[str, int]]:
    """Those whose two mentions have so many word pieces at most, and how many have not."""
    named = [[text for text, role in segments(example) if role] for example in examples]
    distinct = sorted({text for texts in named for text in texts})
    lengths = {text: len(ids) for text, ids in zip(distinct, encoder.pieces(distinct), strict=True)}
    fit = [e for e, texts in zip(examples, named, strict=True) if sum(lengths[text] for text in texts) <= room]
    return fit, {TOO_LONG: len(examples) - len(fit)} if len(fit) < len(examples) else {}


def mark_pair(
    segments: Sequence[tuple[list[int], int]], window: int, cls: int, sep: int, marker: Mapping[str, int]
) -> Marked:
    """Set the markers; a sentence longer than the window gives up context, farthest first, never a mention."""
    (left, _), (first, role), (middle, _), (second, _), (right, _) = segments
    room = window - len(first) - len(second) - AROUND
    if room < 0:
        raise DataError(
            f"two mentions of {len(first)} and {len(second)} word pieces don't fit the window of {window}; "
            "raise task.max_length, take an encoder that reads more, or set task.blind"
        )
    if len(middle) > room:  # keep what stands next to each mention
        middle = middle[: (room + 1) // 2] + middle[len(middle) - room // 2 :]
    room -= len(middle)
    before = min(len(left), max(room // 2, room - len(right)))  # what one side does not need, the other gets
    left, right = left[len(left) - before :], right[: room - before]
    opens, closes = ("<e1>", "<e2>"), ("</e1>", "</e2>")
    ids, spans = [cls, *left], [0, 0, 0, 0]
    for name, which, after in ((first, role, middle), (second, 3 - role, right)):
        ids.append(marker[opens[which - 1]])
        spans[2 * which - 2 : 2 * which] = len(ids), len(ids) + len(name)
        ids += [*name, marker[closes[which - 1]], *after]
    return Marked([*ids, sep], (spans[0], spans[1], spans[2], spans[3]))


@dataclass(frozen=True)
class PairRows(Batch):
    input_ids: Tensor
    attention_mask: Tensor
    spans: Tensor
    labels: Tensor


@dataclass(frozen=True)
class PairFeatures:
    """Every example's word pieces end to end: memory is what the text needs, and a batch is a gather."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    spans: NDArray[np.int64]
    labels: NDArray[np.int64]
    pad: int

    @classmethod
    def of(cls, rows: Sequence[Marked], labels: Sequence[int], pad: int) -> Self:
        lengths = np.array([len(row.ids) for row in rows], dtype=np.int64)
        return cls(
            ids=np.array([piece for row in rows for piece in row.ids], dtype=np.int32),
            starts=starts_of(lengths),
            spans=np.array([row.spans for row in rows], dtype=np.int64).reshape(-1, 4),
            labels=np.array(labels, dtype=np.int64),
            pad=pad,
        )

    @classmethod
    def joined(cls, parts: Sequence[PairFeatures]) -> Self:
        """Of several, one after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            starts=starts_of(lengths),
            spans=np.concatenate([part.spans for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            pad=parts[0].pad,
        )

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        return np.ones(len(self.labels), dtype=np.int64)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> PairRows:
        index = np.asarray(rows, dtype=np.int64)
        starts, lengths = self.starts[index], self.starts[index + 1] - self.starts[index]
        position = np.arange(lengths.max())
        mask = position < lengths[:, None]
        ids = np.where(mask, self.ids[np.minimum(starts[:, None] + position, len(self.ids) - 1)], self.pad)
        return PairRows(
            index=torch.from_numpy(index),
            input_ids=torch.from_numpy(ids.astype(np.int64)),
            attention_mask=torch.from_numpy(mask.astype(np.int64)),
            spans=torch.from_numpy(self.spans[index]),
            labels=torch.from_numpy(self.labels[index]),
        )


def _mention_pairs(document: Document, relation: Relation) -> Iterator[tuple[int, int]]:
    """The two mentions that a relation names, or every pair of its entities' mentions within a sentence."""
    if relation.mentions is not None:
        yield relation.mentions
        return
    for head in document.entity(relation.head).mentions:
        for tail in document.entity(relation.tail).mentions:
            sentence = document.sentence_of(document.mentions[head])
            if head != tail and sentence is not None and sentence == document.sentence_of(document.mentions[tail]):
                yield head, tail


def _types(document: Document, pair: tuple[int, int]) -> tuple[str, str]:
    return document.mentions[pair[0]].type, document.mentions[pair[1]].type


def _same_type(document: Document, first: int, second: int) -> bool:
    return document.mentions[first].type == document.mentions[second].type


def _warn(warnings: dict[str, int], what: str, count: int = 1) -> None:
    warnings[what] = warnings.get(what, 0) + count
