"""What a person sees: progress on standard error, so that standard output holds results alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
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


class PlainConsole(Console):
    """Prints every string as it is, in tables too: sites, corpora and files choose words, and none of them is markup.
    What of ours has a style is a `Text`."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """All that is printed passes here; rich's own control codes are segments of another kind."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


LONG, MINUTE = 2.0, 60.0
"""Seconds after which a person wants to be told."""
out, err = PlainConsole(), PlainConsole(stderr=True)


def complain(sentence: str) -> None:
    """What was wrong. With --json a line of JSON on standard output, where a program looks for the result; a person
    who does not see that one is told on standard error too."""
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": sentence}) + "\n")
        sys.stdout.flush()
        if not err.is_terminal or out.is_terminal:
            return
    err.print(Text.assemble(("grandrounds:", "bold red"), f" {sentence}"), soft_wrap=True)


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def show_warnings(warnings: Mapping[str, int]) -> None:
    """What was left out is always said."""
    for what, count in sorted(warnings.items()):
        err.print(f"  warning: {count} {what}", soft_wrap=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A spinner for what takes a while and can't be counted; without a terminal, a line once it has taken long."""
    began = time.monotonic()
    with err.status(Text(what)):
        yield
    _say_how_long(what, time.monotonic() - began)


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar for what can be counted, though its end may not be known; gives what to call after each step."""
    with Bars() as drawn:
        task = drawn.add(what, total)
        yield lambda: drawn.bars.advance(task)
    done, seconds = drawn.bars.tasks[task].completed, drawn.bars.tasks[task].elapsed
    _say_how_long(f"{what}, {done:.0f}", seconds or 0.0)


def _say_how_long(what: str, seconds: float) -> None:
    if not err.is_terminal and seconds > LONG:
        err.print(f"  {what}: {_clock(seconds)}", soft_wrap=True)


class Left(ProgressColumn):
    """How long the rest will take, at the rate so far."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = None if task.finished else task.time_remaining
        return Text("" if left is None else f"{_clock(left)} left", style="progress.remaining")


def bars() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Left(),
        TextColumn("{task.fields[word]}", markup=False),
        console=err,
        speed_estimate_period=inf,  # a round may take longer than rich's thirty seconds
    )


class Bars:
    """Bars that are drawn on a terminal alone."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.bars = quiet, bars()

    def __enter__(self) -> Self:
        if err.is_terminal and not self.quiet:
            self.bars.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if err.is_terminal:
            self.bars.stop()  # elsewhere it prints an empty line

    def add(self, what: str, total: int | None, done: int = 0) -> TaskID:
        """A bar; the rate counts from now on, and from what is done already."""
        task = self.bars.add_task(what, total=total, completed=done, word="")
        self.bars.advance(task, 0)
        return task


def round_line(round: Round) -> str:
    """What a round came to: its seconds and scores."""
    return f"round {round.round}  {round.seconds:.1f} s  {_scores(round)}".rstrip()


def _scores(round: Round) -> str:
    from grandrounds.reports.wording import score as figure

    scores = {"validation": round.validation, "test": round.test}
    return "  ".join(
        f"{split} {round.objective.name} {figure(score.value(round.objective))}"
        for split, score in scores.items()
        if score is not None
    )


class Live(Bars):
    """A run's progress: a bar for rounds, one for the sites of this round; without a terminal, a line a round."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._preparing = self._rounds = self._sites = self.add("reading and tokenising", None)

    def say(self, sentence: str) -> None:
        err.print(f"  {sentence}", soft_wrap=True)

    def started(self, setup: ServerSetup, rounds: int, done: int) -> None:
        if not self.quiet:
            held = sum(row.examples for row in setup.table)
            served = ", ".join(f"{name} {len(split)} rows" for name, split in setup.splits.items())
            self.say(f"{len(setup.table)} sites with {held} examples; the server holds {served}")
            show_warnings(setup.warnings)
            if setup.left_out:
                self.say(f"left out, since they got nothing: {', '.join(setup.left_out[:10])}")
            if done:
                self.say(f"going on after round {done}")
        self.bars.remove_task(self._preparing)
        self._rounds = self.add("rounds", rounds, done)
        self._sites = self.add("sites", 1)

    def asking(self, round: int, sites: int) -> None:
        self.bars.reset(self._sites, total=sites, word="")
        self.bars.advance(self._sites, 0)

    def answered(self, site: str) -> None:
        self.bars.advance(self._sites)

    def finished_round(self, round: Round) -> None:
        self.bars.update(self._rounds, completed=round.round, word=_scores(round))
        for site, reason in round.lost.items():
            self.say(f"round {round.round}: {site} {reason}")
        if not err.is_terminal and not self.quiet:
            self.say(round_line(round))


class DocumentBar(Bars):
    """How many documents have been read, at what rate, and how long the rest will take where its number is known;
    without a terminal, a line a minute."""

    def __init__(self, total: int | None) -> None:
        super().__init__()
        self._task, self._said = self.add("documents", total), time.monotonic()

    def read(self, number: int) -> None:
        task = self.bars.tasks[self._task]
        word = f"{task.speed or 0:.1f} a second"
        self.bars.update(self._task, completed=number, word=word)
        if not err.is_terminal and time.monotonic() - self._said > MINUTE:
            self._said = time.monotonic()
            of = "" if task.total is None else f" of {task.total:.0f}"
            err.print(f"  {number}{of} documents, {word}", soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
