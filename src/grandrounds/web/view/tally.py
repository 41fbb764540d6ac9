"""What an audit log adds up to, line by line: by site and kind, by round, and what was stopped."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from grandrounds.reports.audit_log import Line
from grandrounds.reports.audit_page import POLICY, stopped

RESUMED = "resumed"
HEARD = ("refused", "rejected", "failed")
"""Beginnings of events that follow from what a site said, and not from its silence."""
MOST_ROUNDS, MOST_SITES, MOST_REASONS, MOST_LINES = 1000, 10_000, 1000, 200
"""That are remembered; of rounds and lines the last ones. A log can be longer than a page, or memory, should be."""


@dataclass
class Moved:
    """Payloads of one kind, in one direction."""

    payloads: int = 0
    bytes: int = 0
    largest: int = 0
    last: float = 0.0
    """When; seconds since 1970, as all times here."""

    def add(self, line: Line) -> None:
        self.payloads += 1
        self.bytes += line.bytes
        self.largest = max(self.largest, line.bytes)
        self.last = line.time


@dataclass
class Span:
    """From an ask to its answer."""

    asked: float
    ended: float | None = None
    why: str = ""
    """Why there is no answer that counts; empty: there is one, or it may still come."""


@dataclass
class RoundTally:
    began: float
    ended: float
    spans: dict[str, list[Span]] = field(default_factory=dict)
    """By site."""
    moved: dict[tuple[str, str], Moved] = field(default_factory=lambda: defaultdict(Moved))
    """By direction and kind."""
    steps: int = 0
    examples: int = 0
    stopped: list[str] = field(default_factory=list)


@dataclass
class Stopped:
    """What a site refused, or what of a site did not count."""

    times: int = 0
    round: int | None = None
    last: float = 0.0


class Tally:
    """Lines, added up."""

    def __init__(self) -> None:
        self.moved: dict[tuple[str, str, str], Moved] = defaultdict(Moved)
        """By site, direction and kind."""
        self.heard: dict[str, float] = {}
        """Site -> when something of it came last."""
        self.rounds: dict[int, RoundTally] = {}
        self.stopped: dict[tuple[str, str], Stopped] = {}
        """By site and reason; of more than there is room for, one entry with neither."""
        self.policies: list[tuple[float, Mapping[str, object]]] = []
        """Since when which policy holds; of a site's own log."""
        self.lines: deque[Line] = deque(maxlen=MOST_LINES)
        self.last = 0.0
        self.round = 0
        self._replied = 0.0

    def add(self, line: Line) -> None:
        self.last = max(self.last, line.time)
        self.lines.append(line)
        if line.event == POLICY and isinstance(held := line.more.get("policy"), dict):
            if not self.policies or self.policies[-1][1] != held:
                self.policies = [*self.policies[-20:], (line.time, held)]
            return
        if line.site and line.site not in self.heard and len(self.heard) >= MOST_SITES:
            return
        if line.event == RESUMED:  # what came after the checkpoint is done again
            self.rounds = {number: one for number, one in self.rounds.items() if number <= (line.round or 0)}
        elif line.round is not None:
            self._add_to_round(line)
        if line.travelled:
            self.moved[line.site, line.direction, line.kind].add(line)
        elif stopped(line.event):
            self._stop(line)
        if line.site and (line.direction == "up" or line.event.startswith(HEARD)):
            self.heard[line.site] = _arrived(line)

    def total(self, direction: str, site: str | None = None) -> int:
        """Bytes."""
        return sum(m.bytes for (who, way, _), m in self.moved.items() if way == direction and site in (None, who))

    def payloads(self, direction: str, site: str) -> int:
        return sum(m.payloads for (who, way, _), m in self.moved.items() if (who, way) == (site, direction))

    def by_kind(self, direction: str) -> Counter[str]:
        """Bytes, the most first."""
        found = Counter[str]()
        for (_, way, kind), moved in self.moved.items():
            if way == direction:
                found[kind] += moved.bytes
        return found

    def _add_to_round(self, line: Line) -> None:
        assert line.round is not None
        if line.round not in self.rounds:
            self.rounds[line.round] = RoundTally(line.time, line.time)
            self._replied = line.time
            if len(self.rounds) > MOST_ROUNDS:
                del self.rounds[next(iter(self.rounds))]
        self.round, tally = line.round, self.rounds[line.round]
        tally.ended = line.time
        if line.travelled:
            tally.moved[line.direction, line.kind].add(line)
            tally.steps += _count(line.more.get("steps"))
            tally.examples += _count(line.more.get("examples"))
        elif stopped(line.event):
            tally.stopped.append(line.event)
        if line.site and line.exchange != 0:
            self._add_span(tally.spans.setdefault(line.site, []), line, tally)

    def _add_span(self, spans: list[Span], line: Line, tally: RoundTally) -> None:
        under_way = bool(spans) and spans[-1].ended is None
        if line.direction == "down" or line.event in ("asked", "secure sum"):
            if not under_way:
                spans.append(Span(line.time))
            return
        if not (line.travelled or stopped(line.event)):
            return
        if not under_way:
            if spans:  # a second payload of the same answer, or why the answer did not count
                spans[-1].why = spans[-1].why or ("" if line.travelled else line.event)
                return
            spans.append(Span(tally.began))
        if "arrived" not in line.more:  # sites of a simulation take turns: each begins when its reply is wanted
            spans[-1].asked = max(spans[-1].asked, self._replied)
        spans[-1].ended = max(spans[-1].asked, _arrived(line))
        spans[-1].why = "" if line.travelled else line.event
        self._replied = line.time

    def _stop(self, line: Line) -> None:
        key = (line.site, line.event)
        if key not in self.stopped and len(self.stopped) >= MOST_REASONS:
            key = ("", "")
        known = self.stopped.setdefault(key, Stopped())
        known.times += 1
        known.round, known.last = line.round, line.time


def _arrived(line: Line) -> float:
    """A coordinator takes answers in the order of the sites; each came earlier, or just then."""
    arrived = line.more.get("arrived")
    return min(float(arrived), line.time) if isinstance(arrived, int | float) else line.time


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 53 else 0
