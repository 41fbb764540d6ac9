"""A site's ledger: nothing is lost, nothing is given back, and the limit holds."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import verify
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.accounting import Draw, epsilon
from grandrounds.federation.privacy.ledger import Limit, SpendingLedger

STEP = Draw(2.0, 1.0, 1)
DELTA = 1e-5
FOUR = Limit(epsilon([Draw(2.0, 1.0, 4)], DELTA), DELTA, "the test")


def ask(round: int, digest: str = "a") -> dict[str, str | int]:
    return {"run": "r", "round": round, "exchange": 1, "site": "s", "ask": digest}


def test_the_limit_is_a_hard_stop(tmp_path: Path) -> None:
    ledger = SpendingLedger(tmp_path / "privacy.jsonl", "example")
    for round in range(1, 5):
        ledger.spend(ask(round), STEP, [FOUR])
    with pytest.raises(RefusalError, match=r"budget is spent: with this it would be epsilon .+ and the test allows"):
        ledger.spend(ask(5), STEP, [FOUR])
    assert ledger.epsilon(DELTA) == FOUR.epsilon
    assert len(ledger.lines()) == 4


def test_what_was_spent_counts_after_a_restart_and_in_another_federation(tmp_path: Path) -> None:
    path = tmp_path / "privacy.jsonl"
    SpendingLedger(path, "example").spend({**ask(1), "run": "first"}, STEP._replace(steps=3), [FOUR])
    again = SpendingLedger(path, "example")
    with pytest.raises(RefusalError, match="budget is spent"):
        again.spend({**ask(1), "run": "second"}, STEP._replace(steps=2), [FOUR])
    again.spend({**ask(1), "run": "second"}, STEP, [FOUR])
    assert verify(path) == 2


def test_a_plan_that_does_not_fit_as_a_whole_is_still_used_as_far_as_it_goes(tmp_path: Path) -> None:
    ledger = SpendingLedger(tmp_path / "privacy.jsonl", "example")
    for round in range(1, 5):
        ledger.spend(ask(round), STEP, [FOUR], planned=100)
    with pytest.raises(RefusalError, match="budget is spent"):
        ledger.spend(ask(5), STEP, [FOUR], planned=100)


def test_the_same_ask_is_paid_for_once_only_where_its_noise_is_the_same(tmp_path: Path) -> None:
    seeded = SpendingLedger(tmp_path / "seeded.jsonl", "example", repeatable=True)
    fresh = SpendingLedger(tmp_path / "fresh.jsonl", "example")
    for ledger in (seeded, fresh):
        ledger.spend(ask(1), STEP, [FOUR])
        ledger.spend(ask(1), STEP, [FOUR])
    assert (len(seeded.lines()), len(fresh.lines())) == (1, 2)
    seeded.spend(ask(1, "b"), STEP, [FOUR])
    assert len(seeded.lines()) == 2


def test_a_limit_may_be_of_one_run_while_another_is_of_all(tmp_path: Path) -> None:
    ledger = SpendingLedger(tmp_path / "privacy.jsonl", "example")
    wide = Limit(epsilon([Draw(2.0, 1.0, 6)], DELTA), DELTA, "the policy")
    for run in ("first", "second"):
        for round in (1, 2, 3):
            ledger.spend({**ask(round), "run": run}, STEP, [FOUR._replace(run=run), wide])
    with pytest.raises(RefusalError, match="the policy allows"):
        ledger.spend({**ask(4), "run": "second"}, STEP, [FOUR._replace(run="second"), wide])
    with pytest.raises(RefusalError, match="the test allows"):
        ledger.spend(ask(1), STEP._replace(steps=5), [FOUR._replace(run="r")])


def test_another_unit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "privacy.jsonl"
    SpendingLedger(path, "example").spend(ask(1), STEP, [FOUR])
    with pytest.raises(RefusalError, match="counts by example, and these terms count by patient"):
        SpendingLedger(path, "patient").spend(ask(2), STEP, [FOUR])


def test_an_edited_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "privacy.jsonl"
    ledger = SpendingLedger(path, "example")
    for round in (1, 2):
        ledger.spend(ask(round), STEP, [FOUR])
    path.write_text(path.read_text().replace('"noise": 2.0', '"noise": 9.0', 1))
    with pytest.raises(GrandRoundsError, match="the chain is broken"):
        ledger.spend(ask(3), STEP, [FOUR])


def test_a_torn_line_was_not_drawn_and_the_ledger_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "privacy.jsonl"
    ledger = SpendingLedger(path, "example")
    ledger.spend(ask(1), STEP, [FOUR])
    with path.open("ab") as file:
        file.write(b'{"time": 1, "round": 2, "noi')
    ledger.spend(ask(3), STEP, [FOUR])
    assert [line["round"] for line in ledger.lines()] == [1, 3]
    verify(path)


def test_over_20_kills_nothing_is_lost_or_given_back(tmp_path: Path) -> None:
    """Each process is killed after it paid and before it could send; the last may not pay any more."""
    path, limit = tmp_path / "privacy.jsonl", Limit(epsilon([Draw(2.0, 1.0, 20)], DELTA), DELTA, "the test")
    for round in range(1, 21):
        if (child := os.fork()) == 0:
            SpendingLedger(path, "example").spend(ask(round), STEP, [limit], planned=20)
            os.kill(os.getpid(), signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert len(path.read_text().splitlines()) == round
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == list(range(1, 21))
    assert SpendingLedger(path, "example").epsilon(DELTA) == limit.epsilon
    with pytest.raises(RefusalError, match="budget is spent"):
        SpendingLedger(path, "example").spend(ask(21), STEP, [limit])
