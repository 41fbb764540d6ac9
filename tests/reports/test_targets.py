"""Rounds, bytes and seconds to a share of centralised training's score, and average ranks, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grandrounds.reports.grid import Rank, average_ranks, grid_page
from grandrounds.reports.tables import ComparisonRow, comparison_rows
from grandrounds.reports.targets import with_targets
from grandrounds.runs.results import read_result
from tests.reports.fixture_runs import result

ROUND: dict[str, Any] = {
    "sites": ["a", "b"],
    "replies": 2,
    "lost": {},
    "abandoned": False,
    "steps": 1,
    "examples": 1,
    "server_steps": 0,
    "server_examples": 0,
    "objective": {"name": "F1", "direction": "higher", "unit": ""},
}


def run(folder: Path, algorithm: str, f1s: list[float | None], split: str = "test") -> Path:
    """A finished run with these scores by round; each round moves 3 MB, and they take two seconds, three, ..."""
    folder.mkdir(parents=True)
    lines = []
    for number, f1 in enumerate(f1s, start=1):
        line = {**ROUND, "round": number, "seconds": 1.0 + number, "bytes_up": 10**6, "bytes_down": 2 * 10**6}
        lines.append(json.dumps(line | ({} if f1 is None else {split: {"f1": f1}})) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    ended = result(algorithm, 1, [f1 for f1 in f1s if f1 is not None][-1])
    ended = ended.model_copy(update={"validation": ended.test} if split == "validation" else {})
    (folder / "result.json").write_text(json.dumps(ended.to_dict()))
    return folder


def targets(arms: dict[str, list[Path]]) -> dict[str, ComparisonRow]:
    every = [(name, folder) for name, folders in arms.items() for folder in folders]
    rows = comparison_rows([read_result(folder) for _, folder in every], [name for name, _ in every])
    return {row.name: row for row in with_targets(rows, arms)}


def test_the_first_round_that_is_good_enough_counts_with_all_before_it(tmp_path: Path) -> None:
    arms = {
        "centralized": [run(tmp_path / "c1", "centralized", [0.7, 0.7]), run(tmp_path / "c2", "centralized", [0.9])],
        "fedavg": [
            run(tmp_path / "f1", "fedavg", [0.1, None, 0.77, 0.5]),  # 95% of 0.8 is 0.76
            run(tmp_path / "f2", "fedavg", [0.8, 0.5]),
            run(tmp_path / "f3", "fedavg", [0.1, 0.75]),
        ],
        "fedatt": [run(tmp_path / "a", "fedatt", [0.2, 0.3])],
    }
    rows = targets(arms)
    fedavg, fedatt = rows["fedavg"], rows["fedatt"]
    assert fedavg.target == pytest.approx(0.76)
    assert (fedavg.reached, fedavg.rounds_to_target, fedavg.mb_to_target) == (2, 2.0, 6.0)
    assert fedavg.seconds_to_target == ((2 + 3 + 4) + 2) / 2
    assert (fedatt.reached, fedatt.rounds_to_target, fedatt.seconds_to_target) == (0, None, None)
    assert all(row.target is None for row in rows.values() if row.trivial)


def test_without_a_test_round_by_round_it_is_on_validation_data(tmp_path: Path) -> None:
    rows = targets(
        {
            "centralized": [run(tmp_path / "c", "centralized", [0.5, 0.6], "validation")],
            "fedavg": [run(tmp_path / "f", "fedavg", [0.5, 0.58], "validation")],
        }
    )
    assert (rows["fedavg"].target, rows["fedavg"].rounds_to_target) == (pytest.approx(0.57), 2.0)


def test_without_centralised_training_there_is_no_target(tmp_path: Path) -> None:
    rows = targets({"fedavg": [run(tmp_path / "f", "fedavg", [0.5])]})
    assert rows["fedavg"].target is None


def row(name: str, f1: float | None, partition: str, **more: Any) -> ComparisonRow:
    made = ComparisonRow(name, "sentence_re", 1, f1, f1, None, None, None, 1.0, 1.0, low=0.1, high=0.9)
    return replace(made, partition=partition, **more)


ROWS = [
    *(row("a", 0.5, "iid"), row("b", 0.5, "iid"), row("c", 0.4, "iid"), row("all", 0.9, "iid", pooled=True)),
    *(row("a", 0.3, "time"), row("b", 0.2, "time"), row("c", None, "time"), row("all", 0.9, "time", pooled=True)),
    row("most frequent", 0.99, "iid", trivial=True),
]


def test_ties_share_their_rank_and_bounds_and_baselines_have_none() -> None:
    assert average_ranks(ROWS) == [
        Rank("a", 1.25, 2, 2),
        Rank("b", 1.75, 2, 1),
        Rank("c", 3.0, 2, 0),
        Rank("all", None, 0, 0),
    ]


def test_of_three_that_are_level_each_is_a_best_one() -> None:
    level = [row(name, 0.5, "iid") for name in "abc"]
    assert average_ranks(level) == [Rank(name, 2.0, 1, 1) for name in "abc"]


def test_the_page_has_scores_with_intervals_and_escapes_names() -> None:
    page = grid_page([replace(one, corpus="<b>") for one in ROWS], average_ranks(ROWS), {"<b> · iid": "x/report.html"})
    assert "<b>" not in page
    assert "0.500 (0.100 to 0.900)" in page
    assert 'href="x/report.html"' in page
