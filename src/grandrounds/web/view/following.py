"""A folder that somebody else writes to, read on as it grows: a run's, or a site's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grandrounds.errors import ConfigError, GrandRoundsError, foreign
from grandrounds.federation.files import LOCK, locked
from grandrounds.reports.audit_log import AuditLog
from grandrounds.reports.audit_page import Checked, verified
from grandrounds.reports.noted import noted_heads
from grandrounds.reports.runs import FOUNDED, Run, read_run, run_name
from grandrounds.runs.results import (
    METRICS,
    PARTICIPANTS,
    PRESENCE,
    RESULT,
    Participants,
    Presence,
    read_participants,
    read_presence,
)
from grandrounds.web.view.tally import Tally

LOG, ENROLMENT = "audit.jsonl", "site.toml"
RUN_FILES = ("config.toml", METRICS, RESULT, LOG, PRESENCE, PARTICIPANTS, LOCK)
MOST_STATE = 1 << 26
"""Bytes of a checkpoint's JSON that are read."""


@dataclass(frozen=True)
class Place:
    """What there is to look at."""

    folder: Path
    """That has the log."""
    name: str
    enrolment: Path | None = None
    """The site's, where this is a site's own log."""


def find_place(given: Path) -> Place:
    """What a folder, or a log in it, belongs to; ConfigError where it is nothing of ours."""
    folder = given.parent if given.name == LOG else given
    if (folder / FOUNDED).is_file():
        return Place(folder / "run", folder.resolve().name)
    for enrolment in (folder, folder.parent):
        if (enrolment / ENROLMENT).is_file() and folder in (enrolment, enrolment / "private"):
            from grandrounds.deployment.enrolment import read_enrolment

            return Place(enrolment / "private", read_enrolment(enrolment).site.name, enrolment)
    if folder.is_dir() and any((folder / name).exists() for name in RUN_FILES):
        return Place(folder, run_name(folder))
    raise ConfigError(
        f"'{given}' is no run's folder, no federation's and no site's enrolment; name one that holds config.toml, "
        "founded.toml or site.toml"
    )


class FollowedLog:
    """An audit log, added up as far as it goes."""

    def __init__(self, path: Path) -> None:
        self._path, self._begin = path, b""
        self.log, self.tally = AuditLog(path), Tally()
        self.checked = Checked(True, "")

    def look(self, live: bool) -> bool:
        """Whether anything is new. Heads that are noted elsewhere are read first, so that the log has them already."""
        before = self.log, self.log.lines, self.checked
        try:
            noted = dict(noted_heads(self._path))
            problem = ""
        except GrandRoundsError as error:
            noted, problem = {}, str(error)
        self._begin_anew(set(noted.values()))
        for line in self.log.rest():
            self.tally.add(line)
        if problem and self.log.whole:
            self.checked = Checked(False, f"Not verified: {problem}.")
        elif not (live and self.log.whole and self.log.behind):  # else a line is being written
            self.checked = verified(self.log, noted)
        return before != (self.log, self.log.lines, self.checked)

    def _begin_anew(self, noted: set[str]) -> None:
        """Where the file is another one than before: a run was started over, and its first line has another time."""
        try:
            with self._path.open("rb") as file:
                begin = file.readline(300)
        except OSError:
            begin = b""
        if begin != self._begin:
            self.log, self.tally, self._begin = AuditLog(self._path, noted), Tally(), begin


@dataclass(frozen=True)
class ResumePoint:
    """The last checkpoint."""

    round: int
    best_round: int | None


class FollowedRun:
    """A run's folder: what is known of it after the last look."""

    def __init__(self, place: Place, alone: Path | None = None) -> None:
        self.place, self.followed = place, FollowedLog(place.folder / LOG)
        self.run: Run | None = None
        self.participants: Participants | None = None
        self.presence: Presence | None = None
        self.resume: ResumePoint | None = None
        self.running = False
        self.problem = ""
        """Why something of the folder can't be read."""
        self.alone = read_run(alone) if alone else None
        self._seen: dict[str, tuple[int, int]] = {}

    @property
    def tally(self) -> Tally:
        return self.followed.tally

    @property
    def finished(self) -> bool:
        return self.run is not None and self.run.result is not None

    def look(self) -> bool:
        """Whether anything is new."""
        folder = self.place.folder
        before = self.running, self.run, self.participants, self.presence, self.resume, self.problem
        self.running = locked(folder / LOCK)
        try:
            if self._changed("config.toml", METRICS, RESULT):
                there = any((folder / name).is_file() for name in ("config.toml", METRICS, RESULT))
                self.run = read_run(folder) if there else None
            if self._changed(PARTICIPANTS):
                self.participants = read_participants(folder)
            if self._changed(PRESENCE):
                self.presence = read_presence(folder)
            self.problem = ""
        except (GrandRoundsError, OSError, ValueError) as error:
            self.problem = foreign(str(error)) if isinstance(error, GrandRoundsError) else "a file can't be read"
            self._seen = {}
        self.resume = self._resume_point()
        now = self.running, self.run, self.participants, self.presence, self.resume, self.problem
        return self.followed.look(self.running) or any(a is not b for a, b in zip(before, now, strict=True))

    def _changed(self, *names: str) -> bool:
        found = {name: _signature(self.place.folder / name) for name in names}
        changed = any(self._seen.get(name) != found[name] for name in names)
        self._seen |= found
        return changed

    def _resume_point(self) -> ResumePoint | None:
        rounds = [path for path in (self.place.folder / "checkpoints").glob("round-*") if path.name[6:].isdecimal()]
        if not rounds:
            return None
        last = max(rounds, key=lambda path: int(path.name[6:]))
        number = int(last.name[6:])
        if self.resume is not None and self.resume.round == number:
            return self.resume
        return ResumePoint(number, _best_round(last / "state.json"))


class FollowedSite:
    """A site's own folder."""

    def __init__(self, place: Place) -> None:
        assert place.enrolment is not None
        self.enrolment = place.enrolment
        self.place, self.followed = place, FollowedLog(place.folder / LOG)
        self.running = False

    @property
    def tally(self) -> Tally:
        return self.followed.tally

    def look(self) -> bool:
        """Whether anything is new."""
        before, self.running = self.running, locked(self.place.folder / LOCK)
        return self.followed.look(self.running) or self.running != before


def _signature(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size


def _best_round(state: Path) -> int | None:
    """Of a checkpoint's record; its weights are not read."""
    try:
        if state.stat().st_size > MOST_STATE:
            return None
        record: dict[str, Any] = json.loads(state.read_bytes())["record"]
        best = record["best_round"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return best if type(best) is int else None
