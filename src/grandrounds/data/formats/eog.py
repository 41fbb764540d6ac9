"""The EOG format (Christopoulou et al., EMNLP 2019), in which CDR, GDA and CHR are passed on.

A document a line, tab-separated: its id, its sentences joined by '|' (tokens by spaces), then 17 fields a pair:

    1      label: 1:CID:2 (argument 1 CID argument 2), 1:NR:2 (not related), not_include (no example: CDR's negatives
           whose disease is a hypernym of a related one)
    2-3    L2R or R2L: field 4 stands left or right of field 5; CROSS or NON-CROSS: no sentence, or one, holds both
    4-5    one mention of each argument, in either order: 58-61
    6-11   argument 1: concept, its mentions' names joined by '|', type; then, joined by ':', their first tokens and the
           tokens after their last, both counted through the whole document, and their sentences
    12-17  argument 2, likewise

Fields 2 to 5 follow from the rest and are not read. A mention of two concepts is one, and belongs to both entities, as
in PubTator; one that an entity lists twice stays so in the entity. Pairs are kept as `grandrounds.data.pairs` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Relation, Span
from grandrounds.data.formats.source import Format, Warnings, lines, load, mismatch, number, placed
from grandrounds.data.formats.token_text import SharedMentions, TokenText
from grandrounds.data.pairs import NOT_INCLUDE, PAIRS, Pair, list_pairs
from grandrounds.errors import DataError

_WIDTH = 17
_LABEL = re.compile(r"(?:1:([^:]+):2|2:([^:]+):1)")
_UNRELATED = "NR"


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(load(path), path, warnings)


def parse(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    for i, line in enumerate(lines(content), start=1):
        if line.strip():
            with placed(path, i, warnings):
                yield _document(line.split("\t"), warnings)


def _document(columns: Sequence[str], warnings: Warnings) -> Document:
    if len(columns) < 2 or (len(columns) - 2) % _WIDTH:
        raise DataError(f"{len(columns)} tab-separated columns; expected id, sentences and {_WIDTH} for every pair")
    sentences = [sentence.split(" ") for sentence in columns[1].split("|")]
    if not all(any(sentence) for sentence in sentences):
        raise DataError("an empty sentence; sentences are joined by '|', of which one is too many")
    line = _Line(TokenText.of(sentences))
    for i, start in enumerate(range(2, len(columns), _WIDTH), start=1):
        try:
            line.add(columns[start : start + _WIDTH], warnings)
        except DataError as error:
            raise DataError(f"pair {i}: {error.problem}") from None
    return line.document(columns[0])


@dataclass
class _Line:
    """The pairs of one document, so far."""

    laid: TokenText
    shared: SharedMentions = field(default_factory=SharedMentions)
    described: dict[str, Sequence[str]] = field(default_factory=dict)
    entities: list[Entity] = field(default_factory=list)
    labels: dict[Pair, list[str]] = field(default_factory=dict)

    def add(self, fields: Sequence[str], warnings: Warnings) -> None:
        for argument in (fields[5:11], fields[11:17]):
            known = self.described.setdefault(argument[0], argument)
            if known is argument:
                self.entities.append(self._entity(argument, warnings))
            elif known != argument:
                raise DataError("an argument that an earlier pair describes otherwise; a concept has one description")
        pair, label = (fields[5], fields[11]), fields[0]
        if label != NOT_INCLUDE:
            found = _LABEL.fullmatch(label)
            if not found:
                raise DataError("the label is not like 1:CID:2 or 1:NR:2, nor not_include")
            pair, label = (pair, found.group(1)) if found.group(1) else (pair[::-1], found.group(2))
        labels = self.labels.setdefault(pair, [])
        if label in labels:
            warnings["pairs given twice with the same label, kept once"] += 1
        elif labels and not {label, *labels}.isdisjoint({NOT_INCLUDE, _UNRELATED}):
            raise DataError("the pair has another label before; it is related, NR or not_include")
        else:
            labels.append(label)

    def _entity(self, argument: Sequence[str], warnings: Warnings) -> Entity:
        concept, joined, type, *positions = argument
        names = joined.split("|")
        starts, ends, sentences = ([number(digits) for digits in column.split(":")] for column in positions)
        if not len(names) == len(starts) == len(ends) == len(sentences):
            counts = f"{len(names)} names, {len(starts)} starts, {len(ends)} ends and {len(sentences)} sentences"
            raise DataError(f"an argument with {counts}; each mention has one of each")
        members = []
        for name, start, end, sentence in zip(names, starts, ends, sentences, strict=True):
            if start is None or end is None or sentence is None:
                raise DataError("a token or sentence of a mention is not a number; they are joined by ':'")
            span = self._span(start, end, sentence)
            there = self.laid.text[span.start : span.end]
            if name != there:
                if name not in there:
                    raise mismatch(span.start, span.end, name, there)
                warnings["mentions named by a part of their tokens, of which they cover the whole"] += 1
            members.append(self.shared.place(span, type, concept))
        return Entity(concept, type, tuple(members))

    def _span(self, start: int, end: int, sentence: int) -> Span:
        if sentence >= len(self.laid.tokens):
            raise DataError(f"a mention in sentence {sentence}; the document has 0-{len(self.laid.tokens) - 1}")
        before = sum(len(tokens) for tokens in self.laid.tokens[:sentence])
        tokens = self.laid.tokens[sentence]
        if not before <= start < end <= before + len(tokens):
            place = f"sentence {sentence} (tokens {before}-{before + len(tokens)})"
            raise DataError(f"the mention of tokens {start}-{end} is empty or not within {place}")
        return Span(tokens[start - before].start, tokens[end - before - 1].end)

    def document(self, id: str) -> Document:
        candidates = [pair for pair, labels in self.labels.items() if labels != [NOT_INCLUDE]]
        left_out = [pair for pair, labels in self.labels.items() if labels == [NOT_INCLUDE]]
        stated = chain.from_iterable(((label, *pair) for label in self.labels[pair]) for pair in candidates)
        relations = tuple(Relation(*one) for one in stated if one[0] != _UNRELATED)
        attributes = {PAIRS: list_pairs(candidates)}
        if left_out:
            attributes[NOT_INCLUDE] = list_pairs(left_out)
        mentions, entities = self.shared.mentions(), tuple(self.entities)
        return Document(id, self.laid.text, self.laid.sentences, mentions, entities, relations, attributes)


FORMAT = Format("eog", "a document a line: id, sentences, 17 fields a pair (CDR, GDA, CHR)", read, suffixes=(".data",))
