"""Documents with their mentions highlighted and their relations beside the text.

Mentions may nest and overlap, which elements may not; so the text is cut at every boundary, and each piece is
wrapped in the mentions that cover it, each underlined in a lane of its own.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite

from grandrounds.data.documents import Document, Mention, Relation, Span
from grandrounds.reports.markup import Html, join, page, tag, text
from grandrounds.reports.wording import count, plural, short

HUES, LANES = 7, 4
MOST_LINKS = 200


def extraction_page(documents: Sequence[Document], title: str) -> str:
    """A self-contained page; pointing at a relation shows its two ends in the text, a click holds them."""
    totals = Counter(mention.type for document in documents for mention in document.mentions)
    types = [name for name, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))]
    styles = {name: f"t{i}" if i < HUES else "rest" for i, name in enumerate(types)}
    legend = (tag("li", tag("mark", name, class_=styles[name]), f" {count(totals[name])}") for name in types)
    links = (
        tag("li", tag("a", document.id, href=f"#d{i}"))
        for i, document in enumerate(documents[:MOST_LINKS])
        if len(documents) > 1
    )
    relations = sum(len(document.relations) for document in documents)
    told = ", ".join(
        (
            plural(len(documents), "document"),
            plural(totals.total(), "mention"),
            plural(relations, "relation"),
        )
    )
    hint = " Point at a relation to see its two ends in the text; click to hold it." if relations else ""
    body = join(
        [
            tag("h1", title),
            tag("p", f"{told}.{hint}", class_="sub"),
            tag("ul", *legend, class_="legend"),
            tag("ul", *links, class_="documents"),
            *(_document(i, document, styles) for i, document in enumerate(documents)),
        ]
    )
    return page("extraction.html", title, body, "page.css", "extraction.css")


def _document(number: int, document: Document, styles: Mapping[str, str]) -> Html:
    about = " · ".join(f"{name} {value}" for name, value in document.attributes.items())
    scored = sorted(document.relations, key=lambda relation: -(_score(relation) or 0.0))
    beside = tag(
        "aside",
        tag("h3", plural(len(scored), "relation")),
        *(_relation(number, document, relation) for relation in scored),
        class_="relations",
    )
    return tag(
        "section",
        tag("h2", document.id),
        tag("p", about, class_="sub") if about else "",
        tag(
            "div",
            tag("div", highlighted(document, styles, f"d{number}"), class_="text"),
            beside if scored else "",
            class_="columns" if scored else "columns alone",
        ),
        class_="document",
        id=f"d{number}",
    )


def highlighted(document: Document, styles: Mapping[str, str], prefix: str = "") -> Html:
    """The text with a <mark> for every mention over every piece; without its tags it is the text again."""
    pieces = [(span, i) for i, mention in enumerate(document.mentions) for span in _spans(mention)]
    edges = sorted({0, len(document.text), *(edge for span, _ in pieces for edge in span)})
    covering: list[list[int]] = [[] for _ in edges]
    # Longest first, so that an enclosing mention wraps the enclosed one.
    for span, i in sorted(pieces, key=lambda piece: (piece[0].start - piece[0].end, piece[1])):
        for edge in range(bisect_left(edges, span.start), bisect_left(edges, span.end)):
            covering[edge].append(i)
    lanes = _lanes(document.mentions)
    parts: list[Html] = []
    for edge, (start, end) in enumerate(pairwise(edges)):
        piece = text(document.text[start:end])
        for i in reversed(covering[edge]):
            mention = document.mentions[i]
            kind = f"{prefix}m{i} {styles.get(mention.type, 'rest')} l{lanes[i]}"
            piece = tag("mark", piece, class_=kind, title=_about(mention))
        parts.append(piece)
    return join(parts)


def _spans(mention: Mention) -> tuple[Span, ...]:
    return mention.fragments or (Span(mention.start, mention.end),)


def _lanes(mentions: Sequence[Mention]) -> list[int]:
    """For every mention the lowest lane that no overlapping one has; beyond LANES they share."""
    lanes = [0] * len(mentions)
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for i in sorted(range(len(mentions)), key=lambda i: (mentions[i].start, -mentions[i].end)):
        while busy and busy[0][0] <= mentions[i].start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (mentions[i].end, lane))
        lanes[i] = lane % LANES
    return lanes


def _about(mention: Mention) -> str:
    return f"{mention.type} · {mention.concept}" if mention.concept else mention.type


def _relation(number: int, document: Document, relation: Relation) -> Html:
    heads, tails = _ends(document, relation)
    value, given = _score(relation), relation.attributes.get("score")
    shown = given if value is None else f"{value:.2f}"
    names = [_surface(document, document.mentions[end[0]]) for end in (heads, tails)]
    bar = tag("span", tag("span", "", style=f"width:{100 * min(max(value or 0, 0), 1):.0f}%"), class_="bar")
    return tag(
        "button",
        tag("span", relation.type, tag("span", shown, class_="score") if shown else "", class_="type"),
        f"{names[0]} → {names[1]}",
        bar if value is not None else "",
        class_="relation",
        type="button",
        aria_pressed="false",
        data_head=" ".join(f"d{number}m{i}" for i in heads),
        data_tail=" ".join(f"d{number}m{i}" for i in tails),
    )


def _ends(document: Document, relation: Relation) -> tuple[Sequence[int], Sequence[int]]:
    """The two mentions where they are known, or all mentions of the two entities."""
    if relation.mentions:
        return relation.mentions[:1], relation.mentions[1:]
    return document.entity(relation.head).mentions, document.entity(relation.tail).mentions


def _surface(document: Document, mention: Mention) -> str:
    return short(" … ".join(" ".join(document.surface(span).split()) for span in _spans(mention)), 60)


def _score(relation: Relation) -> float | None:
    try:
        value = float(relation.attributes["score"])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None
