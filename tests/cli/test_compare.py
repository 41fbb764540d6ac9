"""`compare` and `search`: several runs, each once, and what is chosen."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import pytest
from experiments.differences import arms_of

from grandrounds.metrics.outcomes import outcomes_of_run
from grandrounds.metrics.score import F1, Score
from grandrounds.reports.comparison import comparison
from grandrounds.reports.tables import to_json
from grandrounds.runs.choice import Choice
from tests.cli.commands import Outcome, run

ARMS = ["local_only-seed1", "local_only-seed2", "fedavg-seed1", "fedavg-seed2"]


@pytest.fixture(scope="module")
def compared(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Two algorithms and two seeds, started where one of the four is already finished."""
    folder = tmp_path_factory.mktemp("compared")
    run("run", config, "federation.rounds=1", "--out", folder / "fedavg-seed1").good()
    shutil.copy(folder / "fedavg-seed1" / "audit.jsonl", folder / "before.jsonl")
    wanted = ("--algorithms", "local_only,fedavg", "--seeds", "2", "--out", folder, "--json")
    return folder, run("compare", config, "federation.rounds=1", *wanted)


def _results(folder: Path, algorithm: str) -> list[dict[str, Any]]:
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


def test_every_two_arms_have_their_difference(compared: tuple[Path, Outcome]) -> None:
    """Here that of the only rival to the baseline, with the signs turned."""
    folder, outcome = compared
    ((row,), (found,)) = (
        [row for row in outcome.json() if row["baseline"]],
        json.loads((folder / "compare.json").read_text())["differences"],
    )
    assert (found["arm"], found["over"]) == (row["baseline"], row["name"])
    assert (found["value"], found["low"], found["high"], found["p"]) == pytest.approx(
        (-row["difference"], -row["difference_high"], -row["difference_low"], row["p"])
    )


