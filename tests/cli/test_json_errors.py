"""With --json an error is JSON, too: one line on standard output, and exit code 1."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from grandrounds.cli import main

COMMANDS = {
    "run nowhere.toml": "there is no config 'nowhere.toml'; check the path",
    "run nowhere.toml nonsense": "'nonsense' is not an override",
    "compare nowhere.toml": "there is no config 'nowhere.toml'",
    "compare nowhere.toml --seeds 0": "'--seeds'",
    "search nowhere.toml training.epochs=1,2": "there is no config 'nowhere.toml'",
    "demo fedde": "did you mean 'feded'?",
    "reproduce fedde": "did you mean 'feded'?",
    "map lazy_mill": "did you mean 'lazy_mil'?",
    "evaluate nowhere nothing.json": "nowhere",
    "attention nowhere other --text nothing": "nowhere",
    "coordinator nowhere": "'nowhere' holds no federation",
    "federation keys nowhere": "'nowhere' holds no federation",
    "site join nowhere --data nothing": "nowhere",
    "data check nothing.json": "nothing.json",
    "data stats nothing.json --format bratt": "did you mean 'brat'?",
    "data partition nothing.json": "nothing.json",
    "vocabulary show nothing.counts": "nothing.counts",
    "link show nothing.dictionary aspirin": "nothing.dictionary",
    "audit verify": "No such option: --json",
    "privacy plan": "give --noise to see its epsilon",
    "privacy attack nowhere.toml": "there is no config 'nowhere.toml'",
    "report": "No such option: --json",
    "nonsense": "No such command 'nonsense'",
}


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["grandrounds", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_is_one_line_of_json(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ended(monkeypatch, *command.split(), "--json")
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1, printed.err
    said = json.loads(printed.out)
    assert list(said) == ["error"]
    assert COMMANDS[command] in said["error"]
    assert (code, printed.err.strip()) == (1, "")


def test_without_json_it_is_a_sentence_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "run", "nowhere.toml") == 1
    assert capsys.readouterr() == ("", "grandrounds: there is no config 'nowhere.toml'; check the path\n")
