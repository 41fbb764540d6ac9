"""What a person sees: progress on standard error, so that standard output holds results alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.text import Text

from grandrounds.errors import printable

if TYPE_CHECKING:
    from grandrounds.runs.results import Round
    from grandrounds.setup.server import ServerSetup
    from grandrounds.simulation.sweep import Arm


class PlainConsole(Console):
    """Prints every string as it is, in tables too: sites, corpora and files choose words, and none of them is markup.
    What of ours has a style is a `Text`."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """All that is printed passes here; rich's own control codes are segments of another kind."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


out, err = PlainConsole(), PlainConsole(stderr=True)


def complain(sentence: str) -> None:
    err.print(Text.assemble(("grandrounds:", "bold red"), f" {sentence}"), soft_wrap=True)


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def show_warnings(warnings: Mapping[str, int]) -> None:
    """What was left out is always said."""
    for what, count in sorted(warnings.items()):
        err.print(f"  warning: {count} {what}", soft_wrap=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A spinner for what takes a while and can't be counted."""
    with err.status(Text(what)):
        yield


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar for what can be counted, though its end may not be known; gives what to call after each step."""
    progress = bars()
    task = progress.add_task(what, total=total, word="")
    if err.is_terminal:
        progress.start()
    try:
        yield lambda: progress.advance(task)
    finally:
        progress.stop()


def bars() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[word]}", markup=False),
        console=err,
    )


class Live:
    """A run's progress: a bar for rounds, one for the sites of this round; without a terminal, a line a round."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self._bars = quiet, bars()
        self._preparing = self._rounds = self._sites = self._bars.add_task(
            "reading and tokenising", total=None, word=""
        )

    def __enter__(self) -> Live:
        if err.is_terminal and not self._quiet:
            self._bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._bars.stop()

    def say(self, sentence: str) -> None:
        err.print(f"  {sentence}", soft_wrap=True)

    def started(self, setup: ServerSetup, rounds: int, done: int) -> None:
        if not self._quiet:
            held = sum(row.examples for row in setup.table)
            served = ", ".join(f"{name} {len(split)} rows" for name, split in setup.splits.items())
            self.say(f"{len(setup.table)} sites with {held} examples; the server holds {served}")
            show_warnings(setup.warnings)
            if setup.left_out:
                self.say(f"left out, since they got nothing: {', '.join(setup.left_out[:10])}")
            if done:
                self.say(f"going on after round {done}")
        self._bars.remove_task(self._preparing)
        self._rounds = self._bars.add_task("rounds", total=rounds, completed=done, word="")
        self._sites = self._bars.add_task("sites", total=1, word="")

    def asking(self, round: int, sites: int) -> None:
        self._bars.reset(self._sites, total=sites, word="")

    def answered(self, site: str) -> None:
        self._bars.advance(self._sites)

    def finished_round(self, round: Round) -> None:
        from grandrounds.reports.wording import score as figure

        scores = {"validation": round.validation, "test": round.test}
        word = "  ".join(
            f"{split} {round.objective.name} {figure(score.value(round.objective))}"
            for split, score in scores.items()
            if score is not None
        )
        self._bars.update(self._rounds, completed=round.round, word=word)
        for site, reason in round.lost.items():
            self.say(f"round {round.round}: {site} {reason}")
        if not err.is_terminal and not self._quiet:
            self.say(f"round {round.round}  {round.seconds:.1f} s  {word}")


class Bars:
    """Bars that are drawn on a terminal alone."""

    def __init__(self) -> None:
        self.bars = bars()

    def __enter__(self) -> Self:
        if err.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if err.is_terminal:
            self.bars.stop()  # elsewhere it prints an empty line


class DocumentBar(Bars):
    """How many documents have been read, at what rate, and how long the rest will take where its number is known."""

    def __init__(self, total: int | None) -> None:
        super().__init__()
        self._task = self.bars.add_task("documents", total=total, word="")

    def read(self, number: int) -> None:
        task = self.bars.tasks[self._task]
        left = task.time_remaining
        word = f"{task.speed or 0:.1f} a second" + ("" if left is None else f", {_clock(left)} left")
        self.bars.update(self._task, completed=number, word=word)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class LiveArms(Bars):
    """Several runs at once: a bar each, with the name of its folder; of several comparisons, with theirs before it."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[Path, TaskID] = {}
        self._said: set[Path] = set()

    def __call__(self, arms: Sequence[Arm]) -> None:
        several = len({arm.folder.parent for arm in arms}) > 1
        for arm in arms:
            total = arm.config.federation.rounds
            name = f"{arm.folder.parent.name}/{arm.folder.name}" if several else arm.folder.name
            if arm.folder not in self._tasks:
                self._tasks[arm.folder] = self.bars.add_task(name, total=total, word="")
            finished = (arm.folder / "result.json").exists() and _planned(arm) >= total
            done = total if finished else min(arm.rounds_done(), total)
            self.bars.update(self._tasks[arm.folder], completed=done, word="done" if finished else "")
            if finished and not err.is_terminal and arm.folder not in self._said:
                self._said.add(arm.folder)
                err.print(f"  {name}: done", soft_wrap=True)


class LiveRuns(Bars):
    """Many short runs: one bar for all; without a terminal, a line for each that is done."""

    def __init__(self, what: str, arms: Sequence[Arm]) -> None:
        super().__init__()
        self._left = {arm.folder: arm for arm in arms}
        self._task = self.bars.add_task(what, total=len(arms), word="")

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
