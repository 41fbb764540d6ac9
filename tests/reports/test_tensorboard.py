"""TensorBoard reads what metrics.jsonl says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grandrounds.errors import ConfigError
from grandrounds.reports.tensorboard import write_events
from tests.reports.fixture_runs import write_run

pytest.importorskip("tensorboard", reason="needs grandrounds[tensorboard]")


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_tensorboard_shows_scores_and_bytes_by_round(tmp_path: Path) -> None:
    run = write_run(tmp_path / "fedavg-seed1", rounds=3)
    write_events([run], tmp_path / "events")
    write_events([run], tmp_path / "events")  # again, as of a run that goes on: nothing is there twice
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shown = scalars(tmp_path / "events" / "fedavg-seed1")
    assert shown["test/f1"] == [(line["round"], pytest.approx(line["test"]["f1"])) for line in lines]
    assert shown["round/bytes_up"] == [(1, 4_800_000), (2, 3_600_000), (3, 4_800_000)]
    assert "test/n" not in shown


def test_diagnostics_and_epsilon_are_charts_too(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rounds=1)
    line = json.loads((run / "metrics.jsonl").read_text())
    line |= {"diagnostics": {"contrast": 0.5}, "epsilon": {"site-01": 1.0, "site-02": 3.0}}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    write_events([run], tmp_path / "events")
    shown = scalars(tmp_path / "events" / "a")
    assert shown["diagnostics/contrast"] == [(1, 0.5)]
    assert shown["privacy/largest_epsilon"] == [(1, 3.0)]


def test_runs_that_cannot_be_told_apart_or_are_empty_are_refused(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name / "fedavg-seed1") for name in ("one", "other")]
    with pytest.raises(ConfigError, match="have the same name"):
        write_events(runs, tmp_path / "events")
    (runs[0] / "metrics.jsonl").write_text("")
    with pytest.raises(ConfigError, match="'fedavg-seed1' has no finished round yet"):
        write_events(runs[:1], tmp_path / "events")
