"""What a note says of each mention: negated, possible, family, historical or conditional (ConText).

Harkema et al., "ConText: An algorithm for determining negation, experiencer, and temporal status from clinical
reports", JBI 2009, after NegEx (Chapman et al., JBI 2001). A trigger ("denies", "mother with", "ruled out") says it of
the mentions that follow or precede it in the sentence, up to a terminator ("but") or so many words; a pseudo-trigger
("no increase") says nothing. A section's heading ("FAMILY HISTORY:") says it of the whole section. The phrases are in
`context_triggers.toml`.

A text is read once, in time linear in its length, and only in sentences that have mentions.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from grandrounds.data.clinical import clinical_sentences, sections
from grandrounds.data.documents import Document, Mention, Span
from grandrounds.pipeline.triggers import CATEGORIES, SIDES, Match, Side, headings, matches, words

__all__ = ["CATEGORIES", "assert_mentions", "trigger_of"]

_SPAN = re.compile(r"([0-9]+)-([0-9]+)")
# A stronger category leaves out a weaker one: what a relative had, or nobody, is not the patient's past, and what
# may happen one day is no doubt about today.
OVERRULED = (("family", "historical"), ("negated", "historical"), ("conditional", "possible"))


def assert_mentions(document: Document) -> Document:
    """The document with what holds of each mention among its attributes: a category -> its trigger, "START-END"."""
    if not document.mentions:
        return document
    found = [dict[str, Span]() for _ in document.mentions]
    titled = [(section.heading, section.body) for section in sections(document.text) if section.heading is not None]
    _by_headings(document, titled, found)
    for window, members in _windows(document, [heading for heading, _ in titled]).items():
        _by_triggers(document, window, members, found)
    for triggers in found:
        for stronger, weaker in OVERRULED:
            if stronger in triggers:
                triggers.pop(weaker, None)
    return replace(document, mentions=tuple(map(_with, document.mentions, found)))


def trigger_of(mention: Mention, category: str) -> Span | None:
    """The characters of the document that say it; None where the category does not hold, or another source said so."""
    found = _SPAN.fullmatch(mention.attributes.get(category, ""))
    return Span(int(found[1]), int(found[2])) if found else None


def _with(mention: Mention, triggers: Mapping[str, Span]) -> Mention:
    others = {name: value for name, value in mention.attributes.items() if name not in CATEGORIES}
    said = {name: f"{triggers[name].start}-{triggers[name].end}" for name in CATEGORIES if name in triggers}
    return replace(mention, attributes={**others, **said})


def _by_headings(document: Document, titled: Sequence[tuple[Span, Span]], found: Sequence[dict[str, Span]]) -> None:
    starts = [body.start for _, body in titled]
    said = [headings().get(" ".join(document.surface(heading).rstrip(":").lower().split())) for heading, _ in titled]
    for mention, triggers in zip(document.mentions, found, strict=True):
        at = bisect_right(starts, mention.start) - 1
        if at >= 0 and (category := said[at]) is not None and mention.start < titled[at][1].end:
            triggers[category] = titled[at][0]


def _windows(document: Document, titles: Sequence[Span]) -> dict[Span, list[int]]:
    """Which mentions stand in which sentence; a heading is one too, and one that a mention crosses goes on.

    A mention in a heading has what follows as well ("COMPLICATIONS: None.").
    """
    sentences = document.sentences or clinical_sentences(document.text)
    ends = {sentence.end for sentence in sentences}.difference(title.end for title in titles)
    starts = sorted({0, *(span.start for span in (*sentences, *titles)), *(title.end for title in titles)})
    stops = sorted({len(document.text), *ends, *(title.start for title in titles)})
    windows: dict[Span, list[int]] = defaultdict(list)
    for index, mention in enumerate(document.mentions):
        start, end = starts[bisect_right(starts, mention.start) - 1], stops[bisect_left(stops, mention.end)]
        windows[Span(start, end)].append(index)
    return windows


def _by_triggers(document: Document, window: Span, members: Sequence[int], found: Sequence[dict[str, Span]]) -> None:
    """Sweep over a sentence forwards for triggers of what follows, and backwards for those of what comes before."""
    tokens = words(document.text, window)
    starts = [token.start for token in tokens]
    hits = list(matches(document.text, tokens))
    places = {
        index: Span(
            bisect_right(starts, document.mentions[index].start) - 1, bisect_left(starts, document.mentions[index].end)
        )
        for index in members
    }
    for side in SIDES:
        for index, category, hit in _sweep(hits, places, side):
            found[index].setdefault(category, Span(tokens[hit.words.start].start, tokens[hit.words.end - 1].end))


def _sweep(hits: Iterable[Match], places: Mapping[int, Span], side: Side) -> Iterator[tuple[int, str, Match]]:
    """Each mention with each category that reaches it. Backwards, positions are negative, so that both are one loop."""

    def seen(span: Span) -> Span:
        return span if side == "forward" else Span(-span.end, -span.start)

    # What a mention begins with speaks of it ("possible pneumonia") but does not shield it ("history of acute ...").
    events: list[tuple[int, int, Match | int]] = []
    for hit in hits:
        events += [(seen(hit.words).start, 0, hit), (seen(hit.words).start, 2, hit)]
    events += [(seen(place).start, 1, index) for index, place in places.items()]
    reaching: dict[str, tuple[int, Match]] = {}
    for at, turn, event in sorted(events, key=lambda event: event[:2]):
        if isinstance(event, int):
            yield from ((event, category, hit) for category, (last, hit) in reaching.items() if at < last)
        elif turn == 2:
            for category in event.ends[side]:
                reaching.pop(category, None)
        else:
            for rule in event.rules:
                last = seen(event.words).end + rule.reach
                if rule.direction in (side, "both") and (
                    rule.category not in reaching or reaching[rule.category][0] <= last
                ):
                    reaching[rule.category] = last, event
