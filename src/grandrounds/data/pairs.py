"""Which pairs of entities a document asks about: all of the right types, or those that its file lists.

A format that lists them (EOG) keeps the list in two attributes of the document, each JSON of [[head, tail], ...] by the
entities' ids: `pairs`, related or not, and `not_include`, which are no examples at all, neither positive nor negative.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from grandrounds.data.documents import Document, Entity, concept_ids
from grandrounds.errors import DataError, GrandRoundsError, unknown

PAIRS, NOT_INCLUDE = "pairs", "not_include"
Pair = tuple[str, str]
"""Head and tail: two ids of entities, or two types."""


@dataclass(frozen=True)
class Convention:
    """Which pairs the papers on a corpus ask about."""

    types: frozenset[Pair] | None
    """Of head and tail; None for any."""
    ordered: bool = True
    """Whether (a, b) and (b, a) are two questions, where the types allow both."""


_CHEMICAL, _DISEASE, _GENE, _VARIANT = (
    "ChemicalEntity",
    "DiseaseOrPhenotypicFeature",
    "GeneOrGeneProduct",
    "SequenceVariant",
)
_BIORED = (
    (_DISEASE, _GENE),
    (_DISEASE, _CHEMICAL),
    (_DISEASE, _VARIANT),
    (_GENE, _GENE),
    (_GENE, _CHEMICAL),
    (_CHEMICAL, _CHEMICAL),
    (_CHEMICAL, _VARIANT),
    (_VARIANT, _VARIANT),
)

CONVENTIONS = {
    "cdr": Convention(frozenset({("Chemical", "Disease")})),
    "gda": Convention(frozenset({("Gene", "Disease")})),
    # A reaction has no direction. The corpus itself calls its chemicals and metabolites ChemMet.
    "chr": Convention(frozenset({("ChemMet", "ChemMet"), ("Chemical", "Chemical")}), ordered=False),
    "chemdisgene": Convention(frozenset({("Chemical", "Disease"), ("Chemical", "Gene"), ("Gene", "Disease")})),
    "docred": Convention(None),
    # The guidelines name eight kinds of pairs; a pair is annotated once, in either order.
    "biored": Convention(frozenset({*_BIORED, *((tail, head) for head, tail in _BIORED)}), ordered=False),
}


def convention(corpus: str) -> Convention:
    """That of a corpus, by its name in small letters."""
    if corpus not in CONVENTIONS:
        raise GrandRoundsError(unknown("corpus", corpus, CONVENTIONS))
    return CONVENTIONS[corpus]


def candidate_pairs(document: Document, types: Collection[Pair] | None, *, ordered: bool = True) -> tuple[Pair, ...]:
    """The pairs listed; else every pair of two entities of these types (None: of any) but for those not included.

    Entities whose mentions were looked up in vain are in no pair, as EOG has it. Where pairs are not `ordered`, of
    (a, b) and (b, a) only that one whose head is mentioned first.
    """
    if PAIRS in document.attributes:
        return listed_pairs(document, PAIRS)
    left_out = set(listed_pairs(document, NOT_INCLUDE))
    entities = [entity for entity in document.entities if _has_concept(document, entity)]
    if not ordered:
        left_out |= {(tail, head) for head, tail in left_out}
        entities.sort(key=lambda entity: min(document.mentions[m].start for m in entity.mentions))
    found: dict[Pair, None] = {}
    for head in entities:
        for tail in entities:
            pair = (head.id, tail.id)
            if head is tail or pair in left_out or not (types is None or (head.type, tail.type) in types):
                continue
            if ordered or pair[::-1] not in found:
                found[pair] = None
    return tuple(found)


def stated_types(document: Document, pairs: Iterable[Pair], *, ordered: bool = True) -> dict[Pair, tuple[str, ...]]:
    """The types of the relations between head and tail of each pair, none where they are unrelated.

    Where pairs are not `ordered`, a relation (b, a) is also one of (a, b), unless (b, a) is a pair as well.
    """
    found: dict[Pair, dict[str, None]] = {pair: {} for pair in pairs}
    for relation in document.relations:
        pair = (relation.head, relation.tail)
        if not ordered and pair not in found:
            pair = pair[::-1]
        if pair in found:
            found[pair][relation.type] = None
    return {pair: tuple(types) for pair, types in found.items()}


def stated_pairs(document: Document) -> tuple[Pair, ...]:
    """The pairs that papers on CHR count: related ones as they are stated, in both directions if both are, and every
    unrelated pair of two entities once, in the order of the text."""
    stated = {(r.head, r.tail): None for r in document.relations if r.head != r.tail}
    others = candidate_pairs(document, None, ordered=False)
    return (*stated, *(pair for pair in others if pair not in stated and pair[::-1] not in stated))


def list_stated_pairs(document: Document) -> Document:
    """The document with these pairs listed."""
    return replace(document, attributes={**document.attributes, PAIRS: list_pairs(stated_pairs(document))})


def _has_concept(document: Document, entity: Entity) -> bool:
    """Whether some mention has one, or was never looked up (None)."""
    concepts = [document.mentions[mention].concept for mention in entity.mentions]
    return any(concept is None or concept_ids(concept) for concept in concepts)


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
    if attribute == PAIRS and any(head == tail for head, tail in pairs):
        raise DataError(f"a document's attribute '{attribute}' pairs an entity with itself")
    return tuple(dict.fromkeys(pairs))


def list_pairs(pairs: Iterable[Pair]) -> str:
    """The text of such an attribute."""
    return json.dumps([list(pair) for pair in pairs], ensure_ascii=False, separators=(",", ":"))
