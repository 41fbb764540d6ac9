"""What a coordinator writes of its sites while it waits, and when their answers came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grandrounds.deployment import presence
from grandrounds.deployment.flower.grid import Roster
from grandrounds.deployment.presence import PresenceFile
from grandrounds.reports.audit_log import AuditLog
from grandrounds.runs.results import read_participants, read_presence
from grandrounds.web.view.tally import Tally
from tests.conftest import TinyConfig
from tests.deployment.grids import MemoryGrid, run_over_grid


def test_it_is_written_anew_and_not_too_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = MemoryGrid({"a": None, "b": None})  # type: ignore[dict-item]
    roster, file = Roster(grid, grid.keys(), every=0.0), PresenceFile(tmp_path / "presence.json")
    assert read_presence(tmp_path) is None
    roster.look()
    roster.sites["a"].doing, roster.sites["b"].refused = "train", "site 'b' runs\nanother version"
    file.write(roster)
    first = read_presence(tmp_path)
    assert first is not None
    assert (first.sites["a"].online, first.sites["a"].doing) == (True, "train")
    assert first.sites["b"].refused == "site 'b' runs another version"
    grid.away.add("a")
    roster.look()
    file.write(roster)
    assert read_presence(tmp_path) == first
    monkeypatch.setattr(presence, "EVERY", 0.0)
    file.write(roster)
    then = read_presence(tmp_path)
    assert then is not None
    assert not then.sites["a"].online
    assert then.sites["a"].seen == first.sites["a"].seen
    assert [path.name for path in tmp_path.iterdir()] == ["presence.json"]


def test_a_log_says_when_each_answer_came_and_who_takes_part(tiny_config: TinyConfig, tmp_path: Path) -> None:
    run_over_grid(tiny_config(**{"federation.rounds": 1}), tmp_path)
    log, tally = AuditLog(tmp_path / "audit.jsonl"), Tally()
    answers = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    for line in answers:
        assert ("arrived" in line) == (line.get("direction") == "up")
        assert line.get("arrived", 0) <= line["time"]
    for one in log.rest():
        tally.add(one)
    assert all(span.ended for spans in tally.rounds[1].spans.values() for span in spans)
    taking_part = read_participants(tmp_path)
    assert taking_part is not None
    assert {site.name for site in taking_part.sites} == taking_part.shares.keys() == set(tally.heard)
    assert sum(taking_part.shares.values()) == pytest.approx(1.0)
