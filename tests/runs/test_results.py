"""One schema of what a run finds: what is written is read back, and anything else is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grandrounds.data.partition import SiteRow
from grandrounds.data.structural_entropy import Spread
from grandrounds.errors import DataError, GrandRoundsError
from grandrounds.metrics.score import AUC, F1, LOSS, Objective
from grandrounds.runs.choice import Choice
from grandrounds.runs.results import read_result, read_rounds
from tests.results import made_result

ROUND: dict[str, Any] = {
    "round": 1,
    "sites": ["a", "b"],
    "replies": 1,
    "lost": {"b": "late"},
    "abandoned": False,
    "seconds": 0.5,
    "bytes_up": 10,
    "bytes_down": 20,
    "steps": 3,
    "examples": 4,
    "server_steps": 0,
    "server_examples": 0,
    "objective": {"name": "F1", "direction": "higher", "unit": ""},
}


def write(folder: Path, content: Any) -> Path:
    (folder / "result.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize("objective", [F1, AUC])
def test_a_higher_score_is_better(objective: Objective) -> None:
    assert sorted([0.2, None, 0.9], key=objective.rank) == [0.9, 0.2, None]
    assert objective.better(0.9, 0.2)
    assert not objective.better(0.2, 0.2)
    assert objective.better(0.0, None)


def test_a_lower_loss_is_better() -> None:
    assert sorted([2.5, None, 1.5], key=LOSS.rank) == [1.5, 2.5, None]
    assert LOSS.better(1.5, 2.5)
    assert not LOSS.better(2.5, 1.5)
    assert LOSS.better(9.0, None)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    sites = (SiteRow("a", 2, 7, {"x": 7}), SiteRow("b", 1, 3, {"x": 3}, Spread(1.0, 2.0, 3.0)))
    score = {"loss": 2.5, "next_accuracy": 0.5, "n": 9, "learners": {"a": {"loss": 2.0}}}
    made = made_result(objective=LOSS, test=score, sites=sites, left_out=("c",), warnings={"cut": 2})
    content = made.to_dict()
    assert content["schema"] == 1
    assert content["objective"] == {"name": "loss", "direction": "lower", "unit": "nats a masked word piece"}
    assert content["test"] == score  # figures that a score has not are not written
    assert read_result(write(tmp_path, content)) == made


CURE = r": run it again in another folder$"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": 2}, "has schema 2, and schema 1 is read here"),
        ({"schema": None}, "has schema None, and schema 1 is read here"),
        ({"winner": 1}, "winner: Extra inputs are not permitted"),
        ({"rounds": "10"}, "rounds: Input should be a valid integer"),
        ({"objective": {"name": "F1", "direction": "up"}}, "objective.direction: Input should be 'higher' or 'lower'"),
        ({"test": {"ign_f1": [0.5]}}, "test.ign_f1: Input should be a valid number"),
        ({"test": {"f1": "high"}}, "test.f1: Input should be a valid number"),
    ],
)
def test_a_result_of_another_schema_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"result\.json: {problem}.*{CURE}"):
        read_result(write(tmp_path, made_result().to_dict() | change))


def test_a_result_that_lacks_a_key_or_is_none_is_refused(tmp_path: Path) -> None:
    content = made_result().to_dict()
    del content["bytes_up_per_site_round"]
    with pytest.raises(DataError, match=rf"result\.json: bytes_up_per_site_round: Field required.*{CURE}"):
        read_result(write(tmp_path, content))
    with pytest.raises(DataError, match=rf"result\.json: has schema None.*{CURE}"):
        read_result(write(tmp_path, [1]))
    with pytest.raises(DataError, match=rf"result\.json: is not JSON.*{CURE}"):
        read_result(write(tmp_path, '{"schema": 1,'))
    (tmp_path / "result.json").unlink()
    with pytest.raises(DataError, match=r"result\.json: is missing: the run has not finished"):
        read_result(tmp_path)


def test_a_line_of_metrics_has_one_schema(tmp_path: Path) -> None:
    lines = [ROUND, ROUND | {"round": 2, "validation": {"f1": 0.5}}]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rounds, torn = read_rounds(tmp_path)
    assert ([round.to_dict() for round in rounds], torn) == (lines, False)
    path.write_text(json.dumps(ROUND) + "\n" + json.dumps(ROUND | {"note": "x"}) + "\n")
    with pytest.raises(DataError, match=rf"metrics\.jsonl:2: note: Extra inputs are not permitted.*{CURE}"):
        read_rounds(tmp_path)


def test_a_search_chooses_the_lowest_loss() -> None:
    rates = [1e-4, 1e-3, 1e-2]
    results = [
        made_result(objective=LOSS, validation={"loss": loss}, test={"loss": loss + 0.1}) for loss in (4.0, 2.0, 3.0)
    ]
    choice = Choice.of({"rate": rates}, [{"rate": rate} for rate in rates], results)
    assert choice.best == {"rate": 1e-3}
    assert choice.to_dict() == {
        "criterion": "loss",
        "rows": [
            {"setting": {"rate": 1e-3}, "validation_loss": 2.0},
            {"setting": {"rate": 1e-2}, "validation_loss": 3.0},
            {"setting": {"rate": 1e-4}, "validation_loss": 4.0},
        ],
        "best": {"rate": 1e-3},
        "at_edge": [],
        "test_loss": 2.1,
    }
    with pytest.raises(GrandRoundsError, match="a run has no score on validation data"):
        Choice.of({"rate": rates}, [{"rate": 1}], [made_result()])
