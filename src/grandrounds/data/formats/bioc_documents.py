"""BioC (Comeau et al., Database 2013) as plain values, the same for its XML and its JSON, to documents and back.

    document    id, infons (attributes), passages, annotations, relations
    passage     offset, text or sentences (offset, text), annotations, relations; between two passages are line ends
    annotation  id, infons (type, identifier, others: attributes), text, locations (offset, length)
    relation    infons (type, others: attributes), nodes (refid of an annotation, role); or the infons entity1 and
                entity2 (BioRED), or two infons named after types of entities (CDR's Chemical and Disease): concepts

Offsets are characters of the document. Annotations may stand at any level. We write a passage a line of the text, if
mentions keep their order so. What a collection says of itself, infons of passages and sentences, and ids of relations
are not kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.formats.exchange import (
    ENTITIES,
    SENTENCES,
    Stated,
    assemble,
    first_owners,
    free,
    listed_owners,
    listed_sentences,
    read_owners,
    read_sentences,
    spanned,
    surface,
)
from grandrounds.data.formats.json_values import integer, items, record, string
from grandrounds.data.formats.source import Warnings, placed
from grandrounds.data.sentences import join_sentences
from grandrounds.errors import DataError

TYPE, CONCEPT, HEAD, TAIL = "type", "identifier", "entity1", "entity2"
NO_TYPE = "annotations without a type, read as 'entity'"
NO_LOCATION = "annotations without a location, left out"
NOT_TWO = "relations of other than two ends, left out"
OF_PASSAGES = "infons of passages and sentences, left out"
NESTED = "infons that are lists or objects, left out"
_CONCEPTS = (CONCEPT, "Identifier", "MESH")
_TYPES = (TYPE, "relation")
_WIDEST_GAP = 10_000  # a torn offset must not make gigabytes of line ends


def from_bioc(value: object, where: str, path: Path, line: int | None, warnings: Warnings) -> Document:
    """The document of plain values; `where`, `path` and `line` are for messages."""
    found = record(value, where, "id", "passages")
    page = _Page(path, line, warnings)
    page.lay(items(found["passages"], f"{where}.passages", _passage))
    levels = [(where, found), *page.levels(where)]
    for name, level in levels:
        page.each(level.get("annotations"), f"{name}.annotations", page.annotation)
    for name, level in levels:
        page.each(level.get("relations"), f"{name}.relations", page.relation)
    attributes = infons(found, where, warnings)
    sentences = attributes.pop(SENTENCES, None)
    return assemble(
        _id(found["id"], f"{where}.id"),
        page.text,
        page.mentions,
        page.owners,
        page.stated,
        page.sentences() if sentences is None else read_sentences(sentences),
        attributes,
        warnings,
    )


def _passage(value: object, where: str) -> dict[str, object]:
    return record(value, where, "offset")


@dataclass
class _Page:
    """What has been read of one document."""

    path: Path
    line: int | None
    warnings: Warnings
    text: str = ""
    passages: Sequence[dict[str, object]] = ()
    given: list[Span | None] = field(default_factory=list)
    """The sentences; None for a passage that does not say where they are."""
    mentions: list[Mention] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    owners: dict[str, Sequence[str]] = field(default_factory=dict)
    stated: list[Stated] = field(default_factory=list)

    def lay(self, passages: Sequence[dict[str, object]]) -> None:
        self.passages, parts, length = passages, [], 0
        start, whole = 0, ""  # of the passage that has its text itself, and not in its sentences
        for where, chunk in self.levels(""):
            offset, text = integer(chunk.get("offset"), f"{where}.offset"), _text(chunk, f"{where}.text")
            is_sentence = where.partition("].")[2] != ""
            if not is_sentence:
                start, whole = offset, text
            if is_sentence and whole:
                if offset < start or whole[offset - start : offset - start + len(text)] != text:
                    raise DataError(f"{where} is not in the text of its passage; check the offsets")
                self.given.append(Span(offset, offset + len(text)))
                continue
            if chunk.get("sentences") and not text:
                continue  # its sentences have the text
            if not 0 <= offset - length <= _WIDEST_GAP:
                raise DataError(
                    f"{where}.offset is {offset}; {length} characters are before it, and passages follow on"
                )
            parts += ["\n" * (offset - length), text]
            length = offset + len(text)
            if is_sentence:
                self.given.append(Span(offset, length))
            elif text.strip() and not chunk.get("sentences"):
                self.given.append(None)
        self.text = "".join(parts)

    def levels(self, where: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Passages and their sentences."""
        for i, passage in enumerate(self.passages):
            name = f"{where}.passages[{i}]".removeprefix(".")
            yield name, passage
            for j, sentence in enumerate(items(passage.get("sentences") or [], f"{name}.sentences", _passage)):
                yield f"{name}.sentences[{j}]", sentence

    def sentences(self) -> Sequence[Span] | None:
        """As the file has them, if it has them for all passages."""
        given = [span for span in self.given if span is not None and span.start < span.end]
        if not given or None in self.given:
            return None
        return join_sentences(given, [Span(mention.start, mention.end) for mention in self.mentions])

    def each(self, values: object, where: str, take: Callable[[object, str], None]) -> None:
        for part, name in items(values or [], where, lambda part, name: (part, name)):
            with placed(self.path, self.line, self.warnings):
                take(part, name)

    def annotation(self, value: object, where: str) -> None:
        found = record(value, where, "id")
        id, named = _id(found["id"], f"{where}.id"), infons(found, where, self.warnings)
        if id in self.ids:
            raise DataError(f"{where} has the id of an earlier one; ids must be unique in a document")
        pieces = items(found.get("locations") or [], f"{where}.locations", _location)
        if not pieces:
            self.warnings[NO_LOCATION] += 1
            return
        stated = None if found.get("text") is None else string(found["text"], f"{where}.text")
        if TYPE not in named:
            self.warnings[NO_TYPE] += 1
        type, owners = named.pop(TYPE, "entity"), named.pop(ENTITIES, None)
        concept = next((named.pop(key) for key in _CONCEPTS if key in named), None)
        try:
            self.mentions.append(spanned(self.text, sorted(pieces), stated, id, type, concept, named))
            if owners is not None:
                self.owners[id] = read_owners(owners)
        except DataError as error:
            raise DataError(f"{where}: {error.problem}") from None
        self.ids.add(id)

    def relation(self, value: object, where: str) -> None:
        found = record(value, where)
        named = infons(found, where, self.warnings)
        type = next((named.pop(key) for key in _TYPES if key in named), None)
        nodes = items(found.get("nodes") or [], f"{where}.nodes", _node)
        entities = (named.pop(HEAD), named.pop(TAIL)) if HEAD in named and TAIL in named else None
        if not nodes and entities is None and len(of_types := named.keys() & {m.type for m in self.mentions}) == 2:
            one, other = (named.pop(key) for key in list(named) if key in of_types)
            entities = one, other
        if type is None or (len(nodes) != 2 and (nodes or entities is None)):
            self.warnings[NOT_TWO] += 1
            return
        if "novel" in named and "novelty" not in named:
            named["novelty"] = named.pop("novel")
        self.stated.append(Stated(type, (nodes[0], nodes[1]) if nodes else None, entities, named))


