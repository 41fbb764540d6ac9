"""The one data model: a document with character offsets, of which every task is a view.

NER reads mentions, sentence-level relation extraction pairs of mentions in a sentence, document-level
relation extraction pairs of entities; every prediction points back to characters of the original text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from grandrounds.errors import DataError

ASSERTIONS = ("negated", "possible", "family", "historical", "conditional")
"""Attributes of a mention that is not simply present; the value is the characters START-END that say so."""
SCORES = ("score", "link_score")
"""Attributes that are numbers."""
_NUMBER = re.compile(r"[+-]?\d{1,20}(\.\d{0,20})?")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_RANGE = re.compile(r"\d{1,9}-\d{1,9}")


class Span(NamedTuple):
    """Characters start <= i < end of a document's text."""

    start: int
    end: int


@dataclass(frozen=True)
class Mention:
    """A stretch of text that names something of a type."""

    start: int
    end: int
    type: str
    id: str
    """Its name within the document: BRAT's T1."""
    concept: str | None = None
    """As the source writes it; several ids are joined by '|' (PubTator's composite mentions): see `concept_ids`."""
    fragments: tuple[Span, ...] = ()
    """The pieces of a discontinuous mention; start and end then enclose them all."""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entity:
    """What one or several mentions refer to."""

    id: str
    type: str
    mentions: tuple[int, ...]
    """Indices into the document's mentions."""


