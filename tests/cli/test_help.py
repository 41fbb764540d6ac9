"""`--help` teaches every command; wrong usage says what is right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from grandrounds import __version__
from grandrounds.cli.app import app
from tests.cli.commands import ENVIRONMENT, run

COMMANDS = {
    "demo": ("--seeds", "--out"),
    "init": ("Example: grandrounds init", "FOLDER", "--task", "--encoder", "--json"),
    "run": ("Example: grandrounds run", "--resume", "KEY=VALUE"),
    "compare": ("Example: grandrounds compare", "--algorithms", "--seeds"),
    "search": ("Example: grandrounds search", "KEY=A,B"),
    "map": ("Example: grandrounds map", "--quick", "--redraw", "SYSTEM"),
    "reproduce": ("Example: grandrounds reproduce", "--corpus", "KEY=VALUE"),
    "evaluate": ("Example: grandrounds evaluate", "--format"),
    "extract": ("Example: grandrounds extract", "--threshold"),
    "serve": ("Example: grandrounds serve", "MODEL...", "--port", "--threshold"),
    "view": ("Example: grandrounds view", "RUN", "--alone", "--port", "enrolment"),
    "report": ("Example: grandrounds report", "--out"),
    "attention": ("Example: grandrounds attention", "--text", "--out"),
    "data check": ("Example: grandrounds data check", "--format"),
    "data stats": ("FILES", "--format", "--option"),
    "data convert": ("Example: grandrounds data convert", "--to"),
    "data partition": ("Example: grandrounds data partition", "--scheme"),
    "data distant": ("Example: grandrounds data distant", "--kb", "--columns", "--na-ratio", "--seed"),
    "audit verify": ("A run folder, or an audit.jsonl.",),
}


def every_command(group: Any, name: str = "grandrounds") -> dict[str, Any]:
    """By what a user types."""
    inner = getattr(group, "commands", None)  # typer may have a click of its own
    if inner is None:
        return {name: group}
    return {k: v for word, one in inner.items() for k, v in every_command(one, f"{name} {word}").items()}


@pytest.mark.parametrize(("name", "command"), every_command(get_command(app)).items())
def test_every_command_shows_an_example_of_itself(name: str, command: Any) -> None:
    example = re.search(r"Example: `([^`]+)`", command.help or "")
    assert example, name
    assert example[1].startswith(name)
    options = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"(?<= )--[\w-]+", example[1])) <= options
    assert all(getattr(one, "help", None) for one in command.params), name


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains(command: str) -> None:
    reported = run(*command.split(), "--help").good().stdout
    for piece in COMMANDS[command]:
        assert piece in reported


def test_the_overview_names_every_command_and_where_to_begin() -> None:
    reported = run("--help").good().stdout
    for command in COMMANDS:
        assert command.split()[0] in reported
    assert "grandrounds demo" in reported.replace("\n ", "")


def test_without_a_command_the_overview_is_shown() -> None:
    outcome = run()
    assert "Traceback" not in outcome.stderr
    assert "Usage: grandrounds" in outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "piece"),
    [
        (("run",), "CONFIG"),
        (("rum",), "No such command 'rum'"),
        (("run", "x.toml", "--nonsense"), "No such option: --nonsense"),
        (("run", "x.toml", "--resume"), "there is no config"),
        (("compare", "x.toml", "--seeds", "0"), "--seeds"),
    ],
)
def test_wrong_usage_is_no_traceback(arguments: tuple[str, ...], piece: str) -> None:
    outcome = run(*arguments)
    assert outcome.code in (1, 2)
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    assert piece in outcome.stderr


def test_the_installed_command_says_its_version() -> None:
    """The only one that is not forked: nothing is imported before it."""
    program = Path(sys.executable).parent / "grandrounds"
    ended = subprocess.run([program, "--version"], capture_output=True, text=True, env=ENVIRONMENT)
    assert (ended.returncode, ended.stdout) == (0, f"grandrounds {__version__}\n")
