"""DocRED's JSON (Yao et al., ACL 2019), also of Re-DocRED: one list of documents, each an object of

    title       the document's id
    sents       sentences, each a list of tokens; the text is all of them joined by spaces
    vertexSet   entities, each a list of mentions: {"sent_id", "pos": [first token, last + 1], "type", "name"}
    labels      relations: {"r": type, "h", "t": numbers of entities, "evidence": numbers of sentences}; a blind
                test has none

An entity's id is its number in vertexSet, its type that of its first mention. A mention listed twice stays so in its
entity, as other readers have it. A relation's evidence is an attribute of it: "0 2". Other keys (Re-DocRED's
`global_pos`, `index`) follow from these and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Relation, Span
from grandrounds.data.formats.json_values import integer, items, numbered, pair, record, string
from grandrounds.data.formats.source import Format, Warnings, load, placed
from grandrounds.data.formats.token_text import SharedMentions, TokenText
from grandrounds.errors import DataError

UNPLACED = "relations of an entity that vertexSet does not have, left out"


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(load(path), path, warnings)


def parse(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    with placed(path, None, warnings):
        found = numbered(content.removeprefix("\ufeff"), "the file is one list of documents")
        for i, (line, value) in enumerate(found):
            with placed(path, line, warnings):
                yield _document(value, f"documents[{i}]", warnings)


@dataclass(frozen=True)
class _Listed:
    """A mention as the file has it."""

    sentence: int
    tokens: tuple[int, int]
    type: str
    name: str


def _document(value: object, where: str, warnings: Warnings) -> Document:
    found = record(value, where, "title", "sents", "vertexSet")
    sentences = items(found["sents"], f"{where}.sents", _sentence)
    laid = TokenText.of(sentences)
    shared, entities = SharedMentions(), []
    for i, listed in enumerate(items(found["vertexSet"], f"{where}.vertexSet", _entity)):
        members = []
        for j, mention in enumerate(listed):
            span = _span(mention, laid, f"{where}.vertexSet[{i}][{j}]")
            if _letters(mention.name) != _letters(laid.text[span.start : span.end]):
                warnings["mentions whose name is not that of their tokens, which count"] += 1
            members.append(shared.place(span, mention.type))
        if len({mention.type for mention in listed}) > 1:
            warnings["entities whose mentions differ in type, which have the first one's"] += 1
        entities.append(Entity(str(i), listed[0].type, tuple(members)))
    labels = items(found.get("labels", []), f"{where}.labels", _relation)
    _check_evidence(labels, len(sentences), f"{where}.labels")
    relations: dict[tuple[str, str, str], Relation] = {}
    for relation in labels:
        if not all(0 <= int(end) < len(entities) for end in (relation.head, relation.tail)):
            warnings[UNPLACED] += 1
        elif (relation.type, relation.head, relation.tail) in relations:
            warnings["relations given twice, of which the first was kept"] += 1
        else:
            relations[relation.type, relation.head, relation.tail] = relation
    try:
        return Document(
            string(found["title"], f"{where}.title"),
            laid.text,
            laid.sentences,
            shared.mentions(),
            tuple(entities),
            tuple(relations.values()),
        )
    except DataError as error:
        raise DataError(f"{where}: {error.problem}") from None


def _sentence(value: object, where: str) -> tuple[str, ...]:
    tokens = items(value, where, string)
    if not any(tokens):
        raise DataError(f"{where} has no tokens; remove it, and count the sentences after it anew")
    return tokens


def _entity(value: object, where: str) -> tuple[_Listed, ...]:
    listed = items(value, where, _mention)
    if not listed:
        raise DataError(f"{where} has no mention; an entity needs one")
    return listed


def _mention(value: object, where: str) -> _Listed:
    found = record(value, where, "sent_id", "pos", "type", "name")
    return _Listed(
        integer(found["sent_id"], f"{where}.sent_id"),
        pair(found["pos"], f"{where}.pos"),
        string(found["type"], f"{where}.type"),
        string(found["name"], f"{where}.name"),
    )


def _span(mention: _Listed, laid: TokenText, where: str) -> Span:
    if not 0 <= mention.sentence < len(laid.tokens):
        raise DataError(f"{where}.sent_id is {mention.sentence}; the document has sentences 0-{len(laid.tokens) - 1}")
    tokens, (first, after) = laid.tokens[mention.sentence], mention.tokens
    if not 0 <= first < after <= len(tokens):
        raise DataError(f"{where}.pos is {first}-{after}, empty or outside its sentence's tokens (0-{len(tokens)})")
    return Span(tokens[first].start, tokens[after - 1].end)


def _relation(value: object, where: str) -> Relation:
    found = record(value, where, "r", "h", "t")
    head, tail = (integer(found[end], f"{where}.{end}") for end in "ht")
    evidence = " ".join(str(i) for i in items(found.get("evidence", []), f"{where}.evidence", integer))
    attributes = {"evidence": evidence} if evidence else {}
    return Relation(string(found["r"], f"{where}.r"), str(head), str(tail), attributes=attributes)


def _check_evidence(labels: Sequence[Relation], sentences: int, where: str) -> None:
    for i, relation in enumerate(labels):
        if not all(0 <= int(number) < sentences for number in relation.attributes.get("evidence", "").split()):
            raise DataError(f"{where}[{i}].evidence names a sentence that does not exist; there are {sentences}")


def _letters(name: str) -> str:
    """Names come with their own white space and case, which no offset hangs on."""
    return re.sub(r"\s", "", name).casefold()


FORMAT = Format(
    "docred", "DocRED's JSON: a list of documents with sents, vertexSet and labels", read, suffixes=(".json",)
)
