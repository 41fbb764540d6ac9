"""Runs whose answers are ranked are judged by AUC wherever a person or a program looks."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import tomli_w
from rich.console import Console

from grandrounds.cli.scores import score_table
from grandrounds.metrics.score import Score
from grandrounds.runs.loop import summary
from tests.cli.commands import Outcome, run
from tests.reports.fixture_runs import ranked, score

ARMS = ("lazy_mil", "local_only")


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bags") / "bags.toml"
    content = {
        "device": "cpu",
        "task": {"name": "distant_re", "precision_at": [5, 10]},
        "data": {
            "format": "synthetic-bags",
            "options": {"facts": 12, "unrelated": 12, "test": 8},
            "public": 0.1,
            "validation": 0.2,
        },
        "partition": {"scheme": "iid", "sites": 2},
        "model": {"encoder": "words"},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 0.3, "optimizer": "sgd"},
        "federation": {"rounds": 1},
        "algorithm": {"name": "lazy_mil"},
    }
    path.write_text(tomli_w.dumps(content))
    return path


@pytest.fixture(scope="module")
def one(bags: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("ranked") / "run"
    return folder, run("run", bags, "--out", folder).good()


def test_a_run_says_its_auc_by_round_and_at_its_end(one: tuple[Path, Outcome]) -> None:
    folder, outcome = one
    result = json.loads((folder / "result.json").read_text())
    assert f"test AUC {result['test']['auc']:.3f}" in outcome.stderr
    assert "F1" not in outcome.stderr
    for reported in ("AUC (all points)", "P@5", "answers of at least 0.5", "trivial: in any order"):
        assert reported in outcome.stdout
    assert f"the model reaches AUC {result['test']['auc']:.3f}" in (folder / "report.html").read_text("utf-8")


def test_the_models_card_has_auc_and_precisions(one: tuple[Path, Outcome]) -> None:
    test = json.loads((one[0] / "result.json").read_text())["test"]
    card = (one[0] / "model" / "README.md").read_text("utf-8")
    assert f"Test AUC **{test['auc']:.3f}** on {test['n']} pairs with {test['facts']} facts" in card
    assert f"| P@10 | {test['p@10']:.3f} |" in card
    assert "Of answers of at least 0.5, F1 is" in card
    assert "class" not in card


def test_arms_are_compared_by_auc_those_of_sites_alone_too(bags: Path, tmp_path: Path) -> None:
    outcome = run("compare", bags, "--algorithms", ",".join(ARMS), "--out", tmp_path).good()
    assert "bags: test AUC" in outcome.stdout
    with (tmp_path / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    results = {name: json.loads((tmp_path / name / "result.json").read_text())["test"] for name in ARMS}
    aucs = {name: test["auc"] for name, test in results.items()}
    assert [row["name"] for row in rows] == [*sorted(ARMS, key=lambda name: -aucs[name]), "in any order"]
    assert {row["name"]: float(row["auc_mean"]) for row in rows[:2]} == aucs
    assert set(results["local_only"]["learners"]) == {"site-01", "site-02"}
    assert results["local_only"]["facts"] == results["lazy_mil"]["facts"] > 0
    assert "Without a curve" in (tmp_path / "report.html").read_text("utf-8")


def test_a_search_chooses_by_auc_and_says_so(bags: Path, tmp_path: Path) -> None:
    wanted = ("search", bags, "training.learning_rate=0.0001,0.3", "--out", tmp_path)
    reported = run(*wanted).good().stdout
    found = run(*wanted, "--json").json()["arms"]["lazy_mil"]  # the same runs, finished
    results = [json.loads((tmp_path / f"lazy_mil-{i:03d}" / "result.json").read_text()) for i in (1, 2)]
    best = max(results, key=lambda result: result["validation"]["auc"])
    assert found["criterion"] == "auc"
    assert found["rows"][0]["validation_auc"] == best["validation"]["auc"]
    assert found["rows"][0]["validation_f1"] == best["validation"]["f1"]
    assert (found["test_auc"], found["test_f1"]) == (best["test"]["auc"], best["test"]["f1"])
    assert "lazy_mil: validation AUC" in reported
    assert f"its test AUC is {best['test']['auc']:.3f}" in reported


def lines(score: dict[str, object]) -> list[str]:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(score_table("test", Score.model_validate(score)))
    return [" ".join(line.replace("│", " ").split()) for line in console.export_text().splitlines()]


def test_a_table_of_ranked_answers_says_what_each_figure_is_of() -> None:
    reported = lines(ranked(0.5) | {"auc_std": 0.01})
    for line in (
        "AUC (all points) 0.500 ± 0.010",
        "AUC (first 2,000) 0.400",
        "P@20 0.900",
        "P@100 0.750",
        "answers of at least 0.5 0.600 0.300 0.400",
        "trivial: in any order 0.067",
        "60 pairs, 21 facts",
    ):
        assert line in reported
    assert not any("AUC" in line for line in lines(score(0.8)))


def test_learners_areas_are_averaged_and_their_curves_left_out() -> None:
    mean = summary({"a": ranked(0.2), "b": ranked(0.6)})
    assert mean["auc"] == pytest.approx(0.4)
    assert mean["auc_std"] == pytest.approx(0.2)
    assert mean["p@20"] == pytest.approx(0.9)
    assert (mean["n"], mean["facts"], mean["baseline"]) == (60, 21, "every relation of every pair")
    assert mean["learners"]["b"]["auc"] == 0.6
    assert "curve" not in mean
    assert "auc_std" not in summary({"a": score(0.2), "b": score(0.6)})
