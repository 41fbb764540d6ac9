"""What the pages of a run and of a site share: words, figures, the log, and whether it is as it was written."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache

from grandrounds.reports import kinds
from grandrounds.reports.audit_log import Line
from grandrounds.reports.audit_page import CHAIN, POLICY, Checked, moment
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.wording import ABSENT, byte_size, count
from grandrounds.web.view.tally import Moved, Tally

Parts = Mapping[str, Html]
"""A page's parts by name, in order; an empty one has nothing to say."""
Figure = tuple[str, str, str, str]
"""Name, value, unit, and what stands against it."""
MOST_ROWS, MOST_LINES = 100, 60
SERIES = 6
"""Styles of kinds of payload; what comes after them shares one."""


def section(title: str, *children: str) -> Html:
    return join([tag("h2", title), *children])


def when(seconds: float) -> Html:
    """A time of day; the page's script adds how long ago that is."""
    return _when(seconds, date.today()) if seconds else Html("never")


@lru_cache(maxsize=1000)
def _when(seconds: float, today: date) -> Html:
    try:
        then = datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return Html(ABSENT)
    said = f"{then:%H:%M:%S}" if then.date() == today else f"{then.day} {then:%b %Y, %H:%M}"
    return tag("time", said, datetime=then.isoformat(timespec="seconds"), title=moment(seconds))


def figures(cells: Iterable[Figure]) -> Html:
    made = (
        tag(
            "div",
            tag("dt", name),
            tag("dd", value, tag("span", f" {unit}", class_="unit") if unit else "", class_="value"),
            tag("dd", against, class_="against") if against else "",
        )
        for name, value, unit, against in cells
    )
    return tag("dl", *made, class_="figures")


def state(word: str, kind: str) -> Html:
    """A word with a dot of its colour; the word alone says it all."""
    return tag("span", word, class_=f"state {kind}")


def heading(title: str, sub: str, word: Html, sentence: str, problem: str = "") -> Html:
    return join(
        [
            tag("h1", title),
            tag("p", sub, class_="sub"),
            tag("p", word, f" {sentence}", class_="now", role="status"),
            tag("p", f"{problem}.", class_="notice bad", role="alert") if problem else "",
        ]
    )


def stopped(tally: Tally, own: bool) -> Html:
    """By site and reason; that there is none is said too."""
    title = "What was refused" if own else "Refused, rejected, late"
    if not tally.stopped:
        return section(title, tag("p", "Nothing.")) if tally.last else Html("")
    found = sorted(tally.stopped.items(), key=lambda item: -item[1].last)
    rows = [
        [
            *([] if own else [who or ABSENT]),
            why or "other reasons, which the log lists",
            when(one.last),
            ABSENT if one.round is None else _round(one.round),
            count(one.times),
        ]
        for (who, why), one in found[:MOST_ROWS]
    ]
    head = [*([] if own else ["site"]), "why", "last", "in round", "times"]
    return section(title, table(head, rows, len(head) - 2), more(len(found), MOST_ROWS))


def more(there: int, shown: int) -> Html:
    return tag("p", f"And {count(there - shown)} more.", class_="soft") if there > shown else Html("")


def audit(tally: Tally, checked: Checked, *further: str) -> Html:
    if not tally.last and checked.good:
        return Html("")
    kind = "notice good" if checked.good else "notice bad"
    told = tag("p", checked.sentence, class_=kind), tag("p", CHAIN, class_="soft")
    return section("Audit log", *told, *(tag("p", one) for one in further if one))


def log(tally: Tally, own: bool) -> Html:
    """The last lines, the newest first."""
    shown = list(tally.lines)[: -MOST_LINES - 1 : -1]
    if not shown:
        return Html("")
    rows = [[when(one.time), _place(one), *([] if own else [one.site]), _told(one, own)] for one in shown]
    head = ["when", "round", *([] if own else ["site"]), "what"]
    return section(
        "Log", tag("div", table(head, rows, 4), class_="long", tabindex="0", role="region", aria_label="Log")
    )


def sizes(moved: Mapping[str, Moved]) -> str:
    """weights of the model (1.9 MB), 2 x public keys for masks (64 B)"""
    said = [
        f"{'' if one.payloads == 1 else f'{count(one.payloads)} × '}{kinds.kind(kind)} ({byte_size(one.bytes)})"
        for kind, one in moved.items()
    ]
    return ", ".join(said) or "nothing"


def styles_of(found: Counter[str]) -> dict[str, str]:
    """A style for each kind of payload: the commonest have one of their own."""
    return {kind: f"s{place}" if place < SERIES else "other" for place, (kind, _) in enumerate(found.most_common())}


def named_kinds(found: Counter[str], chosen: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    return [(chosen[kind], f"{kinds.kind(kind)} ({kind}): {byte_size(size)}") for kind, size in found.most_common()]


def since(seconds: float) -> float:
    return max(0.0, time.time() - seconds)


def _place(line: Line) -> str:
    return "" if line.round is None else _round(line.round)


def _round(number: int) -> str:
    return count(number) if number else "before 1"


def _told(line: Line, own: bool) -> str:
    if line.travelled:
        left, came = ("left", "came") if own else ("came in", "went out")
        size = f"{kinds.kind(line.kind)} {left if line.direction == 'up' else came}: {byte_size(line.bytes)}"
        return size[:1].upper() + size[1:]
    if line.event == POLICY:
        return kinds.event(POLICY)
    held = {name: value for name, value in line.more.items() if name in ("times_median", "torn_bytes")}
    said = kinds.event(line.event)
    told = f"{said} ({', '.join(f'{name} {value}' for name, value in held.items())})" if held else said
    return told[:1].upper() + told[1:]


def parted(figure: str) -> tuple[str, str]:
    """Its number and its unit."""
    number, _, unit = figure.partition(" ")
    return number, unit
