"""What formats for exchange between tools (BioC, PubAnnotation) share: mentions that name their entities, and relations
between mentions or entities.

A format has a place for types, spans and names of things; entities follow from the concepts of mentions. Where they do
not, each mention lists the ids of its entities, as JSON; and where our rules would find other sentences, the document
lists their spans. So a document that is written comes back whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span, entities_by_concept, entities_by_ids
from grandrounds.data.formats.json_values import items, string
from grandrounds.data.formats.json_values import load as load_json
from grandrounds.data.formats.source import Warnings, mismatch, number
from grandrounds.data.sentences import split_sentences
from grandrounds.errors import DataError

ENTITIES, SENTENCES = "entities", "sentences"
"""The keys of these lists."""
UNPLACED = "relations with an end that is no mention or entity of the document, left out"
CHANGED = "documents whose entities will be of another type or in another order when they are read again"
KEY_TAKEN = "attributes whose name is a key of the format, left out"


@dataclass(frozen=True)
class Stated:
    """A relation as a file states it."""

    type: str
    mentions: tuple[str, str] | None = None
    """Ids of mentions."""
    entities: tuple[str, str] | None = None
    """Ids of entities; without them those of the mentions."""
    attributes: Mapping[str, str] = field(default_factory=dict)


def assemble(
    id: str,
    text: str,
    mentions: Sequence[Mention],
    owners: Mapping[str, Sequence[str]],
    stated: Iterable[Stated],
    sentences: Sequence[Span] | None,
    attributes: Mapping[str, str],
    warnings: Warnings,
) -> Document:
    """The document; `owners` are the entities of mentions by their ids, where the file lists them. A relation that
    can't be placed is counted."""
    if owners:
        entities = entities_by_ids(mentions, [owners.get(mention.id, ()) for mention in mentions])
    else:
        entities = entities_by_concept(mentions)
    known = {entity.id for entity in entities}
    first = first_owners(entities)
    places = {mention.id: index for index, mention in enumerate(mentions)}
    relations = []
    for one in stated:
        pair = None if one.mentions is None else (places.get(one.mentions[0], -1), places.get(one.mentions[1], -1))
        ends = one.entities or (None if pair is None else (first.get(pair[0], ""), first.get(pair[1], "")))
        if ends is None or not known.issuperset(ends) or (pair is not None and -1 in pair):
            warnings[UNPLACED] += 1
        else:
            relations.append(Relation(one.type, *ends, pair, one.attributes))
    if sentences is None:
        sentences = _sentences(text, mentions)
    return Document(id, text, tuple(sentences), tuple(mentions), entities, tuple(relations), attributes)


def listed_owners(document: Document, warnings: Warnings) -> list[str] | None:
    """The list of entities of each mention; None where they follow from the concepts."""
    if document.entities in ((), entities_by_concept(document.mentions)):
        return None
    owners: list[list[str]] = [[] for _ in document.mentions]
    for entity in document.entities:
        for index in entity.mentions:
            owners[index].append(entity.id)
    if entities_by_ids(document.mentions, owners) != document.entities:
        warnings[CHANGED] += 1
    return [json.dumps(ids, ensure_ascii=False) for ids in owners]


def read_owners(written: str) -> Sequence[str]:
    return items(load_json(written, "the entities of a mention are a JSON list"), ENTITIES, string)


def first_owners(entities: Iterable[Entity]) -> dict[int, str]:
    """The first entity of each mention, which is the end of a relation that names the mention alone."""
    first: dict[int, str] = {}
    for entity in entities:
        for index in entity.mentions:
            first.setdefault(index, entity.id)
    return first


def listed_sentences(document: Document) -> str | None:
    """Their spans; None where our rules find the same."""
    if document.sentences == _sentences(document.text, document.mentions):
        return None
    return " ".join(f"{start}-{end}" for start, end in document.sentences)


def read_sentences(written: str) -> list[Span]:
    spans = []
    for pair in written.split():
        found = [number(digits) for digits in pair.split("-")]
        if len(found) != 2 or found[0] is None or found[1] is None:
            raise DataError("the list of sentences is not of spans like 0-26; remove it, and they are found anew")
        spans.append(Span(found[0], found[1]))
    return spans


def _sentences(text: str, mentions: Iterable[Mention]) -> tuple[Span, ...]:
    return split_sentences(text, [Span(mention.start, mention.end) for mention in mentions], breaks="line")


def spanned(
    text: str,
    pieces: Sequence[Span],
    stated: str | None,
    id: str,
    type: str,
    concept: str | None,
    attributes: Mapping[str, str],
) -> Mention:
    """A mention of one or several pieces, whose text must be that of the file, white space aside."""
    for start, end in pieces:
        if not 0 <= start < end <= len(text):
            raise DataError(f"mention {start}-{end} is empty, inverted or outside the text (0-{len(text)})")
    start, end = pieces[0].start, max(piece.end for piece in pieces)
    there = " ".join(text[s:e] for s, e in pieces)
    if stated is not None and _flat(stated) not in (_flat(there), _flat(text[start:end])):
        raise mismatch(start, end, stated, there)
    fragments = tuple(pieces) if len(pieces) > 1 else ()
    return Mention(start, end, type, id, concept, fragments, attributes)


def surface(document: Document, mention: Mention) -> str:
    """The text of a mention, as `spanned` wants it."""
    pieces = mention.fragments or (Span(mention.start, mention.end),)
    return " ".join(document.text[start:end] for start, end in pieces)


def _flat(text: str) -> str:
    return re.sub(r"\s", " ", text)


def free(attributes: Mapping[str, str], taken: Iterable[str], warnings: Warnings) -> dict[str, str]:
    """The attributes whose names the format does not use itself."""
    kept = {name: value for name, value in attributes.items() if name not in set(taken)}
    if len(kept) < len(attributes):
        warnings[KEY_TAKEN] += len(attributes) - len(kept)
    return kept
