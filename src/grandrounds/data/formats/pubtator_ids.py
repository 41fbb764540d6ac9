"""What joins several ids in a PubTator column, and what is part of one.

Bars, semicolons and commas join ids, but a sequence variant has bars of its own (p|SUB|V|600|E), or a comma
(p.P13K,A). So a string stays whole where a relation names it as a whole, and where it is written as a variant is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from grandrounds.data.documents import NO_CONCEPT, VARIANT, Mention, Relation

_SEPARATOR = "separator"
"""Of a mention: what joined its ids in the file, where that was not a bar."""
_HGVS = re.compile(r"[cgmnpr]\.")


def named_whole(relations: Iterable[Relation]) -> frozenset[str]:
    """The ends of relations that would be split if no relation named them."""
    ends = (end for relation in relations for end in (relation.head, relation.tail))
    return frozenset(end for end in ends if re.search("[|,;]", end))


def split_ids(concept: str | None, whole: Collection[str]) -> list[str]:
    """The ids in a concept, without those that say that there is none."""
    return [id for id in _split(concept or "", whole) if id not in NO_CONCEPT]


def _split(concept: str, whole: Collection[str]) -> Iterator[str]:
    if concept in whole:
        yield concept
        return
    for part in re.split(";" if _HGVS.match(concept) else "[,;]", concept):
        if part in whole or VARIANT.match(part):
            yield part
        else:
            yield from part.split("|")


def separated(mention: Mention, whole: Collection[str]) -> Mention:
    """The mention with its ids joined by bars, which is how all formats have them, if that can be undone."""
    concept = mention.concept or ""
    signs = set(re.findall("[|,;]", concept))
    joined = "|".join(_split(concept, whole))
    if len(signs) != 1 or "|" in signs or joined == concept:
        return mention
    return replace(mention, concept=joined, attributes={_SEPARATOR: signs.pop(), **mention.attributes})


def as_written(mention: Mention) -> str | None:
    """The concept as the file had it."""
    separator = mention.attributes.get(_SEPARATOR, "|")
    return None if mention.concept is None else mention.concept.replace("|", separator)
