"""Checkpoints: atomic, digest-checked; the last two are kept, their best rounds, and the one before round 1.

A checkpoint holds the server's state, the version of private state each site is at, and what selection has seen so far.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.state import Flat
from grandrounds.federation.state_folder import DamagedError, read_folder, write_folder


@dataclass(frozen=True)
class Progress:
    """What a checkpoint says beside the weights."""

    round: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    holding: Sequence[str] = ()
    """Sites that have the public set."""
    best_round: int | None = None
    best: float | None = None
    """The score of that round on validation data."""
    stale: int = 0
    """Evaluations since the best one."""
    outliers: Mapping[str, int] = field(default_factory=dict)
    """Site -> in how many rounds its update was far larger than the median."""
    audit: str = ""
    """Head of the audit log."""


class Checkpoints:
    def __init__(self, folder: Path, say: Callable[[str], None] = lambda sentence: None) -> None:
        self._folder, self._say = folder, say
        self._kept: dict[int, Progress] = {}

    def save(self, progress: Progress, state: Mapping[str, Flat]) -> None:
        """Write one, and forget those that nobody needs."""
        write_folder(self._path(progress.round), state, asdict(progress))
        self._kept[progress.round] = progress
        rounds = self._rounds()
        wanted = {0, *rounds[-2:], *(self._kept[round].best_round for round in rounds[-2:] if round in self._kept)}
        for round in rounds:
            if round not in wanted:
                shutil.rmtree(self._path(round), ignore_errors=True)
                self._kept.pop(round, None)

    def pinned(self) -> list[Mapping[str, str]]:
        """The private versions that checkpoints name."""
        return [progress.versions for progress in self._kept.values()]

    def last(self) -> tuple[Progress, dict[str, Flat]]:
        """The newest good one whose best round is good too; a damaged one is passed over, and that is said."""
        good: dict[int, tuple[Progress, dict[str, Flat]]] = {}
        damaged = []
        for round in self._rounds():
            try:
                progress, state = self.load(round)
            except DamagedError as problem:
                self._say(f"checkpoint of round {round}: {problem}; the one before is used")
                damaged.append(round)
                continue
            if progress.best_round in (None, round, *good):
                good[round] = progress, state
            else:
                damaged.append(round)  # it would be selected from a round that is lost
        if not good:
            raise GrandRoundsError(
                f"there is no whole checkpoint in '{self._folder}' to resume from; start the run anew in another folder"
            )
        for round in damaged:
            shutil.rmtree(self._path(round), ignore_errors=True)
        self._kept = {round: progress for round, (progress, _) in good.items()}
        return good[max(good)]

    def load(self, round: int) -> tuple[Progress, dict[str, Flat]]:
        state, record = read_folder(self._path(round))
        try:
            return Progress(**record), state
        except TypeError as error:
            raise DamagedError("it was written by another version of Grand Rounds") from error

    def _rounds(self) -> list[int]:
        return sorted(int(path.name.removeprefix("round-")) for path in self._folder.glob("round-*"))

    def _path(self, round: int) -> Path:
        return self._folder / f"round-{round:05d}"
