"""A site's own page: what left the hospital and when, in people's words, beside what its policy allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isfinite

from grandrounds.reports import kinds
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.wording import ABSENT, byte_size, count, plural
from grandrounds.web.view.following import FollowedSite
from grandrounds.web.view.parts import (
    Parts,
    audit,
    figures,
    heading,
    log,
    more,
    parted,
    section,
    sizes,
    state,
    stopped,
    when,
)
from grandrounds.web.view.pictures import Part, bar
from grandrounds.web.view.spending import Spending, Spent
from grandrounds.web.view.tally import Moved, RoundTally

MOST_ROUNDS = 50
COMPARE = tag("code", "grandrounds audit compare")
OVER = ("bye", "refused")
"""Events after which a site has no more to do."""


def site_parts(view: FollowedSite, spending: Spending) -> Parts:
    held = view.tally.policies[-1][1] if view.tally.policies else {}
    spent = spending.look(_number(held, "epsilon"), _number(held, "delta"))
    return {
        "head": _heading(view),
        "figures": _figures(view, spent),
        "policy": _policy(view, held),
        "rounds": _rounds(view),
        "privacy": _privacy(spent),
        "stopped": stopped(view.tally, own=True),
        "audit": audit(
            view.tally,
            view.followed.checked,
            join(["The coordinator's log has the same payloads; ", COMPARE, " checks that the two agree."]),
        ),
        "log": log(view.tally, own=True),
    }


def site_title(view: FollowedSite) -> str:
    return f"Site {view.place.name}"


def _heading(view: FollowedSite) -> Html:
    word, said = _now(view)
    return heading(site_title(view), "What left this hospital, and when", word, said)


def _now(view: FollowedSite) -> tuple[Html, str]:
    ended = next((line.event for line in reversed(view.tally.lines) if line.event in OVER), "")
    if view.running:
        number = view.tally.round
        return state("serving", "good"), f"– round {count(number)}" if number else "– waiting for the first round"
    if ended:
        return state("ended", "done"), f"– {kinds.event(ended)}"
    if not view.tally.last:
        return state("not joined", "off"), "– nothing has left"
    return state("not running", "off"), "– the command that started it goes on"


def _figures(view: FollowedSite, spent: Spent | None) -> Html:
    up = [moved for (_, way, _), moved in view.tally.moved.items() if way == "up"]
    down = [moved for (_, way, _), moved in view.tally.moved.items() if way == "down"]
    answered = sum(any(way == "up" for way, _ in one.moved) for number, one in view.tally.rounds.items() if number)
    refused = sum(one.times for (_, why), one in view.tally.stopped.items() if why.startswith("refused"))
    cells = [
        ("left", *_size(up), plural(sum(moved.payloads for moved in up), "payload")),
        ("came", *_size(down), plural(sum(moved.payloads for moved in down), "payload")),
        ("rounds in which something left", count(answered), "", ""),
        ("refused", count(refused), "", "before anything left"),
    ]
    if spent is not None:
        cells.append(("epsilon spent", _epsilon(spent.epsilon), f"of {spent.limit:g}", ""))
    return figures(cells)


def _policy(view: FollowedSite, held: Mapping[str, object]) -> Html:
    if not held:
        return section("What may leave, and what left", tag("p", "This site has not joined yet, so no policy holds."))
    allowed = held.get("allow")
    may = {str(kind) for kind in allowed} if isinstance(allowed, list) else None
    left = {kind: moved for (_, way, kind), moved in view.tally.moved.items() if way == "up"}
    rows = []
    for kind in sorted((may or set()) | left.keys(), key=lambda kind: (-left.get(kind, Moved()).bytes, kind)):
        moved = left.get(kind, Moved())
        rows.append(
            [
                f"{kinds.kind(kind)} ({kind})",
                "may leave" if may is None or kind in may else "not any more",
                when(moved.last) if moved.payloads else "never left",
                count(moved.payloads),
                byte_size(moved.bytes),
                byte_size(moved.largest),
            ]
        )
    head = ["what", "policy", "left last", "payloads", "in all", "the largest"]
    sentences = kinds.policy(held)
    limits = sentences if may is None else ["Nothing else may leave.", *sentences[1:]]
    since = f"The policy in force since {when(view.tally.policies[-1][0])}:"
    return section(
        "What may leave, and what left",
        table(head, rows, 3) if rows else "",
        tag("p", Html(since)),
        tag("ul", *(tag("li", one) for one in limits)),
        tag("p", f"It was changed {plural(len(view.tally.policies) - 1, 'time')}; the log says how.", class_="soft")
        if len(view.tally.policies) > 1
        else "",
    )


def _rounds(view: FollowedSite) -> Html:
    """The latest first."""
    numbers = sorted(view.tally.rounds, reverse=True)
    if not numbers:
        return section("Round by round", tag("p", "Nothing has left and nothing has come."))
    rows = []
    for number in numbers[:MOST_ROUNDS]:
        one = view.tally.rounds[number]
        rows.append(
            [
                count(number) if number else "before 1",
                when(_last_left(one) or one.ended),
                join([f"{sizes(_of(one, 'up'))}{_work(one)}", *_refusals(one)]),
                sizes(_of(one, "down")),
            ]
        )
    return section("Round by round", table(["round", "when", "left", "came"], rows, 4), more(len(numbers), MOST_ROUNDS))


def _of(one: RoundTally, direction: str) -> Mapping[str, Moved]:
    return {kind: moved for (way, kind), moved in one.moved.items() if way == direction}


def _last_left(one: RoundTally) -> float:
    return max((moved.last for moved in _of(one, "up").values()), default=0.0)


def _work(one: RoundTally) -> str:
    if not one.steps:
        return ""
    return f", after {plural(one.steps, 'step')} of training on {plural(one.examples, 'example')}"


def _refusals(one: RoundTally) -> list[Html]:
    told = Counter(one.stopped)
    return [tag("p", f"{why} ({times} ×)" if times > 1 else why, class_="stopped") for why, times in told.items()]


def _privacy(spent: Spent | None) -> Html:
    if spent is None:
        return Html("")
    told = f"By {spent.unit}, at delta {spent.delta:g}. Noise was drawn {plural(spent.draws, 'time')}."
    if spent.epsilon is None:
        return section("Privacy", tag("p", f"{told} To count epsilon, install grandrounds[privacy]."))
    left = f"{max(0.0, spent.limit - spent.epsilon):.3g}"
    share = min(1.0, spent.epsilon / spent.limit) if isfinite(spent.limit) and spent.limit else 1.0
    told += (
        f" Epsilon {_epsilon(spent.epsilon)} is spent, {left} left of the {spent.limit:g} that {spent.whose} allows."
    )
    picture = bar([Part(0, share, "s0")], f"{share:.0%} of epsilon is spent")
    return section("Privacy", tag("p", told), picture)


def _epsilon(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}"


def _size(moved: list[Moved]) -> tuple[str, str]:
    return parted(byte_size(sum(one.bytes for one in moved)))


def _number(held: Mapping[str, object], name: str) -> float | None:
    value = held.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
