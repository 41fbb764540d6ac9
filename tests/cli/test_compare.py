"""`compare` and `search`: several runs, each once, and what is chosen."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean, median, stdev

import pytest

from tests.cli.commands import Outcome, run

ARMS = ["local_only-seed1", "local_only-seed2", "fedavg-seed1", "fedavg-seed2"]


@pytest.fixture(scope="module")
def compared(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Two algorithms and two seeds, started where one of the four is already finished."""
    folder = tmp_path_factory.mktemp("compared")
    run("run", config, "federation.rounds=1", "--out", folder / "fedavg-seed1").good()
    shutil.copy(folder / "fedavg-seed1" / "audit.jsonl", folder / "before.jsonl")
    wish = ("--algorithms", "local_only,fedavg", "--seeds", "2", "--out", folder, "--json")
    return folder, run("compare", config, "federation.rounds=1", *wish)


def _results(folder: Path, algorithm: str) -> list[dict[str, dict[str, float]]]:
    return [json.loads((folder / f"{algorithm}-seed{seed}" / "result.json").read_text()) for seed in (1, 2)]


def test_a_row_is_mean_median_and_spread_over_seeds(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    rows = {row["name"]: row for row in outcome.json()}
    assert set(rows) == {"local_only", "fedavg", "all 'TeRP'"}
    for algorithm in ("local_only", "fedavg"):
        f1s = [result["test"]["f1"] for result in _results(folder, algorithm)]
        row = rows[algorithm]
        assert row["runs"] == 2
        assert row["f1_mean"] == pytest.approx(fmean(f1s))
        assert row["f1_median"] == pytest.approx(median(f1s))
        assert row["f1_spread"] == pytest.approx(stdev(f1s))


def test_the_trivial_baseline_is_the_last_row(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    last = outcome.json()[-1]
    assert (last["name"], last["trivial"], last["runs"]) == ("all 'TeRP'", True, 0)
    assert last["f1_mean"] == pytest.approx(_results(folder, "fedavg")[0]["test"]["baseline_f1"])


def test_csv_json_and_report_say_the_same(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    held = json.loads((folder / "compare.json").read_text())
    assert held["rows"] == outcome.json()
    assert sorted((run["name"], run["seed"]) for run in held["runs"]) == [
        ("fedavg", 1),
        ("fedavg", 2),
        ("local_only", 1),
        ("local_only", 2),
    ]
    with (folder / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [row["name"] for row in held["rows"]]
    assert [row["f1_mean"] for row in rows] == [str(row["f1_mean"]) for row in held["rows"]]
    page = (folder / "report.html").read_text()
    assert all(arm in page for arm in ARMS)


def test_started_again_it_runs_no_finished_arm(compared: tuple[Path, Outcome]) -> None:
    folder, _ = compared
    assert (folder / "fedavg-seed1" / "audit.jsonl").read_bytes() == (folder / "before.jsonl").read_bytes()


def test_an_unknown_arm_is_refused_before_anything_runs(config: Path, tmp_path: Path) -> None:
    outcome = run("compare", config, "--algorithms", "fedavg,fedat", "--out", tmp_path / "none")
    assert outcome.complaint() == "unknown algorithm 'fedat'; did you mean 'fedatt'?"
    assert not (tmp_path / "none").exists()


def test_a_search_chooses_on_validation_and_shows_test_for_the_chosen_only(config: Path, tmp_path: Path) -> None:
    wish = ("training.learning_rate=1e-6,3e-3", "federation.rounds=2", "--out", tmp_path / "search")
    found = run("search", config, *wish, "--json").json()
    results = [json.loads((tmp_path / "search" / name / "result.json").read_text()) for name in ("001", "002")]
    by_setting = {rate: result["validation"]["f1"] for rate, result in zip((1e-6, 3e-3), results, strict=True)}
    assert {row["setting"]["training.learning_rate"]: row["validation_f1"] for row in found["rows"]} == by_setting
    assert found["rows"][0]["validation_f1"] == max(by_setting.values())
    chosen = found["best"]["training.learning_rate"]
    assert by_setting[chosen] == max(by_setting.values())
    assert found["test_f1"] == results[[1e-6, 3e-3].index(chosen)]["test"]["f1"]
    assert [set(row) for row in found["rows"]] == [{"setting", "validation_f1"}] * 2


def test_a_search_without_validation_data_is_refused(config: Path, tmp_path: Path) -> None:
    outcome = run("search", config, "training.epochs=1,2", "data.validation=0", "--out", tmp_path / "search")
    assert outcome.complaint() == (
        "a search chooses on validation data; set data.validation, such as data.validation=0.1"
    )
    assert not (tmp_path / "search").exists()


def test_a_search_for_nothing_is_refused(config: Path) -> None:
    assert "training.epochs=1,2" in run("search", config, "training.epochs").complaint()
