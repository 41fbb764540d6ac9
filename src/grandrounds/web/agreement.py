"""Found against gold, for the page: each mention and relation as right, partly right, wrong or missed.

A mention is right where gold has the same characters and type, and partly right where one of its type shares a
character. A relation is right where gold has one of its type between entities that share a mention with its ends, in
either direction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, product
from typing import Any, Literal

from grandrounds.data.documents import Document, Mention, Relation, Span

Verdict = Literal["right", "partly", "wrong"]


def agreement(found: Document, gold: Document) -> dict[str, Any]:
    """Verdicts on what was found, in its order, and the numbers of gold that were missed."""
    mentions, relations = list(_verdicts(found.mentions, gold.mentions)), list(_known(found, gold))
    return {
        "mentions": mentions,
        "missed_mentions": _numbers(verdict == "wrong" for verdict in _verdicts(gold.mentions, found.mentions)),
        "relations": ["right" if known else "wrong" for known in relations],
        "missed_relations": _numbers(not known for known in _known(gold, found)),
    }


def _numbers(chosen: Iterable[bool]) -> list[int]:
    return [number for number, yes in enumerate(chosen) if yes]


def _verdicts(mentions: Sequence[Mention], others: Sequence[Mention]) -> Iterator[Verdict]:
    spans: dict[str, list[Span]] = {}
    for other in sorted(others, key=lambda mention: mention.start):
        spans.setdefault(other.type, []).append(Span(other.start, other.end))
    starts = {type: [span.start for span in of_type] for type, of_type in spans.items()}
    ends = {type: list(accumulate((span.end for span in of_type), max)) for type, of_type in spans.items()}
    exact = {(type, span) for type, of_type in spans.items() for span in of_type}
    for mention in mentions:
        before = bisect_left(starts.get(mention.type, ()), mention.end)  # those that begin before it ends
        if (mention.type, Span(mention.start, mention.end)) in exact:
            yield "right"
        else:
            yield "partly" if before and ends[mention.type][before - 1] > mention.start else "wrong"


def _known(document: Document, other: Document) -> Iterator[bool]:
    """Of each relation, whether the other document has it."""
    there = {(relation.type, relation.head, relation.tail) for relation in other.relations}
    owners: dict[Span, set[str]] = {}
    for entity in other.entities:
        for m in entity.mentions:
            owners.setdefault(_span(other, m), set()).add(entity.id)

    def same(relation: Relation) -> bool:
        heads, tails = (
            {id for m in document.entity(end).mentions for id in owners.get(_span(document, m), ())}
            for end in (relation.head, relation.tail)
        )
        return any(
            (relation.type, head, tail) in there or (relation.type, tail, head) in there
            for head, tail in product(heads, tails)
        )

    yield from map(same, document.relations)


def _span(document: Document, m: int) -> Span:
    return Span(document.mentions[m].start, document.mentions[m].end)
