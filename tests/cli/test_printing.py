"""Words of others are printed as they are: not as markup, without control characters, and not at any length."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from grandrounds.cli import console
from grandrounds.cli.arms import LiveArms
from grandrounds.cli.coordinator import sites_table
from grandrounds.cli.scores import score_table
from grandrounds.config.schema import make_config
from grandrounds.deployment.flower.grid import Presence
from grandrounds.errors import foreign
from grandrounds.metrics.score import Score
from grandrounds.runs.results import read_rounds
from grandrounds.simulation.sweep import Arm
from tests.reports.fixture_runs import write_run

HOSTILE = ["\\[/bold]", "[/b]", "[red]", "[/]", "[link=http://evil]", ":skull:"]


def printed(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> str:
    """What goes to standard error and standard output."""
    file = io.StringIO()
    for one in (console.err, console.out):
        monkeypatch.setattr(one, "_file", file)
    do()
    return file.getvalue()


@pytest.mark.parametrize("words", HOSTILE)
def test_a_refusal_is_printed_as_it_came(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    live = console.Live(quiet=True)
    assert printed(monkeypatch, lambda: live.say(f"mercy refused: {words}")) == f"  mercy refused: {words}\n"
    assert printed(monkeypatch, lambda: console.complain(words)) == f"grandrounds: {words}\n"
    assert printed(monkeypatch, lambda: console.show_warnings({words: 2})) == f"  warning: 2 {words}\n"


@pytest.mark.parametrize("words", HOSTILE)
def test_a_label_is_printed_as_it_is_in_tables(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    row = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 3}
    score = Score.model_validate({**row, "n": 3, "per_class": {words: row}, "baseline": words, "baseline_f1": 0.1})
    text = printed(monkeypatch, lambda: console.out.print(score_table(words, score)))
    assert text.count(words) == 3

    roster: Any = SimpleNamespace(sites={words: Presence(online=True, seen=1.0)})
    text = printed(monkeypatch, lambda: console.out.print(sites_table(roster)))
    assert words in text
    assert "online" in text


@pytest.mark.parametrize("words", HOSTILE)
def test_a_bar_and_a_spinner_show_words_as_they_are(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=200)
    progress = console.bars()
    progress.add_task(words, total=1, word=words)
    terminal.print(progress)
    assert terminal.file.getvalue().count(words) == 2  # type: ignore[attr-defined]  # a StringIO

    def spin() -> None:
        with console.waiting(words):
            pass

    assert printed(monkeypatch, spin) == ""
    monkeypatch.setattr(console, "LONG", -1.0)
    assert printed(monkeypatch, spin) == f"  {words}: 0:00\n"


def test_control_characters_never_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "a\x1b[2J\x07\x9b31m\u202eb\u2066\rc\td"
    for thing in (words, Text(words)):
        text = printed(monkeypatch, lambda thing=thing: console.out.print(thing))  # type: ignore[misc]
        assert text.replace(" ", "") == "a[2J31mbcd\n"


def test_foreign_words_are_one_short_line() -> None:
    assert foreign("all is well\n  12:00 joined \x1b[31m") == "all is well 12:00 joined [31m"
    assert foreign("x" * 10**7) == "x" * 299 + "…"
    assert foreign("x" * 50, 10) == "x" * 9 + "…"
    assert foreign(" " * 10**6 + "x") == "…"


def test_where_there_is_no_terminal_a_run_prints_a_line_a_round_and_no_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup: Any = SimpleNamespace(table=[], splits={}, warnings={}, left_out=[])
    rounds, _ = read_rounds(write_run(tmp_path / "a", rounds=2))

    def follow() -> None:
        with console.Live() as live:
            live.started(setup, 2, 0)
            for round in rounds:
                live.asking(round.round, 4)
                live.answered("a")
                live.finished_round(round)
        with console.counting("labelling", 3) as step, console.DocumentBar(3) as bar:
            step()
            bar.read(1)

    assert printed(monkeypatch, follow).splitlines() == [
        "  0 sites with 0 examples; the server holds ",
        "  round 1  12.5 s  validation F1 0.500  test F1 0.476",
        "  round 2: site-01 late",
        "  round 2  12.5 s  validation F1 0.639  test F1 0.647",
    ]


def test_where_there_is_no_terminal_arms_print_a_line_a_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole, live = write_run(tmp_path / "whole", rounds=3), LiveArms()
    lines = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    config = make_config({"data": {"train": "a", "test": "b"}, "federation": {"rounds": 3}})
    (tmp_path / "fedavg").mkdir()

    def follow() -> None:
        with live:
            for done in (1, 1, 3):  # it went on after round 1
                (tmp_path / "fedavg" / "metrics.jsonl").write_text("".join(lines[:done]))
                live([Arm("fedavg", config, tmp_path / "fedavg")])
            shutil.copy(whole / "result.json", tmp_path / "fedavg")
            for _ in range(2):
                live([Arm("fedavg", config, tmp_path / "fedavg")])

    assert printed(monkeypatch, follow).splitlines() == [
        "  fedavg: round 2  12.5 s  validation F1 0.639  test F1 0.647",
        "  fedavg: round 3  12.5 s  validation F1 0.688  test F1 0.690",
        "  fedavg: done",
    ]


def test_a_bar_says_how_long_the_rest_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    drawn = console.Bars()
    monkeypatch.setattr(drawn.bars, "get_time", lambda: clock[0])
    task = drawn.add("rounds", 20, 10)  # those before it do not count for the rate
    for number in (11, 12):
        clock[0] += 90
        drawn.bars.update(task, completed=number)
    assert str(console.Left().render(drawn.bars.tasks[task])) == "12:00 left"
    drawn.bars.update(task, completed=20)
    assert str(console.Left().render(drawn.bars.tasks[task])) == ""