@dataclass(frozen=True)
class Relation:
    """A typed, directed relation between two entities, by their ids."""

    type: str
    head: str
    tail: str
    mentions: tuple[int, int] | None = None
    """The two mentions, as indices, where the source names them (BRAT, i2b2) and not only the entities."""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A text with its sentences, mentions, entities and relations; inconsistent ones can't be built."""

    id: str
    text: str
    sentences: tuple[Span, ...] = ()
    mentions: tuple[Mention, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What a partition may go by (hospital, patient, specialty), and what a format must remember to write."""

    def __post_init__(self) -> None:
        self._check_sentences()
        self._check_mentions()
        self._check_entities_and_relations()

    def _check_sentences(self) -> None:
        previous = 0
        for start, end in self.sentences:
            if not previous <= start < end <= len(self.text):
                raise DataError(
                    f"sentence {start}-{end} is empty, outside the text (0-{len(self.text)}) "
                    "or overlaps the one before; sentences must be in order"
                )
            previous = end

    # Messages name spans and positions, never ids or text: an id may be a patient's number or a diagnosis.

    def _check_mentions(self) -> None:
        seen: set[str] = set()
        for mention in self.mentions:
            name = f"mention {mention.start}-{mention.end}"
            if mention.id in seen:
                raise DataError(f"{name} has the id of an earlier one; mention ids must be unique in a document")
            seen.add(mention.id)
            if mention.start >= mention.end:
                raise DataError(f"{name} is empty or inverted; its end must come after its start")
            if mention.start < 0 or mention.end > len(self.text):
                raise DataError(f"{name} lies outside the text (0-{len(self.text)})")
            previous = mention.start
            for start, end in mention.fragments:
                if not previous <= start < end <= mention.end:
                    raise DataError(f"{name} has the inverted, overlapping or outlying fragment {start}-{end}")
                previous = end

    def _check_entities_and_relations(self) -> None:
        known = {entity.id for entity in self.entities}
        if len(known) < len(self.entities):
            raise DataError("two entities have the same id; join their mentions into one")
        for i, entity in enumerate(self.entities, start=1):
            if not entity.mentions or not all(0 <= m < len(self.mentions) for m in entity.mentions):
                raise DataError(f"entity number {i} has no mention, or one that does not exist")
        for i, relation in enumerate(self.relations, start=1):
            if relation.head not in known or relation.tail not in known:
                raise DataError(f"relation number {i} refers to an entity that does not exist")
            if relation.mentions and not all(0 <= m < len(self.mentions) for m in relation.mentions):
                raise DataError(f"relation number {i} refers to a mention that does not exist")

    def surface(self, span: Mention | Span) -> str:
        """The characters of a mention or a span."""
        return self.text[span.start : span.end]

    def sentence_of(self, span: Mention | Span) -> int | None:
        """The index of the sentence that contains the whole span, or None."""
        i = bisect_right(self._starts, span.start) - 1
        return i if i >= 0 and span.end <= self.sentences[i].end else None

    def entity(self, id: str) -> Entity:
        """The entity of that id; KeyError where there is none."""
        return self._by_id[id]

    def to_dict(self) -> dict[str, Any]:
        """For programs: mentions with their text, numeric scores and what triggered an assertion; relations with the
        text of both ends and their evidence sentences."""
        return {
            "id": self.id,
            "text": self.text,
            "sentences": [list(sentence) for sentence in self.sentences],
            "mentions": [self.mention_dict(mention) for mention in self.mentions],
            "entities": [
                {"id": e.id, "type": e.type, "mentions": [self.mentions[m].id for m in e.mentions]}
                for e in self.entities
            ],
            "relations": [self._relation_dict(relation) for relation in self.relations],
            **({"attributes": dict(self.attributes)} if self.attributes else {}),
        }

    def mention_dict(self, mention: Mention) -> dict[str, Any]:
        """A mention of this document for programs: with its text, numeric scores and what triggered an assertion."""
        return {
            **{name: self._value(name, value) for name, value in mention.attributes.items()},
            "id": mention.id,
            "start": mention.start,
            "end": mention.end,
            "text": self.surface(mention),
            "type": mention.type,
            **({"concept": mention.concept} if mention.concept is not None else {}),
            **({"fragments": [list(piece) for piece in mention.fragments]} if mention.fragments else {}),
        }

    def _relation_dict(self, relation: Relation) -> dict[str, Any]:
        first = (self.entity(end).mentions[0] for end in (relation.head, relation.tail))
        head, tail = (self.mentions[m] for m in relation.mentions or first)
        evidence = [self.sentences[i] for i in self.evidence(relation)]
        return {
            **{name: self._value(name, value) for name, value in relation.attributes.items()},
            "type": relation.type,
            "head": {"entity": relation.head, "mention": head.id, "text": self.surface(head)},
            "tail": {"entity": relation.tail, "mention": tail.id, "text": self.surface(tail)},
            "evidence": [{"start": span.start, "end": span.end, "text": self.surface(span)} for span in evidence],
        }

    def _value(self, name: str, value: str) -> Any:
        if name in SCORES and _NUMBER.fullmatch(value):
            return float(value)
        if name in ASSERTIONS and _RANGE.fullmatch(value):
            span = Span(*map(int, value.split("-")))
            return {"trigger": self.surface(span), "start": span.start, "end": span.end}
        return value

    def evidence(self, relation: Relation) -> list[int]:
        """The sentences that say so, by number: those that a model named, or the one that holds both mentions."""
        named = {int(word) for word in relation.attributes.get("evidence", "").split() if _INDEX.fullmatch(word)}
        if not named and relation.mentions:
            named = {i for m in relation.mentions if (i := self.sentence_of(self.mentions[m])) is not None}
        return sorted(i for i in named if i < len(self.sentences))

    @cached_property
    def _starts(self) -> list[int]:
        return [sentence.start for sentence in self.sentences]

    @cached_property
    def _by_id(self) -> dict[str, Entity]:
        return {entity.id: entity for entity in self.entities}


NO_CONCEPT = ("-1", "-", "")
"""What sources write where a mention has been looked up and has no concept."""


VARIANT = re.compile(r"[cgmnpr]\||\|(?:SUB|DEL|INS|DUP|INDEL|FS|Allele)\|")
"""How the id of a sequence variant starts in tmVar's notation, whose bars are part of it: p|SUB|V|600|E."""


def concept_ids(concept: str | None) -> list[str]:
    """The ids of a mention's concept, without those that say that there is none."""
    return [part for part in concept_parts(concept or "") if part not in NO_CONCEPT]


def concept_parts(concept: str) -> list[str]:
    """What is joined by '|' in it; the bars of a variant join nothing."""
    return [concept] if VARIANT.match(concept) else concept.split("|")


def entities_by_concept(mentions: Sequence[Mention]) -> tuple[Entity, ...]:
    """Group mentions by concept; a mention of several concepts belongs to each, one without is on its own."""
    return entities_by_ids(mentions, [concept_ids(mention.concept) for mention in mentions])


def entities_by_ids(mentions: Sequence[Mention], ids: Iterable[Sequence[str]]) -> tuple[Entity, ...]:
    """The same by the ids that each mention has, in order."""
    groups: dict[str, list[int]] = {}
    for index, (mention, named) in enumerate(zip(mentions, ids, strict=True)):
        for id in dict.fromkeys(named or [mention.id]):
            groups.setdefault(id, []).append(index)
    return tuple(Entity(id, mentions[members[0]].type, tuple(members)) for id, members in groups.items())


def owned(document: Document) -> Document:
    """The document with every mention in an entity: what a tagger found is of none yet, and relations join entities."""
    inside = {m for entity in document.entities for m in entity.mentions}
    alone = tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(document.mentions) if i not in inside)
    return replace(document, entities=(*document.entities, *alone)) if alone else document


def entities_by_synonyms(mentions: Sequence[Mention], same: Iterable[Collection[str]] = ()) -> tuple[Entity, ...]:
    """Group mentions where the ids of one name the same thing: those that share an id are one entity.

    So are those whose ids are in one collection of `same`. Its id is all of its mentions' ids, joined by '|'.
    """
    named = [dict.fromkeys(concept_ids(mention.concept) or [mention.id]) for mention in mentions]
    groups: list[tuple[set[str], list[int]]] = []
    for names, held in (
        *((set(ids) - set(NO_CONCEPT), []) for ids in same),
        *((ids, [index]) for index, ids in enumerate(named)),
    ):
        touched = [group for group in groups if not group[0].isdisjoint(names)]
        groups = [group for group in groups if group[0].isdisjoint(names)]
        groups.append((set(names).union(*(g[0] for g in touched)), held + [m for g in touched for m in g[1]]))
    entities = []
    for members in sorted(sorted(held) for _, held in groups if held):
        ids = dict.fromkeys(id for member in members for id in named[member])
        entities.append(Entity("|".join(ids), mentions[members[0]].type, tuple(members)))
    return tuple(entities)
