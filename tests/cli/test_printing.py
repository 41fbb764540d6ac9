"""Words of others are printed as they are: not as markup, without control characters, and not at any length."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from grandrounds.cli import console
from grandrounds.cli.coordinator import sites_table
from grandrounds.cli.scores import score_table
from grandrounds.deployment.flower.grid import Presence
from grandrounds.errors import foreign
from grandrounds.metrics.score import Score

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

    assert isinstance(printed(monkeypatch, spin), str)


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
