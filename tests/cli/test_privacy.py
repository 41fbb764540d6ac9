"""`grandrounds privacy`: noise for epsilon and back, and what a ledger holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

from typer.testing import CliRunner

from grandrounds.cli.app import app
from grandrounds.errors import ConfigError
from grandrounds.federation.privacy.accounting import Draw
from grandrounds.federation.privacy.ledger import SpendingLedger


def said(*words: str) -> Any:
    done = CliRunner().invoke(app, ["privacy", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def test_noise_for_an_epsilon_has_that_epsilon() -> None:
    run = ("--units", "400", "--batch", "20", "--rounds", "5", "--epochs", "2")
    needed = said("plan", *run, "--epsilon", "4")
    assert (needed["rate"], needed["steps"], needed["rounds_asked"]) == (0.05, 200, 5)
    assert 3.9 < needed["epsilon"] <= 4
    assert said("plan", *run, "--noise", str(needed["noise"]))["epsilon"] == needed["epsilon"]


def test_whole_sites_are_in_every_round() -> None:
    found = said("plan", "--rounds", "3", "--noise", "2")
    assert (found["rate"], found["steps"]) == (1.0, 3)


def test_a_plan_needs_one_of_both() -> None:
    for words in ([], ["--noise", "1", "--epsilon", "1"]):
        with pytest.raises(ConfigError, match="give --noise to see its epsilon, or --epsilon"):
            CliRunner().invoke(app, ["privacy", "plan", *words], catch_exceptions=False)


def test_a_ledger_is_summed_up(tmp_path: Path) -> None:
    ledger = SpendingLedger(tmp_path / "privacy" / "mercy.jsonl", "patient")
    for round in (1, 2):
        ledger.spend({"round": round}, Draw(2.0, 1.0, 1), [])
    (row,) = said("show", str(tmp_path))
    assert row == {"ledger": "mercy.jsonl", "unit": "patient", "lines": 2, "epsilon": round_to(ledger.epsilon(1e-5))}
    with pytest.raises(ConfigError, match="there is no privacy ledger at"):
        CliRunner().invoke(app, ["privacy", "show", str(tmp_path / "none.jsonl")], catch_exceptions=False)


def round_to(value: float) -> float:
    return round(value, 4)