def infons(value: Mapping[str, object], where: str, warnings: Warnings) -> dict[str, str]:
    """The further values of a thing: strings; numbers and truth values as strings; what is null is not there."""
    given = value.get("infons") or {}
    if not isinstance(given, dict):
        raise DataError(f"{where}.infons must be an object")
    named = {}
    for key, item in given.items():
        if isinstance(item, list | dict):
            warnings[NESTED] += 1
        elif item is not None:
            named[string(key, f"{where}.infons key")] = string(
                item if isinstance(item, str) else str(item).lower(), f"{where}.infons value"
            )
    return named


def _text(value: Mapping[str, object], where: str) -> str:
    return "" if value.get("text") is None else string(value["text"], where)


def _id(value: object, where: str) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else string(value, where)


def _location(value: object, where: str) -> Span:
    found = record(value, where, "offset", "length")
    start = integer(found["offset"], f"{where}.offset")
    return Span(start, start + integer(found["length"], f"{where}.length"))


def _node(value: object, where: str) -> str:
    return _id(record(value, where, "refid")["refid"], f"{where}.refid")


def to_bioc(document: Document, warnings: Warnings) -> dict[str, Any]:
    """The document as plain values, in the shape of BioC's JSON."""
    attributes = free(document.attributes, (SENTENCES,), warnings)
    if (sentences := listed_sentences(document)) is not None:
        attributes[SENTENCES] = sentences
    owners = listed_owners(document, warnings)
    passages, inside = _passages(document)
    for index, mention in enumerate(document.mentions):
        named = {TYPE: mention.type}
        if mention.concept is not None:
            named[CONCEPT] = mention.concept
        if owners is not None:
            named[ENTITIES] = owners[index]
        pieces = mention.fragments or (Span(mention.start, mention.end),)
        passages[inside[index]]["annotations"].append(
            {
                "id": mention.id,
                "infons": {**named, **free(mention.attributes, (TYPE, *_CONCEPTS, ENTITIES), warnings)},
                "text": surface(document, mention),
                "locations": [{"offset": start, "length": end - start} for start, end in pieces],
            }
        )
    first = first_owners(document.entities)
    return {
        "id": document.id,
        "infons": attributes,
        "passages": passages,
        "annotations": [],
        "relations": [_relation(document, i, first, warnings) for i in range(len(document.relations))],
    }


def _passages(document: Document) -> tuple[list[dict[str, Any]], list[int]]:
    """A passage a line and the passage of each mention; the text as one where mentions would come in another order."""
    lines = document.text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)][:-1]
    filled = [i for i, line in enumerate(lines) if line or i == len(lines) - 1]
    lines, starts = [lines[i] for i in filled], [starts[i] for i in filled]
    inside = [bisect_right(starts, mention.start) - 1 for mention in document.mentions]
    torn = any(i < 0 or m.end > starts[i] + len(lines[i]) for i, m in zip(inside, document.mentions, strict=True))
    if torn or inside != sorted(inside):
        lines, starts, inside = [document.text], [0], [0] * len(inside)
    empty: dict[str, Any] = {"infons": {}, "sentences": [], "relations": []}
    texts = zip(starts, lines, strict=True)
    return [{"offset": start, "text": line, "annotations": [], **empty} for start, line in texts], inside


def _relation(document: Document, index: int, first: Mapping[int, str], warnings: Warnings) -> dict[str, Any]:
    relation = document.relations[index]
    named, nodes = {TYPE: relation.type}, []
    if relation.mentions is not None:
        ids = [document.mentions[m].id for m in relation.mentions]
        nodes = [{"refid": id, "role": role} for id, role in zip(ids, ("Arg1", "Arg2"), strict=True)]
    if relation.mentions is None or [first.get(m) for m in relation.mentions] != [relation.head, relation.tail]:
        named |= {HEAD: relation.head, TAIL: relation.tail}
    named |= free(relation.attributes, (*_TYPES, HEAD, TAIL, "novel"), warnings)
    if "novelty" in named:
        named["novel"] = named.pop("novelty")
    return {"id": f"R{index + 1}", "infons": named, "nodes": nodes}
