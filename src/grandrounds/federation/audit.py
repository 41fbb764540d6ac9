"""A log of everything that travelled: one JSON line a payload, each holding the SHA-256 of the line before.

Editing, deleting or reordering a line breaks the chain; cutting the end is seen by whoever holds a later head (a
checkpoint, a result).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.payloads import Packed

START = "0" * 64


class Audit:
    """An append-only chain in a file; a line torn by a crash is put aside, and the log says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.head = START
        torn = self._recover() if path.exists() else 0
        self._file = path.open("a", encoding="utf-8")
        if torn:
            self.write(event="recovered", torn_bytes=torn)

    def write(self, **record: Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), **record, "previous": self.head})
        self._file.write(line + "\n")
        self._file.flush()
        self.head = sha256(line.encode()).hexdigest()

    def close(self) -> None:
        self._file.close()

    def _recover(self) -> int:
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
        if whole:
            self.head = sha256(whole.splitlines()[-1]).hexdigest()
        return len(data) - len(whole)


def log_payload(audit: Audit, where: Mapping[str, Any], direction: str, packed: Packed) -> None:
    """The line of a payload: the same on both sides, but for its time and its place in the chain."""
    audit.write(**where, direction=direction, kind=packed.kind, bytes=packed.nbytes, digest=packed.digest)


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


@dataclass(frozen=True)
class Agreement:
    """Two sides' logs of what passed between them."""

    agreed: int
    only_site: int
    """Payloads that the site logged and the coordinator did not: they were lost on the way, or it was killed."""


def compare(coordinator: Path, site: Path, name: str) -> Agreement:
    """GrandRoundsError names the first payload that the coordinator logged for this site and the site did not."""
    theirs = Counter(key for _, key in _payloads(site, name))
    agreed = 0
    for number, key in _payloads(coordinator, name):
        if not theirs[key]:
            raise GrandRoundsError(f"{coordinator}:{number}: '{site}' does not know of this payload")
        theirs[key] -= 1
        agreed += 1
    return Agreement(agreed, theirs.total())


def _payloads(path: Path, site: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    verify(path)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        record = json.loads(line)
        if "digest" in record and record.get("site") == site:
            yield number, tuple(record[key] for key in ("round", "exchange", "direction", "kind", "bytes", "digest"))
