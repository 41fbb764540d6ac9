"""Progress of several runs at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import TaskID

from grandrounds.cli.console import Bars, err, round_line

if TYPE_CHECKING:
    from grandrounds.simulation.sweep import Arm


class LiveArms(Bars):
    """A bar for each run, with the name of its folder; of several comparisons, with theirs before it. Without a
    terminal, a line a round."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[Path, TaskID] = {}
        self._said: dict[Path, int] = {}
        """How many rounds of a run have been told of."""
        self._done: set[Path] = set()

    def __call__(self, arms: Sequence[Arm]) -> None:
        top = Path(os.path.commonpath([arm.folder.parent for arm in arms]))
        for arm in arms:
            if arm.folder in self._done:
                continue
            total, name = arm.config.federation.rounds, str(arm.folder.relative_to(top))
            finished = (arm.folder / "result.json").exists() and _planned(arm) >= total
            rounds = min(arm.rounds_done(), total)
            if arm.folder not in self._tasks:
                self._tasks[arm.folder] = self.add(name, total, rounds)
                self._said[arm.folder] = rounds
            self.bars.update(
                self._tasks[arm.folder], completed=total if finished else rounds, word="done" if finished else ""
            )
            if not err.is_terminal:
                self._tell(arm, name, rounds)
            if finished:
                self._done.add(arm.folder)
                if not err.is_terminal:
                    err.print(f"  {name}: done", soft_wrap=True)

    def _tell(self, arm: Arm, name: str, rounds: int) -> None:
        from grandrounds.runs.results import read_rounds

        if rounds > self._said[arm.folder]:
            for round in read_rounds(arm.folder)[0][self._said[arm.folder] : rounds]:
                err.print(f"  {name}: {round_line(round)}", soft_wrap=True)
        self._said[arm.folder] = rounds


class LiveRuns(Bars):
    """Many short runs: one bar for all; without a terminal, a line for each that is done."""

    def __init__(self, what: str, arms: Sequence[Arm]) -> None:
        super().__init__()
        self._left = {arm.folder: arm for arm in arms}
        self._task = self.add(what, len(arms))

    def __call__(self, arms: Sequence[Arm]) -> None:
        done = [arm for arm in self._left.values() if (arm.folder / "result.json").exists()]
        for arm in done:
            del self._left[arm.folder]
            name = f"{arm.folder.parent.name}/{arm.folder.name}"
            self.bars.update(self._task, completed=len(arms) - len(self._left), word=name)
            if not err.is_terminal:
                err.print(f"  {name}: done, {len(arms) - len(self._left)} of {len(arms)}", soft_wrap=True)


def _planned(arm: Arm) -> int:
    """Of the run that has finished: one that is being prolonged has not."""
    from grandrounds.runs.results import read_result

    return read_result(arm.folder).rounds_planned
