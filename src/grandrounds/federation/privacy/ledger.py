"""What a site has spent, on its own disk: a line for each time that it drew noise, written before anything is drawn.

So a crash between noise and sending counts as spent, and nothing is ever given back. Lines are chained by hashes, as in
the audit log. One file is of one set of patients: federations that use the same data name the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import Audit, verify
from grandrounds.federation.files import disk_error, sync
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.accounting import Draw, epsilon, merged
from grandrounds.federation.privacy.settings import Unit

SPENT = "spent"


class Limit(NamedTuple):
    epsilon: float
    delta: float
    whose: str
    """Who set it, for the refusal."""
    run: str = ""
    """Whose lines count; all, unless it is named."""


class SpendingLedger:
    def __init__(
        self, path: Path, unit: Unit, repeatable: bool = False, changed: Callable[[str], None] = lambda head: None
    ) -> None:
        """`repeatable`: noise comes from the seed, so the same ask has the same noise and is paid for once. `changed`
        hears the head of the chain after each line."""
        self.path, self._unit, self._repeatable, self._changed = path, unit, repeatable, changed
        self._cleared: dict[tuple[Any, ...], int] = {}

    def spend(self, ask: Mapping[str, Any], draw: Draw, limits: Sequence[Limit], planned: int = 0) -> None:
        """Write it down; RefusalError where it would go beyond a limit. `planned` are the steps of this kind in the
        whole run: what fits as a whole need not be looked at step by step."""
        with self._locked():
            lines = self.lines()
            if self._repeatable and any(all(line.get(key) == value for key, value in ask.items()) for line in lines):
                return
            for limit in limits:
                counted = [line for line in lines if limit.run in ("", line.get("run"))]
                self._check(draws_of(counted), draw, limit, planned)
            self._write({**ask, "event": SPENT, "unit": self._unit, **draw._asdict()})

    def lines(self) -> list[dict[str, Any]]:
        """Of what was spent; GrandRoundsError where the file was edited, or counts by another unit."""
        lines = spent_lines(self.path) if self.path.exists() else []
        for line in lines:
            if line["unit"] != self._unit:
                raise RefusalError(
                    f"this site's privacy ledger counts by {line['unit']}, and these terms count by {self._unit}: what "
                    "was spent can't be added up; agree on one unit"
                )
        return lines

    def epsilon(self, delta: float, *more: Draw) -> float:
        """Of all that was spent, and of more."""
        return epsilon([*draws_of(self.lines()), *more], delta)

    def _check(self, before: Sequence[Draw], draw: Draw, limit: Limit, planned: int) -> None:
        alike = [d for d in before if (d.noise, d.rate) == (draw.noise, draw.rate)]
        others = merged(d for d in before if d not in alike)
        steps, key = sum(d.steps for d in alike) + draw.steps, (others, draw.noise, draw.rate, limit)
        if steps <= self._cleared.get(key, 0):
            return
        for candidate in sorted({steps, max(steps, planned)}, reverse=True):
            found = epsilon([*others, draw._replace(steps=candidate)], limit.delta)
            if found <= limit.epsilon:
                self._cleared[key] = candidate
                return
        raise RefusalError(
            f"this site's privacy budget is spent: with this it would be epsilon {found:.3g}, and {limit.whose} allows "
            f"{limit.epsilon:g} (delta {limit.delta:g})"
        )

    def _write(self, line: Mapping[str, Any]) -> None:
        audit = Audit(self.path)
        try:
            audit.write(**line)
        finally:
            audit.close()
        try:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            sync(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from error
        self._changed(audit.head)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two federations may use the same data at the same time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(f".{self.path.name}.lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise disk_error(error, self.path) from error


def spent_lines(path: Path) -> list[dict[str, Any]]:
    """What was spent; GrandRoundsError where a line was edited."""
    return [line for line in _read(path) if line.get("event") == SPENT]


def draws_of(lines: Sequence[Mapping[str, Any]]) -> list[Draw]:
    return [Draw(float(line["noise"]), float(line["rate"]), int(line["steps"])) for line in lines]


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GrandRoundsError(f"cannot read the privacy ledger '{path}': {error.strerror}") from error
    whole = data[: data.rfind(b"\n") + 1]  # a line torn by a crash: its noise was never drawn
    if whole == data:
        verify(path)
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
        draws_of([line for line in lines if line.get("event") == SPENT])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GrandRoundsError(f"'{path}' is not a privacy ledger, or was edited") from error
    return lines