def test_finished_runs_are_compared_wherever_they_are(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, outcome = compared
    runs = arms_of([f"local_only={folder}/local_only-seed*", f"fedavg={folder}/fedavg-seed2", f"{folder}/fedavg-seed1"])
    assert [(name, place.name[-1]) for name, place in runs] == [
        ("local_only", "1"),
        ("local_only", "2"),
        ("fedavg", "1"),
        ("fedavg", "2"),
    ]
    rows, content = comparison(runs, "local_only", tmp_path)
    assert json.loads(to_json(rows)) == outcome.json()
    assert content["differences"] == json.loads((folder / "compare.json").read_text())["differences"]
    with pytest.raises(SystemExit, match=r"'fedavg=nowhere' names no run; write NAME=FOLDER"):
        arms_of(["fedavg=nowhere"])


def test_started_again_it_runs_no_finished_arm(compared: tuple[Path, Outcome]) -> None:
    folder, _ = compared
    assert (folder / "fedavg-seed1" / "audit.jsonl").read_bytes() == (folder / "before.jsonl").read_bytes()


def test_an_unknown_arm_is_refused_before_anything_runs(config: Path, tmp_path: Path) -> None:
    outcome = run("compare", config, "--algorithms", "fedavg,fedat", "--out", tmp_path / "none")
    assert outcome.complaint() == "unknown algorithm 'fedat'; did you mean 'fedatt'?"
    assert not (tmp_path / "none").exists()


def test_a_row_has_its_interval_its_difference_from_the_first_arm_and_what_it_took(
    compared: tuple[Path, Outcome],
) -> None:
    folder, outcome = compared
    rows = {row["name"]: row for row in outcome.json()}
    runs = {
        name: [f1_by_learner(folder / f"{name}-seed{seed}") for seed in (1, 2)] for name in ("local_only", "fedavg")
    }
    for name, row in list(rows.items())[:2]:
        assert row["low"] <= row["f1_mean"] <= row["high"]
        assert row["f1_mean"] == pytest.approx(fmean(fmean(run) for run in runs[name]))
        results = _results(folder, name)
        for what in ("steps", "examples"):
            assert row[what] == fmean(result[what] for result in results) > 0
        assert row["mb_down"] == pytest.approx(fmean(result["bytes_down"] for result in results) / 1e6)
    fedavg = rows["fedavg"]
    assert (fedavg["baseline"], rows["local_only"]["baseline"]) == ("local_only", None)
    assert fedavg["difference"] == pytest.approx(fedavg["f1_mean"] - rows["local_only"]["f1_mean"])
    assert fedavg["difference_low"] <= fedavg["difference"] <= fedavg["difference_high"]
    assert fedavg["same_units"]


def f1_by_learner(folder: Path) -> list[float]:
    sums = [record.outcomes.columns for record in outcomes_of_run(folder) if record.split == "test"]
    return [2 * c["tp"].sum() / max(2 * c["tp"].sum() + c["fp"].sum() + c["fn"].sum(), 1) for c in sums]


def test_each_run_is_told_with_its_rounds_and_where_it_comes_from(compared: tuple[Path, Outcome]) -> None:
    folder, _ = compared
    held = json.loads((folder / "compare.json").read_text())
    assert held["command"].endswith("federation.rounds=1 --algorithms local_only,fedavg --seeds 2 --out OUT --json")
    assert str(folder) not in json.dumps(held)
    for describe_run in held["runs"]:
        own = folder / f"{describe_run['name']}-seed{describe_run['seed']}"
        result = json.loads((own / "result.json").read_text())
        assert (describe_run["rounds"], describe_run["best_round"]) == (1, 1)
        assert describe_run["history"] == [{"round": 1, "validation": result["validation"]["f1"]}]
        assert (folder / describe_run["outcomes"]).is_dir()
        assert describe_run["commit"] == result["commit"] == held["commit"]
        assert result["command"] != ""
    assert any("local_only (2 of 2)" in said and "fedavg (2 of 2)" in said for said in held["remarks"])


def test_another_baseline_turns_the_difference_round(compared: tuple[Path, Outcome], config: Path) -> None:
    folder, outcome = compared
    wanted = ("federation.rounds=1", "--algorithms", "local_only,fedavg", "--seeds", "2", "--baseline", "fedavg")
    reported = run("compare", config, *wanted, "--out", folder).good().stdout
    assert "F1 minus that of fedavg" in reported
    assert "The intervals are over 2 seeds and the units of the test set." in reported
    rows = {row["name"]: row for row in json.loads((folder / "compare.json").read_text())["rows"]}
    before = {row["name"]: row for row in outcome.json()}
    assert rows["local_only"]["difference"] == pytest.approx(-before["fedavg"]["difference"])
    assert rows["local_only"]["difference_low"] == pytest.approx(-before["fedavg"]["difference_high"])
    assert rows["local_only"]["p"] == before["fedavg"]["p"]


def test_a_baseline_must_be_an_arm(config: Path, tmp_path: Path) -> None:
    outcome = run("compare", config, "--baseline", "fedav", "--out", tmp_path / "none")
    assert outcome.complaint() == "unknown arm for the baseline 'fedav'; did you mean 'fedavg'?"


@pytest.fixture(scope="module")
def searched(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("searched") / "search"
    wanted = ("training.learning_rate=1e-6,3e-3", "federation.rounds=2", "--algorithms", "fedavg,local_only")
    return folder, run("search", config, *wanted, "--out", folder, "--json")


def test_a_search_chooses_for_each_arm_on_validation_and_shows_test_for_the_chosen_only(
    searched: tuple[Path, Outcome],
) -> None:
    folder, outcome = searched
    reported = outcome.json()
    assert json.loads((folder / "search.json").read_text()) == reported
    assert reported["arms"].keys() == {"fedavg", "local_only"}
    for name, found in reported["arms"].items():
        results = [json.loads((folder / f"{name}-{i:03d}" / "result.json").read_text()) for i in (1, 2)]
        by_setting = {rate: result["validation"]["f1"] for rate, result in zip((1e-6, 3e-3), results, strict=True)}
        assert {row["setting"]["training.learning_rate"]: row["validation_f1"] for row in found["rows"]} == by_setting
        assert found["rows"][0]["validation_f1"] == max(by_setting.values())
        chosen = found["best"]["training.learning_rate"]
        assert by_setting[chosen] == max(by_setting.values())
        assert found["test_f1"] == results[[1e-6, 3e-3].index(chosen)]["test"]["f1"]
        assert [set(row) for row in found["rows"]] == [{"setting", "validation_f1"}] * 2
        assert found["at_edge"] == ["training.learning_rate"]


def test_what_a_search_chose_is_what_compare_runs(searched: tuple[Path, Outcome], config: Path, tmp_path: Path) -> None:
    folder, outcome = searched
    chosen = {name: found["best"] for name, found in outcome.json()["arms"].items()}
    assert tomllib.loads((folder / "chosen.toml").read_text()) == {"compare": chosen}
    wanted = ("--settings", folder / "chosen.toml", "--algorithms", "fedavg,local_only", "--out", tmp_path / "c")
    run("compare", config, "federation.rounds=1", *wanted).good()
    for name, best in chosen.items():
        ran = tomllib.loads((tmp_path / "c" / name / "config.toml").read_text())
        assert ran["training"]["learning_rate"] == best["training.learning_rate"]
        assert ran["federation"]["rounds"] == 2


def test_a_search_of_the_config_as_it_is_tells_of_the_edge(config: Path, tmp_path: Path) -> None:
    reported = run("search", config, "training.epochs=1,2", "federation.rounds=1", "--out", tmp_path / "search").good()
    assert "fedavg: validation F1" in reported.stdout
    assert "is at the edge of the grid; try values beyond it" in reported.stdout
    assert f"--settings {tmp_path / 'search' / 'chosen.toml'} --algorithms fedavg" in reported.stdout


def test_settings_hold_arms_and_nothing_else(config: Path, tmp_path: Path) -> None:
    outcome = run("compare", config, "--settings", config, "--out", tmp_path / "none")
    assert "must hold [compare.NAME] tables and nothing else" in outcome.complaint()


def test_a_search_without_validation_data_is_refused(config: Path, tmp_path: Path) -> None:
    outcome = run("search", config, "training.epochs=1,2", "data.validation=0", "--out", tmp_path / "search")
    assert outcome.complaint() == (
        "a search chooses on validation data; set data.validation, such as data.validation=0.1"
    )
    assert not (tmp_path / "search").exists()


def test_a_search_for_nothing_is_refused(config: Path) -> None:
    assert "training.epochs=1,2" in run("search", config, "training.epochs").complaint()


def test_what_a_search_tells_has_no_path_of_the_machine() -> None:
    setting = {"model.encoder": "/somewhere/minilm", "training.learning_rate": 0.1}
    reported = Choice(F1, [(setting, Score(f1=0.5))], None, []).to_dict()
    assert (
        reported["best"] == reported["rows"][0]["setting"] == {"model.encoder": "minilm", "training.learning_rate": 0.1}
    )
