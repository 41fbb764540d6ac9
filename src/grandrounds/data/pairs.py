"""Which pairs of entities a document asks about: all of the right types, or those that its file lists.

A format that lists them (EOG) keeps the list in two attributes of the document, each JSON of [[head, tail], ...] by the
entities' ids: `pairs`, related or not, and `not_include`, which are no examples at all, neither positive nor negative.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from grandrounds.data.documents import Document
from grandrounds.errors import DataError

PAIRS, NOT_INCLUDE = "pairs", "not_include"
Pair = tuple[str, str]
"""Head and tail: two ids of entities, or two types."""


def candidate_pairs(document: Document, types: Collection[Pair]) -> tuple[Pair, ...]:
    """The pairs listed; else every ordered pair of two entities of these types but for those not included."""
    if PAIRS in document.attributes:
        return listed_pairs(document, PAIRS)
    left_out = set(listed_pairs(document, NOT_INCLUDE))
    return tuple(
        (head.id, tail.id)
        for head in document.entities
        for tail in document.entities
        if head is not tail and (head.type, tail.type) in types and (head.id, tail.id) not in left_out
    )


def related_types(documents: Iterable[Document]) -> frozenset[Pair]:
    """The types of head and tail between which some document states a relation."""
    return frozenset(
        (document.entity(relation.head).type, document.entity(relation.tail).type)
        for document in documents
        for relation in document.relations
    )


def listed_pairs(document: Document, attribute: str) -> tuple[Pair, ...]:
    """The pairs of an attribute, none without it."""
    try:
        found = json.loads(document.attributes.get(attribute, "[]"))
        pairs = tuple((head, tail) for head, tail in found)
    except (ValueError, TypeError, RecursionError):
        pairs = ((None, None),)
    known = {entity.id for entity in document.entities}
    if not all(isinstance(end, str) and end in known for pair in pairs for end in pair):
        raise DataError(
            f"a document's attribute '{attribute}' must be JSON: a list of [head, tail], ids of its entities"
        )
    return pairs


def list_pairs(pairs: Iterable[Pair]) -> str:
    """The text of such an attribute."""
    return json.dumps([list(pair) for pair in pairs], ensure_ascii=False, separators=(",", ":"))
