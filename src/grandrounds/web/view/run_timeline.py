"""When each site was asked in a round, and when it answered; and what each has sent."""

from __future__ import annotations

from collections.abc import Mapping

from grandrounds.reports import kinds
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.wording import byte_size, count, duration, listed
from grandrounds.web.view.following import FollowedRun
from grandrounds.web.view.parts import more, named_kinds, section, since, styles_of, when
from grandrounds.web.view.pictures import Part, bar, key
from grandrounds.web.view.run_state import going, known, reason
from grandrounds.web.view.tally import Span

MOST_BARS = 60
POOLED = "centralized"
"""The algorithm that brings all data to one place: nothing travels."""


def timeline(view: FollowedRun) -> Html:
    """The round that is under way, and the one before; once a run has ended, its last one."""
    last = view.tally.round
    shown = [number for number in (last, last - 1 if going(view) else 0) if number in view.tally.rounds and number]
    if not shown:
        return Html("")
    styles = [("ok", "asked until it answered"), ("open", "not answered yet"), ("stopped", "no answer that counts")]
    turns = "Simulated sites take turns, so a bar begins where the one before ends." if not view.presence else ""
    parts = [_bars(view, number, going=going(view) and number == last) for number in shown]
    return join([*parts, key(styles), tag("p", turns, class_="soft") if turns else ""])


def _bars(view: FollowedRun, number: int, going: bool) -> Html:
    tally = view.tally.rounds[number]
    end = tally.began + since(tally.began) if going else max(tally.ended, tally.began)
    whole = max(end - tally.began, 0.001)
    names, rows = sorted(tally.spans), []
    for name in names[:MOST_BARS]:
        spans = [_closed(span, name, view) for span in tally.spans[name]]
        said = _took(view, name, spans[-1], going)
        rows.append([name, bar([_part(span, tally.began, whole, end) for span in spans], f"{name}: {said}"), said])
    told = f"Round {count(number)}" + (" is under way" if going else "")
    began = [
        "It began at ",
        when(tally.began),
        f", {duration(whole)} ago." if going else f" and took {duration(whole)}.",
    ]
    head = ["site", "from its start to now" if going else "from its start to its end", "last answer"]
    bars = tag("div", table(head, rows, 3), class_="bars")
    return section(told, tag("p", join(began)), bars, more(len(names), MOST_BARS))


def _closed(span: Span, name: str, view: FollowedRun) -> Span:
    """One that has answered may wait for its turn; the coordinator knows when it came."""
    seen = view.presence.sites.get(name) if view.presence else None
    if span.ended is None and seen is not None and seen.answered >= span.asked:
        return Span(span.asked, seen.answered)
    return span


def _part(span: Span, began: float, whole: float, end: float) -> Part:
    style = "open" if span.ended is None else "stopped" if span.why else "ok"
    begin, last = (span.asked - began) / whole, ((span.ended or end) - began) / whole
    return Part(min(max(begin, 0), 1), min(max(last, 0), 1), style, span.why)


def _took(view: FollowedRun, name: str, span: Span, going: bool) -> str:
    if span.ended is not None:
        return reason(span.why) if span.why else _whole(span.ended - span.asked)
    seen = view.presence.sites.get(name) if view.presence else None
    away = seen is not None and not seen.online
    return f"{'away' if away else 'working'}, {_whole(since(span.asked))}" if going else "no answer"


def _whole(seconds: float) -> str:
    return duration(seconds).replace(" ", "\u00a0")  # a number stays with its unit


def travel(view: FollowedRun) -> Html:
    if view.run and view.run.algorithm == POOLED:
        return section("What travels", tag("p", "Nothing: the sites' data were brought together before round 1."))
    up = view.tally.by_kind("up")
    if not up and not view.tally.by_kind("down"):
        return Html("")
    chosen = styles_of(up)
    names = [name for name in known(view) if view.tally.total("up", name) or view.tally.total("down", name)]
    most = max((view.tally.total("up", name) for name in names), default=0) or 1
    rows = [
        [
            name,
            bar(_stack(view, name, chosen, most), f"{name} sent {byte_size(view.tally.total('up', name))}"),
            byte_size(view.tally.total("up", name)),
            byte_size(view.tally.total("down", name)),
        ]
        for name in names[:MOST_BARS]
    ]
    down = [f"{kinds.kind(kind)} ({byte_size(size)})" for kind, size in view.tally.by_kind("down").most_common()]
    return section(
        "What travels",
        tag("p", "What each site has sent, by kind, since the run began."),
        key(named_kinds(up, chosen)),
        tag("div", table(["site", "by kind", "sent by it", "sent to it"], rows, 2), class_="bars"),
        more(len(names), MOST_BARS),
        tag("p", f"Sent to sites: {listed(down)}.", class_="soft") if down else "",
    )


def _stack(view: FollowedRun, name: str, chosen: Mapping[str, str], most: int) -> list[Part]:
    parts, begin = list[Part](), 0.0
    for kind, style in chosen.items():
        moved = view.tally.moved.get((name, "up", kind))
        if moved is not None and moved.bytes:
            said = f"{kinds.kind(kind)}: {byte_size(moved.bytes)}"
            parts.append(Part(begin, begin + moved.bytes / most, style, said))
            begin += moved.bytes / most
    return parts
