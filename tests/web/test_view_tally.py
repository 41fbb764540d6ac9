"""What lines of an audit log add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grandrounds.federation.audit import Audit
from grandrounds.reports.audit_log import AuditLog
from grandrounds.web.view import tally
from grandrounds.web.view.tally import Span, Tally


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("grandrounds.federation.audit.time.time", made)
    return made


def tallied(folder: Path, clock: Clock, *lines: tuple[float, dict[str, Any]]) -> Tally:
    log, found = Audit(folder / "audit.jsonl"), Tally()
    for moment, line in lines:
        clock.now = moment
        log.write(**line)
    log.close()
    for one in AuditLog(folder / "audit.jsonl").rest():
        found.add(one)
    return found


def sent(direction: str, site: str, round: int = 1, size: int = 10, **more: Any) -> dict[str, Any]:
    line = {"round": round, "exchange": 1, "site": site, "direction": direction}
    return {**line, "kind": "parameters", "bytes": size, "digest": "d", **more}


def test_bytes_add_up_by_site_direction_and_kind(tmp_path: Path, clock: Clock) -> None:
    found = tallied(
        tmp_path,
        clock,
        (1, sent("down", "a")),
        (2, sent("up", "a", size=7)),
        (3, sent("up", "a", round=2, size=9)),
        (4, sent("up", "b", size=5, kind="scores")),
    )
    assert (found.total("up"), found.total("up", "a"), found.total("down")) == (21, 16, 10)
    assert found.by_kind("up") == {"parameters": 16, "scores": 5}
    moved = found.moved["a", "up", "parameters"]
    assert (moved.payloads, moved.largest, moved.last) == (2, 9, 3)


def test_a_bar_ends_when_an_answer_came_not_when_its_turn_did(tmp_path: Path, clock: Clock) -> None:
    """Answers are taken in the order of the sites: b answered first, and waited for a."""
    found = tallied(
        tmp_path,
        clock,
        (1, sent("down", "a")),
        (1, sent("down", "b")),
        (9, sent("up", "a", arrived=8.5)),
        (9.1, sent("up", "b", arrived=3.0)),
        (9.1, sent("up", "b", kind="scores", arrived=3.0)),
    )
    assert found.rounds[1].spans == {"a": [Span(1, 8.5)], "b": [Span(1, 3.0)]}
    assert found.heard == {"a": 8.5, "b": 3.0}


def test_simulated_sites_take_turns(tmp_path: Path, clock: Clock) -> None:
    found = tallied(
        tmp_path,
        clock,
        (1, sent("down", "a")),
        (1, sent("down", "b")),
        (4, sent("up", "a")),
        (6, sent("up", "b")),
    )
    assert found.rounds[1].spans == {"a": [Span(1, 4)], "b": [Span(4, 6)]}


def test_silence_is_no_sign_of_life_and_a_refusal_is(tmp_path: Path, clock: Clock) -> None:
    found = tallied(
        tmp_path,
        clock,
        (1, sent("down", "a")),
        (2, {"round": 1, "exchange": 1, "site": "a", "event": "cut off: not seen for 4 s"}),
        (3, {"round": 1, "exchange": 1, "site": "b", "event": "refused: no", "arrived": 2.5}),
        (4, {"round": 2, "exchange": 1, "site": "b", "event": "refused: no", "arrived": 3.5}),
    )
    assert found.heard == {"b": 3.5}
    assert found.rounds[1].spans["a"] == [Span(1, 2, "cut off: not seen for 4 s")]
    assert {key: (one.times, one.round) for key, one in found.stopped.items()} == {
        ("a", "cut off: not seen for 4 s"): (1, 1),
        ("b", "refused: no"): (2, 2),
    }


def test_the_model_that_is_handed_out_asks_for_nothing(tmp_path: Path, clock: Clock) -> None:
    found = tallied(
        tmp_path, clock, (1, sent("down", "a")), (2, sent("up", "a")), (5, {**sent("down", "a"), "exchange": 0})
    )
    assert found.rounds[1].spans == {"a": [Span(1, 2)]}
    assert found.total("down") == 20


def test_a_resumed_run_forgets_the_rounds_that_it_does_again(tmp_path: Path, clock: Clock) -> None:
    found = tallied(
        tmp_path,
        clock,
        (1, sent("down", "a")),
        (2, sent("up", "a")),
        (3, sent("down", "a", round=2)),
        (9, {"event": "resumed", "round": 1}),
        (10, sent("down", "a", round=2)),
    )
    assert found.rounds[2].spans == {"a": [Span(10)]}
    assert list(found.rounds) == [1, 2]


def test_policies_are_told_once_each(tmp_path: Path, clock: Clock) -> None:
    one, other = {"allow": ["done"]}, {"allow": None}
    lines = [(float(at), {"event": "policy", "policy": held}) for at, held in enumerate([one, one, other, one], 1)]
    assert tallied(tmp_path, clock, *lines).policies == [(1, one), (3, other), (4, one)]


def test_a_log_of_strangers_cannot_grow_the_page_without_end(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MOST_SITES", 3), ("MOST_REASONS", 3), ("MOST_ROUNDS", 3)):
        monkeypatch.setattr(tally, name, most)
    lines = [(1.0, {"round": i, "site": f"s{i}", "event": f"refused: {i}"}) for i in range(1, 10)]
    lines += [(2.0, {"round": i, "site": "s1", "event": f"refused: {i}"}) for i in range(20, 30)]
    found = tallied(tmp_path, clock, *lines)
    assert (len(found.heard), len(found.rounds), len(found.stopped)) == (3, 3, 4)
    assert found.stopped["", ""].times == 10
