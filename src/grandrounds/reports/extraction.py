"""Documents with their mentions highlighted and their relations beside the text.

Mentions may nest and overlap, which elements may not; so the text is cut at every boundary, and each piece is
wrapped in the mentions that cover it, each underlined in a lane of its own. Sentences that are evidence of a relation
are wrapped as well, for they lie beside each other.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from math import isfinite

from grandrounds.data.documents import ASSERTIONS, Document, Mention, Relation, Span
from grandrounds.data.pairs import NOT_INCLUDE, PAIRS
from grandrounds.reports.colours import colour
from grandrounds.reports.markup import Html, join, page, tag, text
from grandrounds.reports.wording import count, plural, short

LANES = 4
MOST_LINKS = 200


def extraction_page(documents: Sequence[Document], title: str, found: str = "relations") -> str:
    """A self-contained page of the relations, or only the mentions, that were found; pointing at a relation shows its
    ends and its evidence in the text, a click holds them."""
    totals = Counter(mention.type for document in documents for mention in document.mentions)
    types = [name for name, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))]
    legend = (tag("li", tag("mark", name, class_=colour(name)), f" {count(totals[name])}") for name in types)
    links = (
        tag("li", tag("a", document.id, href=f"#d{i}"))
        for i, document in enumerate(documents[:MOST_LINKS])
        if len(documents) > 1
    )
    relations = sum(len(document.relations) for document in documents)
    reported = ", ".join(
        (
            plural(len(documents), "document"),
            plural(totals.total(), "mention"),
            *([plural(relations, "relation")] if found == "relations" else []),
        )
    )
    shaded = any(document.evidence(relation) for document in documents for relation in document.relations)
    shown = "its two ends in the text" + (" and, shaded, the evidence" if shaded else "")
    hint = f" Point at a relation to see {shown}; click to hold it." if relations else ""
    body = join(
        [
            tag("h1", title),
            tag("p", f"{reported}.{hint}", class_="sub"),
            tag("ul", *legend, class_="legend"),
            tag("ul", *links, class_="documents"),
            *(_document(i, document, found) for i, document in enumerate(documents)),
        ]
    )
    return page("extraction.html", title, body, "page.css", "extraction.css")


def _document(number: int, document: Document, found: str) -> Html:
    about = " · ".join(
        f"{name} {value}" for name, value in document.attributes.items() if name not in (PAIRS, NOT_INCLUDE)
    )
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
        tag("p", nothing, class_="sub") if (nothing := _nothing(document, found)) else "",
        tag(
            "div",
            tag("div", highlighted(document, f"d{number}"), class_="text"),
            beside if scored else "",
            class_="columns" if scored else "columns alone",
        ),
        class_="document",
        id=f"d{number}",
    )


def _nothing(document: Document, found: str) -> str:
    if found == "mentions":
        return "" if document.mentions else "No mentions were found."
    if document.relations:
        return ""
    return "No relations were found." if document.mentions else "It has no mentions, so there was nothing to relate."


def highlighted(document: Document, prefix: str = "") -> Html:
    """The text with a <mark> for every mention over every piece, and a <span> for every sentence that is evidence;
    without its tags it is the text again."""
    pieces = [(span, i) for i, mention in enumerate(document.mentions) for span in _spans(mention)]
    shaded = sorted({i for relation in document.relations for i in document.evidence(relation)})
    ends = {edge for i in shaded for edge in document.sentences[i]}
    edges = sorted({0, len(document.text), *ends, *(edge for span, _ in pieces for edge in span)})
    covering: list[list[int]] = [[] for _ in edges]
    # Longest first, so that an enclosing mention wraps the enclosed one.
    for span, i in sorted(pieces, key=lambda piece: (piece[0].start - piece[0].end, piece[1])):
        for edge in range(bisect_left(edges, span.start), bisect_left(edges, span.end)):
            covering[edge].append(i)
    lanes = _lanes(document.mentions)
    starts, parts = [document.sentences[i].start for i in shaded], list[tuple[int | None, Html]]()
    for edge, (start, end) in enumerate(pairwise(edges)):
        piece = text(document.text[start:end])
        for i in reversed(covering[edge]):
            mention = document.mentions[i]
            kind = f"{prefix}m{i} {colour(mention.type)} l{lanes[i]}"
            said = [name for name in ASSERTIONS if name in mention.attributes] if end == mention.end else []
            piece = tag("mark", piece, class_=kind, title=_about(document, mention), data_said=", ".join(said) or None)
        last = bisect_right(starts, start) - 1
        inside = last >= 0 and end <= document.sentences[shaded[last]].end
        parts.append((shaded[last] if inside else None, piece))
    return join(
        joined if sentence is None else tag("span", joined, class_=f"{prefix}s{sentence}")
        for sentence, group in groupby(parts, key=lambda part: part[0])
        for joined in [join(piece for _, piece in group)]
    )


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


def _about(document: Document, mention: Mention) -> str:
    found = document.mention_dict(mention)
    asserted = [f'{name} ("{found[name]["trigger"]}")' for name in ASSERTIONS if isinstance(found.get(name), dict)]
    reported = (mention.type, *asserted, mention.concept, mention.attributes.get("score"))
    return " · ".join(part for part in reported if part)


def _relation(number: int, document: Document, relation: Relation) -> Html:
    heads, tails = _ends(document, relation)
    value, given = _score(relation), relation.attributes.get("score")
    shown = given if value is None else f"{value:.2f}"
    names = [_words(document, _spans(document.mentions[end[0]]), 60) for end in (heads, tails)]
    evidence = document.evidence(relation)
    bar = tag("span", tag("span", "", style=f"width:{100 * min(max(value or 0, 0), 1):.0f}%"), class_="bar")
    return tag(
        "button",
        tag("span", relation.type, tag("span", shown, class_="score") if shown else "", class_="type"),
        f"{names[0]} → {names[1]}",
        bar if value is not None else "",
        *(tag("q", _words(document, [document.sentences[i]], 120), class_="why") for i in evidence),
        class_="relation",
        type="button",
        aria_pressed="false",
        data_head=" ".join(f"d{number}m{i}" for i in heads),
        data_tail=" ".join(f"d{number}m{i}" for i in tails),
        data_evidence=" ".join(f"d{number}s{i}" for i in evidence) or None,
    )


def _ends(document: Document, relation: Relation) -> tuple[Sequence[int], Sequence[int]]:
    """The two mentions where they are known, or all mentions of the two entities."""
    if relation.mentions:
        return relation.mentions[:1], relation.mentions[1:]
    return document.entity(relation.head).mentions, document.entity(relation.tail).mentions


def _words(document: Document, spans: Sequence[Span], most: int) -> str:
    return short(" … ".join(" ".join(document.surface(span).split()) for span in spans), most)


def _score(relation: Relation) -> float | None:
    try:
        value = float(relation.attributes["score"])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None
