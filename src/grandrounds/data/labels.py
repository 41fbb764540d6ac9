"""Other names for types of mentions and relations, or none: `data.map_labels`.

    [data.map_labels]
    ChemicalEntity = "Chemical"
    OrganismTaxon = ""            # dropped, with the relations of what is dropped

Documents are renamed once, when they are read, so all tasks see the same types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from grandrounds.data.documents import Document
from grandrounds.data.pairs import NOT_INCLUDE, PAIRS, list_pairs, listed_pairs
from grandrounds.errors import ConfigError, unknown

MENTIONS = "mentions of types that map_labels drops"
RELATIONS = "relations of types that map_labels drops, or of mentions that it drops"
TWICE = "relations that are the same once map_labels has renamed them, kept once"


class LabelMap:
    """From names to names, '' to drop; it remembers which types it saw."""

    def __init__(self, names: Mapping[str, str], key: str = "data.map_labels") -> None:
        self._names, self._key, self._seen = dict(names), key, set[str]()

    def apply(self, documents: Iterable[Document], warnings: Counter[str]) -> tuple[Document, ...]:
        if not self._names:
            return tuple(documents)
        return tuple(self._mapped(document, warnings) for document in documents)

    def check(self) -> None:
        """ConfigError where a name was never the type of anything."""
        for name in self._names:
            if name not in self._seen:
                raise ConfigError(f"{self._key}: {unknown('type', name, self._seen)}")

    def _to(self, type: str) -> str:
        return self._names.get(type, type)

    def _mapped(self, document: Document, warnings: Counter[str]) -> Document:
        types = {m.type for m in document.mentions} | {r.type for r in document.relations}
        self._seen |= types
        if types.isdisjoint(self._names):
            return document
        kept = [i for i, mention in enumerate(document.mentions) if self._to(mention.type)]
        place = {old: new for new, old in enumerate(kept)}
        mentions = tuple(replace(document.mentions[i], type=self._to(document.mentions[i].type)) for i in kept)
        entities = []
        for entity in document.entities:
            members = tuple(place[m] for m in entity.mentions if m in place)
            if members:
                type = self._to(entity.type) or mentions[members[0]].type
                entities.append(replace(entity, type=type, mentions=members))
        known = {entity.id for entity in entities}
        relations, seen = [], set()
        for relation in document.relations:
            type, pair = self._to(relation.type), relation.mentions
            if not type or not {relation.head, relation.tail} <= known or (pair and not place.keys() >= set(pair)):
                warnings[RELATIONS] += 1
                continue
            moved = None if pair is None else (place[pair[0]], place[pair[1]])
            if (type, relation.head, relation.tail, moved) in seen:
                warnings[TWICE] += 1
                continue
            seen.add((type, relation.head, relation.tail, moved))
            relations.append(replace(relation, type=type, mentions=moved))
        if len(kept) < len(document.mentions):
            warnings[MENTIONS] += len(document.mentions) - len(kept)
        attributes = dict(document.attributes)
        for name in {PAIRS, NOT_INCLUDE} & attributes.keys():
            attributes[name] = list_pairs(pair for pair in listed_pairs(document, name) if known.issuperset(pair))
        return replace(
            document, mentions=mentions, entities=tuple(entities), relations=tuple(relations), attributes=attributes
        )
