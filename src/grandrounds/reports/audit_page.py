"""An audit log as one page to file: what left and what came, when, how much, under which policy, and whether the log is
as it was written."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from grandrounds.errors import GrandRoundsError, foreign
from grandrounds.reports import kinds
from grandrounds.reports.audit_log import AuditLog, Line
from grandrounds.reports.markup import Html, join, page, table, tag
from grandrounds.reports.runs import run_name
from grandrounds.reports.wording import byte_size, count, plural

MOST_PAYLOADS, MOST_EVENTS, MOST_ROUNDS = 5000, 2000, 1000
"""Rows of the page's tables; what is beyond them is counted."""
ORDINARY = ("asked", "registered", "secure sum")
"""Events of every round, which are counted and not listed."""
POLICY = "policy"
CHAIN = (
    "Each line holds a digest of the line before it, so a line that was edited, deleted or moved breaks the chain. The "
    "head is the digest of the last line: where it was noted elsewhere, too, lines cut from the end would show."
)


@dataclass(frozen=True)
class Checked:
    """Whether the log is as it was written, and by what that is known."""

    good: bool
    sentence: str


def write_audit_page(
    path: Path, out: Path, noted: Mapping[str, str] | GrandRoundsError, site: str | None = None
) -> Checked:
    """`noted` are heads to be found in the log, or why they can't be trusted; `site` is one of a coordinator's log."""
    if not path.is_file():
        raise GrandRoundsError(f"there is no audit log at '{path}'; check the path")
    heads = {} if isinstance(noted, GrandRoundsError) else noted
    log = AuditLog(path, set(heads.values()))
    lines = [line for line in log.rest() if site in (None, line.site) or not line.site]
    checked = verified(log, heads)
    if checked.good and isinstance(noted, GrandRoundsError):
        checked = Checked(False, f"Not verified: {noted}.")
    owner = _owner(path.parent.parent)
    run = run_name(path.parent)
    whose = f"site {owner}" if owner else f"{run}, site {site}" if site else run
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(audit_page(path, whose, checked, lines, own=bool(owner)), encoding="utf-8")
    return checked


def _owner(folder: Path) -> str:
    """The site whose enrolment this is; empty where it is none: the log is a run's."""
    try:
        return foreign(str(tomllib.loads((folder / "site.toml").read_text(encoding="utf-8"))["name"]), 64)
    except (OSError, ValueError, KeyError):
        return ""


def audit_page(log: Path, whose: str, checked: Checked, lines: Sequence[Line], own: bool) -> str:
    """`own`: a site's own log, of which "up" is what left that site; otherwise it is what all its sites sent."""
    travelled = [line for line in lines if line.travelled]
    title = f"What left {whose}" if own else f"What travelled: {whose}"
    return page(
        "page.html",
        title,
        join(
            [
                tag("h1", title),
                tag("p", f"{_period(lines)} Made on {moment(datetime.now().timestamp())}.", class_="sub"),
                tag("p", checked.sentence, class_="notice good" if checked.good else "notice bad", role="status"),
                tag("p", CHAIN, class_="soft"),
                _figures(travelled, lines, own),
                _policies(lines, own),
                _by_round(travelled, own),
                _refusals(lines, own),
                _payloads(travelled, own),
                _events(lines, own),
                _footer(log, lines),
            ]
        ),
        "page.css",
        "audit.css",
    )


def verified(log: AuditLog, noted: Mapping[str, str]) -> Checked:
    """Of a log that has been read to its end; `noted` are heads by where they were found."""
    if not log.whole:
        return Checked(False, f"Not verified: {log.problem}.")
    if log.behind:
        return Checked(False, f"Not verified: {log.path.name}:{log.lines + 1}: the last line is incomplete.")
    whole = f"Verified: the chain of {plural(log.lines, 'line')} is whole"
    for where, head in noted.items():
        if not log.had(head):
            return Checked(
                False, f"Not verified: the log was cut or its last line edited: {where} has a head that it lacks."
            )
    if noted:
        return Checked(True, f"{whole}, and has the head that was noted in {' and in '.join(noted)}.")
    return Checked(
        True,
        f"{whole}. No head that was noted elsewhere was compared, so lines cut from its end would not show; note this "
        f"one: {log.head}",
    )


def moment(seconds: float) -> str:
    """19 November 2026, 01:43:48 UTC"""
    try:
        when = datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
    return f"{when.day} {when:%B %Y, %H:%M:%S %Z}"


def _period(lines: Sequence[Line]) -> str:
    times = [line.time for line in lines if line.time]
    return f"From {moment(times[0])} to {moment(times[-1])}." if times else "The log is empty."


def _figures(travelled: Sequence[Line], lines: Sequence[Line], own: bool) -> Html:
    up = [line for line in travelled if line.direction == "up"]
    down = [line for line in travelled if line.direction == "down"]
    refused = sum(line.event.startswith("refused: ") for line in lines)
    rounds = len({line.round for line in up if line.round})
    cells = [
        ("left" if own else "sent by sites", _size(up), plural(len(up), "payload")),
        ("came" if own else "sent to sites", _size(down), plural(len(down), "payload")),
        ("rounds in which something left", count(rounds), ""),
        ("refused", count(refused), "before anything left" if own else "by sites"),
    ]
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", what),
                tag("dd", *_parted(value), class_="value"),
                tag("dd", more, class_="against") if more else "",
            )
            for what, value, more in cells
        ),
        class_="figures",
    )


