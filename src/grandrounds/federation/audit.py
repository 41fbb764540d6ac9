"""A log of everything that travelled: one JSON line a payload, each holding the SHA-256 of the line before.

Editing, deleting or reordering a line breaks the chain; a later head, held elsewhere, shows that the end was cut (a
checkpoint, a result).
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.files import disk_error

if TYPE_CHECKING:  # a log is checked without torch
    from grandrounds.federation.exchange import Work
    from grandrounds.federation.payloads import Packed

START = "0" * 64


class Audit:
    """An append-only chain in a file; a line torn by a crash is put aside, and the log says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = START
        torn = self._recover() if path.exists() else 0
        self._file = path.open("ab", buffering=0)
        if torn:
            self.write(event="recovered", torn_bytes=torn)

    def write(self, **record: Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), **record, "previous": self.head}).encode()
        size = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(line + b"\n") != len(line) + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.truncate(size)  # half a line would break the chain for good
            raise disk_error(error, self.path) from error
        self.head = sha256(line).hexdigest()

    def close(self) -> None:
        self._file.close()

    def _recover(self) -> int:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        if whole:
            self.head = sha256(whole.splitlines()[-1]).hexdigest()
        return len(data) - len(whole)


def log_payload(
    audit: Audit, where: Mapping[str, Any], direction: str, packed: Packed, work: Work | None = None
) -> None:
    """The line of a payload, with the work that a reply tells of beside its first one: the same on both sides, but for
    its time and its place in the chain."""
    reported = {} if work is None else work._asdict()
    audit.write(**where, direction=direction, kind=packed.kind, bytes=packed.nbytes, digest=packed.digest, **reported)


def verify(path: Path, head: str | None = None) -> int:
    """How many lines the log has; GrandRoundsError names the first line that is not as it was written."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise GrandRoundsError(f"cannot read the audit log '{path}': {error.strerror}") from error
    previous, seen = START, {START}
    for number, line in enumerate(lines, start=1):
        try:
            claimed = json.loads(line)["previous"]
        except (ValueError, KeyError, TypeError) as error:
            raise GrandRoundsError(f"{path}:{number}: this line was edited or torn") from error
        if claimed != previous:
            raise GrandRoundsError(
                f"{path}:{number}: the chain is broken: the line before was edited, deleted or moved"
            )
        previous = sha256(line).hexdigest()
        seen.add(previous)
    if head is not None and head not in seen:
        raise GrandRoundsError(f"{path}: the log was cut or its last line edited: a later line was once recorded")
    return len(lines)


def head_of(path: Path) -> str:
    """What to note down elsewhere: it shows whether the log was cut later."""
    lines = path.read_bytes().splitlines()
    return sha256(lines[-1]).hexdigest() if lines else START


class Travelled(NamedTuple):
    """What passed in a round, of one kind and in one direction."""

    round: int
    direction: str
    kind: str
    payloads: int
    bytes: int


def summary(path: Path, site: str | None = None) -> tuple[list[Travelled], list[float]]:
    """By round, direction and kind, of all sites or one; and when its first and last line were written."""
    verify(path)
    found: Counter[tuple[int, str, str]] = Counter()
    sizes: Counter[tuple[int, str, str]] = Counter()
    times = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        times.append(float(record["time"]))
        if "digest" in record and site in (None, record.get("site")):
            place = int(record["round"]), str(record["direction"]), str(record["kind"])
            found[place] += 1
            sizes[place] += int(record["bytes"])
    return [Travelled(*place, found[place], sizes[place]) for place in sorted(found)], times[:1] + times[-1:]


@dataclass(frozen=True)
class Agreement:
    """Two sides' logs of what passed between them."""

    agreed: int
    undelivered: int
    """Payloads that the coordinator sent and the site never got: it was away."""
    unreceived: int
    """Payloads that the site sent and the coordinator never got: the line broke, or one of them was killed."""


def compare(coordinator: Path, site: Path, name: str) -> Agreement:
    """GrandRoundsError names the first payload that one side got and the other did not send."""
    ours, theirs = _payloads(coordinator, name), _payloads(site, name)
    for got, sent, direction in ((ours, theirs, "up"), (theirs, ours, "down")):
        for key, (path, number) in got.items():
            if key[2] == direction and key not in sent:
                other = site if direction == "up" else coordinator
                raise GrandRoundsError(f"{path}:{number}: '{other}' does not know of this payload")
    lonely = [[key for key in ours if key not in theirs], [key for key in theirs if key not in ours]]
    return Agreement(len(ours.keys() & theirs.keys()), *map(len, lonely))


def _payloads(path: Path, site: str) -> dict[tuple[Any, ...], tuple[Path, int]]:
    """What was logged of this site, and where; a round that was run again after a crash is logged again."""
    verify(path)
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        record = json.loads(line)
        if "digest" in record and record.get("site") == site:
            key = tuple(record[name] for name in ("round", "exchange", "direction", "kind", "bytes", "digest"))
            found[key] = path, number
    return found
