"""The lines of an audit log as values, read on from where the last look ended; each is checked against the one before.

A log may be read while it is written: a line that is not whole yet is left for the next look.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from grandrounds.errors import foreign

START = "0" * 64
"""What the first line calls the one before."""
MOST_BYTES = 1 << 22
"""That one look takes in."""
MOST_LETTERS, MOST_HEADS = 300, 1000
"""Of a word in it; of heads that are remembered."""
OWN = ("time", "round", "exchange", "site", "direction", "kind", "bytes", "digest", "event", "previous")


@dataclass(frozen=True)
class Line:
    """A payload that travelled (`direction` is up or down), or an event."""

    number: int
    time: float
    round: int | None
    site: str
    direction: str
    kind: str
    bytes: int
    digest: str
    event: str
    more: Mapping[str, object] = field(default_factory=dict)
    """What else it says: of an event, or the work behind a reply."""
    exchange: int | None = None
    """Of its round, from 1 on; 0: no answer is awaited."""

    @property
    def travelled(self) -> bool:
        return bool(self.digest) and self.direction in ("up", "down")


class AuditLog:
    """A log that is read again and again, and only what is new of it."""

    def __init__(self, path: Path, noted: Collection[str] = ()) -> None:
        """`noted` are heads that somebody wrote down elsewhere, to be looked for."""
        self.path, self.lines, self.head, self.problem = path, 0, START, ""
        self._noted, self._met, self._last = noted, {START}, deque[str](maxlen=MOST_HEADS)
        self._read = 0

    def had(self, head: str) -> bool:
        """Whether this was its head once: one of those that were looked for, or of the last ones."""
        return head in self._met or head in self._last

    @property
    def whole(self) -> bool:
        return not self.problem

    def read(self, most: int = MOST_BYTES) -> list[Line]:
        """The next lines, at most so many bytes of them; none where nothing is new."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._read:
                    self._find("lines were cut from its end while it was being read")
                    return []
                file.seek(self._read)
                data = file.read(most)
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == most:
            self._find(f"{self._place(1)}this line is too long to be one of a log")
            self._read += len(data)
        self._read += len(whole)
        return list(self._lines(whole))

    def rest(self) -> Iterator[Line]:
        """All that there is."""
        while lines := self.read():
            yield from lines

    @property
    def behind(self) -> int:
        """Bytes that are there and not read yet; of a torn last line, its length."""
        try:
            return max(0, self.path.stat().st_size - self._read)
        except OSError:
            return 0

    def _lines(self, data: bytes) -> Iterator[Line]:
        for raw in data.splitlines():
            self.lines += 1
            try:
                record = json.loads(raw)
                claimed = record["previous"]
            except (ValueError, KeyError, TypeError, RecursionError):
                self._find(f"{self._place()}this line was edited or torn")
                record, claimed = {}, self.head
            if claimed != self.head:
                self._find(f"{self._place()}the chain is broken: the line before was edited, deleted or moved")
            self.head = sha256(raw).hexdigest()
            self._last.append(self.head)
            if self.head in self._noted:
                self._met.add(self.head)
            if record:
                yield _line(self.lines, record)

    def _place(self, further: int = 0) -> str:
        return f"{self.path.name}:{self.lines + further}: "

    def _find(self, problem: str) -> None:
        """The first problem is the one that is told."""
        self.problem = self.problem or problem


def _line(number: int, record: Mapping[str, object]) -> Line:
    more = {key: _bounded(value) for key, value in list(record.items())[:40] if key not in OWN}
    return Line(
        number,
        _number(record.get("time")),
        _ordinal(record.get("round")),
        _words(record.get("site")),
        _words(record.get("direction")),
        _words(record.get("kind")),
        max(0, int(_number(record.get("bytes")))),
        _words(record.get("digest")),
        _words(record.get("event")),
        more,
        _ordinal(record.get("exchange")),
    )


def _ordinal(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _number(value: object) -> float:
    known = isinstance(value, int | float) and abs(value) < 1e16 and math.isfinite(value)
    return float(value) if known and isinstance(value, int | float) else 0.0


def _words(value: object) -> str:
    return foreign(value, MOST_LETTERS) if isinstance(value, str) else ""


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return foreign(value, MOST_LETTERS)
    if isinstance(value, list):
        return [_bounded(one) for one in value[:100] if not isinstance(one, list | dict)]
    if isinstance(value, dict):
        return {foreign(str(k), 100): _bounded(v) for k, v in list(value.items())[:100] if not isinstance(v, dict)}
    return value
