"""Entities that several sites have in their training data, hidden (FedNER, section 4.5).

Of a share of these entities every mention that is trained on gives way to a placeholder, without a label: what is left
for sites to learn from each other is more than names. An entity is known by its words, whatever their case.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from math import floor

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.sentences import split_sentences

PLACEHOLDER = "MASKED"
"""A word by any reading of words."""
OVERLAPPING = "entities in the training data of several sites"
MASKED = "of these entities, masked"
MENTIONS = "mentions masked"


def mask_overlap(
    documents: Sequence[Document],
    trained: Mapping[str, Mapping[int, Collection[int]]],
    share: float,
    seed: int,
) -> tuple[list[Document], dict[str, int]]:
    """The documents with that share of the entities masked, and how many there are. `trained` says which sentences of
    which documents each site trains on; all others stay as they are, and so do the numbers of sentences."""
    split = {i: _with_sentences(documents[i]) for sentences in trained.values() for i in sentences}
    shared = overlapping(
        (written_alike(split[i].surface(m)) for i in sentences for m in within(split[i], sentences[i]))
        for sentences in trained.values()
    )
    hidden = choose(shared, share, seed)
    made, mentions = list(documents), 0
    for i, document in split.items():
        # A document may be partitioned by its sentences.
        numbers = {number for sentences in trained.values() for number in sentences.get(i, ())}
        made[i] = mask(document, hidden, numbers)
        mentions += len(document.mentions) - len(made[i].mentions)
    return made, {OVERLAPPING: len(shared), MASKED: len(hidden), MENTIONS: mentions}


def written_alike(name: str) -> str:
    """One form for a name's spellings that differ in case or in white space alone."""
    return " ".join(name.casefold().split())


def within(document: Document, sentences: Collection[int]) -> list[Mention]:
    """The mentions that lie in these sentences."""
    return [mention for mention in document.mentions if document.sentence_of(mention) in sentences]


def overlapping(sites: Iterable[Iterable[str]]) -> list[str]:
    """The names that occur at several sites."""
    held = Counter(name for names in sites for name in set(names))
    return sorted(name for name, times in held.items() if times > 1)


def choose(names: Iterable[str], share: float, seed: int) -> frozenset[str]:
    """A share of the names, drawn by the seed; a greater share has all of a lesser one."""
    ranked = sorted(names, key=lambda name: sha256(f"{seed}/mask/{name}".encode()).digest())
    return frozenset(ranked[: floor(share * len(ranked) + 0.5)])


def mask(document: Document, names: Collection[str], sentences: Collection[int]) -> Document:
    """The document, which has sentences, with every mention of these names in these sentences replaced.

    What lies inside a replaced mention goes with it; what reaches beyond stays, with the placeholder in it. Entities
    and relations are left out.
    """
    hidden = [m for m in within(document, sentences) if written_alike(document.surface(m)) in names]
    if not hidden:
        return document
    gone = _joined(Span(mention.start, mention.end) for mention in hidden)
    start_of, end_of = _moves(gone)
    pieces = zip([0, *(span.end for span in gone)], [*(span.start for span in gone), len(document.text)], strict=True)

    def moved(mention: Mention) -> Mention:
        touched = any(span.start < mention.end and mention.start < span.end for span in gone)
        return replace(
            mention,
            start=start_of(mention.start),
            end=end_of(mention.end),
            fragments=() if touched else tuple(Span(start_of(a), end_of(b)) for a, b in mention.fragments),
        )

    return replace(
        document,
        text=PLACEHOLDER.join(document.text[start:end] for start, end in pieces),
        sentences=tuple(Span(start_of(start), end_of(end)) for start, end in document.sentences),
        mentions=tuple(moved(m) for m in document.mentions if not _inside(m, gone)),
        entities=(),
        relations=(),
    )


def _with_sentences(document: Document) -> Document:
    return document if document.sentences else replace(document, sentences=split_sentences(document.text))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """In order, with those made one that overlap or touch."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def _inside(mention: Mention, spans: Iterable[Span]) -> bool:
    return any(span.start <= mention.start and mention.end <= span.end for span in spans)


def _moves(gone: Sequence[Span]) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Where a span that starts, or ends, at a character does so once these have given way to placeholders; if that is
    within one of them, the placeholder's own start or end."""
    begins = [span.start for span in gone]
    grown = [0, *accumulate(len(PLACEHOLDER) - (span.end - span.start) for span in gone)]

    def start_of(place: int) -> int:
        before = bisect_right(begins, place)
        if before and place < gone[before - 1].end:
            return begins[before - 1] + grown[before - 1]
        return place + grown[before]

    def end_of(place: int) -> int:
        before = bisect_left(begins, place)
        if before and place <= gone[before - 1].end:
            return begins[before - 1] + grown[before - 1] + len(PLACEHOLDER)
        return place + grown[before]

    return start_of, end_of
