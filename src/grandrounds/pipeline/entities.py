"""Entities across mentions: what a document names several times becomes one thing."""

from __future__ import annotations

from dataclasses import replace

from grandrounds.data.documents import NO_CONCEPT, Document, Entity, owned
from grandrounds.pipeline.abbreviations import LongForms
from grandrounds.pipeline.linking import surface
from grandrounds.pipeline.names import normalise


def group_entities(document: Document) -> Document:
    """The document with one entity for mentions of a type that have the same concept, or the same name.

    Names are the same if they are once normalised, and an abbreviation is its long form's where the document defines
    it. Mentions of different concepts stay apart whatever their names. Entities of several mentions, and those that
    share a mention, stand as their source has them; single mentions may join the former. A group has the id of its
    first entity; relations follow, and those that are then the same in type, ends and mentions are kept once.
    """
    document = owned(document)
    groups = _Groups(document)
    for i in range(len(document.entities)):
        groups.join_by_concept(i)
    for i in range(len(document.entities)):
        groups.join_by_name(i)
    groups.join_abbreviations()
    entities = groups.entities()
    ids = {entity.id: entities[groups.root(i)].id for i, entity in enumerate(document.entities)}
    moved = [replace(found, head=ids[found.head], tail=ids[found.tail]) for found in document.relations]
    kept = {(found.type, found.head, found.tail, found.mentions): found for found in reversed(moved)}
    return replace(document, entities=tuple(entities.values()), relations=tuple(reversed(kept.values())))


class _Groups:
    """Union-find over the entities of a document; a group's root is its first entity."""

    def __init__(self, document: Document) -> None:
        self._document, self._entities = document, document.entities
        self._parent = list(range(len(document.entities)))
        self._by_concept: dict[tuple[str, str], int] = {}
        self._by_name: dict[tuple[str, str], int] = {}
        owners = [0] * len(document.mentions)
        for entity in document.entities:
            for m in entity.mentions:
                owners[m] += 1
        self._shared = [any(owners[m] > 1 for m in entity.mentions) for entity in document.entities]
        self._given = [len(entity.mentions) > 1 for entity in document.entities]
        self._concept = [self._concept_of(entity) for entity in document.entities]

    def _concept_of(self, entity: Entity) -> str | None:
        """The first that its mentions have."""
        concepts = (self._document.mentions[m].concept for m in entity.mentions)
        return next((concept for concept in concepts if concept and concept not in NO_CONCEPT), None)

    def root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def _join(self, i: int, j: int) -> None:
        """Make one group of two, unless their source or their concepts keep them apart."""
        first, second = sorted((self.root(i), self.root(j)))
        apart = self._shared[first] or self._shared[second] or (self._given[first] and self._given[second])
        concepts = {self._concept[first], self._concept[second]} - {None}
        if first == second or apart or len(concepts) > 1:
            return
        self._parent[second] = first
        self._given[first] = self._given[first] or self._given[second]
        self._concept[first] = next(iter(concepts), None)

    def join_by_concept(self, i: int) -> None:
        if concept := self._concept[i]:
            self._join(i, self._by_concept.setdefault((self._entities[i].type, concept), i))

    def join_by_name(self, i: int) -> None:
        for m in self._entities[i].mentions:
            if name := normalise(surface(self._document, self._document.mentions[m])):
                self._join(i, self._by_name.setdefault((self._entities[i].type, name), i))

    def join_abbreviations(self) -> None:
        """By the long form's text, or else by a mention that ends where the long form ends."""
        long_forms = LongForms(self._document.text)
        mentions = self._document.mentions
        ending = {(entity.type, mentions[m].end): i for i, entity in enumerate(self._entities) for m in entity.mentions}
        for i, entity in enumerate(self._entities):
            for m in entity.mentions:
                span = long_forms.of(surface(self._document, mentions[m]), mentions[m].start)
                if span is None:
                    continue
                named = self._by_name.get((entity.type, normalise(self._document.surface(span))))
                other = ending.get((entity.type, span.end)) if named is None else named
                if other is not None:
                    self._join(i, other)

    def entities(self) -> dict[int, Entity]:
        """By the index of their root, in order."""
        members: dict[int, dict[int, None]] = {}
        for i, entity in enumerate(self._entities):
            members.setdefault(self.root(i), {}).update(dict.fromkeys(entity.mentions))
        return {i: replace(self._entities[i], mentions=tuple(sorted(found))) for i, found in members.items()}
