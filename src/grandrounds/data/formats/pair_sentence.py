"""A sentence with a head and a tail, the unit of distantly supervised corpora, and where names lie in it.

The document has one sentence and two mentions, the head's first, whose concepts are what the source calls them. If
they are related it has that one relation; a sentence of no relation (NA) has none, and so shows head and tail by the
order of its mentions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.source import Warnings
from grandrounds.errors import DataError

NA = "NA"
"""What distantly supervised corpora call the absence of a relation."""
TYPE = "entity"
"""The type of mentions where the source tells none."""
LOST = "sentences in which the head or the tail can't be found, left out"
OVERLAP = "sentences whose head and tail overlap"

_TRIED = 50  # places of a name, the best ones: a sentence may hold a letter a thousand times


@dataclass(frozen=True)
class End:
    """Head or tail of a sentence: where it is, and what."""

    span: Span
    type: str
    id: str | None
    """None where the source knows it by its name alone."""


def pair_document(
    id: str, text: str, head: End, tail: End, relation: str, attributes: Mapping[str, str] | None = None
) -> Document:
    """The document of a sentence; a thing related to itself is one entity with both mentions."""
    if not relation.strip():
        raise DataError(f"an empty relation; a pair without one has the relation {NA}")
    mentions = tuple(Mention(*end.span, end.type, f"T{i}", end.id) for i, end in enumerate((head, tail), start=1))
    names = [end.id if end.id is not None else mention.id for end, mention in zip((head, tail), mentions, strict=True)]
    if head.id is not None and head.id == tail.id:
        entities: tuple[Entity, ...] = (Entity(names[0], head.type, (0, 1)),)
    else:
        entities = tuple(Entity(name, m.type, (i,)) for i, (name, m) in enumerate(zip(names, mentions, strict=True)))
    related = () if relation == NA else (Relation(relation, names[0], names[1], (0, 1)),)
    return Document(id, text, (Span(0, len(text)),), mentions, entities, related, attributes or {})


def overlap(a: Span | Mention, b: Span | Mention) -> bool:
    return a.start < b.end and b.start < a.end


def find_pair(text: str, head: str, tail: str, warnings: Warnings) -> tuple[Span, Span] | None:
    """Where the two names are, by the best match of both together; None, noted, where one of them is not.

    A name's matches are ranked: between white space, between any signs but letters and digits, both then without
    regard to case and to spaces or underscores, and only where there is none of these inside of a longer word.
    Of those the first two that do not overlap count.
    """
    found = [sorted(places(text, name))[:_TRIED] for name in (head, tail)]
    if not all(found):
        warnings[LOST] += 1
        return None
    together = sorted(product(*found), key=lambda two: (two[0][0] + two[1][0], two[0][1], two[1][1]))
    for (_, one), (_, other) in together:
        if not overlap(one, other):
            return one, other
    warnings[OVERLAP] += 1
    return together[0][0][1], together[0][1][1]


def places(text: str, name: str) -> Iterator[tuple[int, Span]]:
    """Rank and span of a name's matches, those inside of words only if there are no others."""
    name = name.strip()
    lowered, wanted = folded(text), folded(name)
    inside, whole = [], False
    start = lowered.find(wanted) if wanted else -1
    while start >= 0:
        span = Span(start, start + len(wanted))
        rank = 0 if text[span.start : span.end] == name else 2
        before, after = text[: span.start][-1:], text[span.end :][:1]
        if not (before + after).strip():
            whole = True
            yield rank, span
        elif not (_in_word(before) or _in_word(after)):
            whole = True
            yield rank + 1, span
        else:
            inside.append((rank + 4, span))
        start = lowered.find(wanted, start + 1)
    if not whole:
        yield from inside


def _in_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def folded(text: str) -> str:
    """In small letters, spaces for underscores and unbreakable ones, and not a character more or less than before."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    return lowered.replace("_", " ").replace("\xa0", " ")