def _parted(figure: str) -> Iterator[str]:
    number, _, unit = figure.partition(" ")
    yield number
    if unit:
        yield tag("span", unit, class_="unit")


def _size(lines: Sequence[Line]) -> str:
    return byte_size(sum(line.bytes for line in lines))


def _policies(lines: Sequence[Line], own: bool) -> Html:
    """From when on which policy held; one that was repeated unchanged is told once."""
    told = list[tuple[float, list[str]]]()
    for line in lines:
        if line.event == POLICY and isinstance(held := line.more.get("policy"), dict):
            sentences = kinds.policy(held)
            if not told or told[-1][1] != sentences:
                told.append((line.time, sentences))
    heading = tag("h2", "The policy")
    if not own:
        why = "Each site's policy is its own, and this log does not hold it; what a policy stopped is listed below."
        return join([heading, tag("p", why)])
    if not told:
        return join([heading, tag("p", "The log does not say which policy held.")])
    parts = [
        join([tag("p", f"From {moment(when)}:"), tag("ul", *(tag("li", one) for one in sentences))])
        for when, sentences in told[-MOST_EVENTS:]
    ]
    return join([heading, *parts])


def _by_round(travelled: Sequence[Line], own: bool) -> Html:
    number: Counter[tuple[int, str, str]] = Counter()
    sizes: Counter[tuple[int, str, str]] = Counter()
    for line in travelled:
        place = line.round or 0, line.direction, line.kind
        number[place] += 1
        sizes[place] += line.bytes
    if not number:
        return join([tag("h2", "By round and kind"), tag("p", "Nothing travelled.")])
    rows = [
        [
            _round(place[0]),
            _way(place[1], own),
            f"{kinds.kind(place[2])} ({place[2]})",
            count(number[place]),
            byte_size(sizes[place]),
        ]
        for place in sorted(number, key=lambda place: (place[0], place[1] != "up", place[2]))
    ]
    more = _more(len(rows), MOST_ROUNDS)
    return join(
        [
            tag("h2", "By round and kind"),
            table(["round", "direction", "what", "payloads", "size"], rows[:MOST_ROUNDS], 3),
            more,
        ]
    )


def _round(number: int) -> str:
    return count(number) if number else "before round 1"


def _way(direction: str, own: bool, sites: str = "sites") -> str:
    names = {"up": "left", "down": "came"} if own else {"up": f"from {sites}", "down": f"to {sites}"}
    return names[direction]


def _refusals(lines: Sequence[Line], own: bool) -> Html:
    reasons = Counter(
        (line.site, line.event) for line in lines if line.event and not line.travelled and stopped(line.event)
    )
    if not reasons:
        return join([tag("h2", "What was refused or rejected"), tag("p", "Nothing.")])
    rows = [
        [*([] if own else [site or "–"]), why, count(times)] for (site, why), times in reasons.most_common(MOST_ROUNDS)
    ]
    head = [*([] if own else ["site"]), "why", "times"]
    return join(
        [
            tag("h2", "What was refused or rejected"),
            table(head, rows, len(head) - 1),
            _more(len(reasons), MOST_ROUNDS),
        ]
    )


def stopped(event: str) -> bool:
    """Whether it says why something does not count, or did not leave."""
    return event.split(":")[0] in ("refused", "rejected", "late", "cut off", "failed", "gone", "lost", "model refused")


def _payloads(travelled: Sequence[Line], own: bool) -> Html:
    """Each with its digest, by which a copy of it can be recognised."""
    rows = [
        [
            moment(line.time),
            _round(line.round or 0),
            *([] if own else [line.site]),
            _way(line.direction, own, "site"),
            line.kind,
            tag("code", line.digest),
            f"{count(line.bytes)} B",
        ]
        for line in travelled[:MOST_PAYLOADS]
    ]
    if not rows:
        return Html("")
    head = ["when", "round", *([] if own else ["site"]), "direction", "kind", "SHA-256 of its content", "bytes"]
    payloads = tag("div", table(head, rows, len(head) - 1), class_="payloads")
    return join([tag("h2", "Each payload"), payloads, _more(len(travelled), MOST_PAYLOADS)])


def _events(lines: Sequence[Line], own: bool) -> Html:
    told = [line for line in lines if line.event and line.event not in ORDINARY and not line.travelled]
    counted = Counter(line.event for line in lines if line.event in ORDINARY)
    said = [f"{kinds.event(name)}: {plural(times, 'time')}" for name, times in counted.items()]
    rows = [
        [
            moment(line.time),
            "" if line.round is None else _round(line.round),
            *([] if own else [line.site]),
            kinds.event(line.event),
        ]
        for line in told[:MOST_EVENTS]
    ]
    if not rows and not said:
        return Html("")
    return join(
        [
            tag("h2", "What else happened"),
            tag("p", f"{'; '.join(said)}.".capitalize()) if said else "",
            table(["when", "round", *([] if own else ["site"]), "what"], rows, 4) if rows else "",
            _more(len(told), MOST_EVENTS),
        ]
    )


def _more(there: int, shown: int) -> Html:
    if there <= shown:
        return Html("")
    return tag("p", f"And {count(there - shown)} more: the log itself lists them.", class_="soft")


def _footer(log: Path, lines: Sequence[Line]) -> Html:
    return tag("footer", f"{log.name}, {plural(len(lines), 'line')}. Times are this machine's.")
