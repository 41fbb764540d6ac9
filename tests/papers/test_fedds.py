"""FedDS's tables and figures: the printed numbers, and one shrunk run of all of them on synthetic bags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.metrics.score import AUC, Score
from grandrounds.papers import PAPERS
from grandrounds.papers.fedds import METHODS, PAPER, PRINTED_AT, _points, arm, numbers
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.protocol import Study, places, reproduce
from grandrounds.reports.runs import Run
from tests.papers.reproduced import InProcess, cells, planned, reported, run_all
from tests.results import made_result

SHRUNK = {
    "data.options.facts": 24,
    "data.options.unrelated": 24,
    "data.options.test": 12,
    "data.validation": 0.3,
    "partition.sites": 3,
    "task.precision_at": list(PRINTED_AT),
    "device": "cpu",
}
ARMS = [f"{method}-C0.1-seed1" for method in METHODS]
BY_ROUND = [f"{method}-C0.1-B32-E1-seed1" for method in METHODS]


def small(out: Path, **changes: Any) -> ReproduceOptions:
    return ReproduceOptions(
        out, **{"corpus": "synthetic-bags", "rounds": 2, "cells": 1, "overrides": SHRUNK, **changes}
    )


def result(out: Path, arm: str) -> dict[str, Any]:
    return dict(json.loads((out / "arms" / "synthetic-bags" / arm / "result.json").read_text("utf-8")))


def rows(out: Path, name: str, section: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row["cells"] for row in reported(out, name)["rows"] if row["section"] == section}


@pytest.fixture
def nyt10(tmp_path: Path) -> Path:
    for part in ("train", "test"):
        (tmp_path / "data" / "nyt10").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "nyt10" / f"nyt10_{part}.txt").touch()
    return tmp_path / "data"


def test_the_numbers_are_the_paper_s() -> None:
    printed = numbers()
    assert printed["table2"]["ave"][0] == [57, 55, 53, 55]
    assert printed["table2"]["lazy_mil"][3] == [80, 75.5, 71.33, 75.61]
    assert printed["table3"]["one"] == [0.1747, 0.1747, 0.1725, 0.1715]
    assert printed["table4"]["att_ra"][1] == [80, 76.5, 69.33, 75.28]
    assert printed["table5"]["lazy_mil"] == [0.7893, 0.7923, 0.7946, 0.7966]
    for name in ("table2", "table4"):
        for *at, mean in (row for method in METHODS for row in printed[name][method]):
            assert sum(at) / 3 == pytest.approx(mean, abs=0.04)
    assert PAPERS["fedds"] is PAPER


def test_the_protocol_is_the_paper_s(nyt10: Path, tmp_path: Path) -> None:
    study = Study(PAPER, "table2", ReproduceOptions(tmp_path / "out", nyt10), InProcess())
    config = study.config("nyt10")
    assert (config.partition.scheme, config.partition.sites, config.model.encoder) == ("iid", 100, "words")
    training = config.training
    assert (training.batch_size, training.epochs, training.optimizer, training.clip_norm) == (32, 3, "sgd", 0)
    assert (training.learning_rate, training.decay, training.weight_decay) == (0.1, 0.01, 1e-5)
    options = config.task_options()
    assert (options.head, options.dropout, options.precision_at) == ("pcnn", 0.5, list(PRINTED_AT))
    for method in METHODS:
        own = study.config("nyt10", arm(method, 0.2))
        assert (own.federation.fraction, own.federation.weight_by) == (0.2, "uniform")
        assert own.task_options().bag == ("one" if method == "lazy_mil" else method)
        assert own.algorithm["name"] == ("lazy_mil" if method == "lazy_mil" else "fedavg")


def test_small_corpora_have_settings_of_their_own(tmp_path: Path) -> None:
    study = Study(PAPER, "table2", small(tmp_path, overrides={}), InProcess())
    for corpus, sites in (("synthetic-bags", 20), ("bere-dti", 10), ("gids", 10)):
        config = study.config(corpus)
        assert (config.partition.sites, config.data.public) == (sites, 0.1)
        training = config.training
        assert (training.optimizer, training.learning_rate, training.batch_size) == ("adamw", 0.01, 16)
    assert study.config("bere-dti").task_options().precision_at == [10, 50]
    assert study.config("gids").data.test == 0.2


def test_with_pretrained_vectors_the_server_needs_no_text(nyt10: Path, tmp_path: Path) -> None:
    (nyt10 / "glove.txt").touch()
    options = ReproduceOptions(tmp_path / "out", nyt10, overrides={"model.vectors": "glove.txt"})
    assert Study(PAPER, "table2", options, InProcess()).config("nyt10").data.public == 0


def test_every_target_says_what_stands_in_and_what_the_paper_set(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    for name, target in PAPER.targets.items():
        page = (out / f"{name}.md").read_text("utf-8")
        assert f"synthetic bags, which stands in for {PAPER.corpora[target.corpora[0]].title}" in page
        assert f"grandrounds reproduce fedds {name}" in page
        assert str(out) not in page + json.dumps(reported(out, name))
    protocol = reported(out, "table2")["protocol"]
    assert protocol["sites, K"] == {"paper": "100", "here": "3"}
    assert protocol["optimizer"] == {"paper": "sgd", "here": "adamw"}
    assert protocol["learning rate"] == {"paper": "0.05, 0.08, 0.1 or 0.2, by grid search", "here": "0.01"}
    chosen = {"paper": "the best on test, in its public code", "here": "the best on validation"}
    assert protocol["round that counts"] == chosen
    assert {"corpus", "sites, K", "optimizer", "learning rate", "round that counts"} <= set(
        reported(out, "table2")["differs"]
    )
    assert "The paper's public code chooses its best round on the test set." in reported(out, "table2")["footnotes"]


@pytest.mark.parametrize(("name", "theirs"), [("table2", [69, 67, 63, 66.33]), ("table4", [89, 80, 70.67, 79.89])])
def test_precision_stands_beside_the_paper_s(
    name: str, theirs: list[float], all_targets: tuple[Path, InProcess]
) -> None:
    out, _ = all_targets
    found = rows(out, name, "C=0.1")
    assert list(found) == list(METHODS.values())
    assert [cell["paper"] for cell in found["this work"].values()] == theirs
    for method, title in METHODS.items():
        test = result(out, f"{method}-C0.1-seed1")["test"]
        at = [100 * test[f"p@{n}"] for n in PRINTED_AT]
        assert [cell["measured"] for cell in found[title].values()] == pytest.approx([*at, sum(at) / 3])
    by_chance = rows(out, name, "Not in the paper")["in any order"]["mean"]
    assert by_chance == {"paper": None, "measured": pytest.approx(100 * 12 / (60 * 5)), "runs": by_chance["runs"]}


def test_other_n_stand_without_the_paper_s_numbers(tmp_path: Path) -> None:
    options = small(tmp_path, overrides={**SHRUNK, "task.precision_at": [5, 100]}, rounds=1)
    table = reproduce(PAPER, "table2", options, InProcess())
    assert table.columns == ["P@5", "P@100", "mean"]
    assert [cell.paper for cell in table.rows[0].cells] == [None, 57, None]
    assert any("The paper's N are 100, 200, 300" in note for note in table.footnotes)


@pytest.mark.parametrize(("name", "score", "theirs"), [("table3", "auc_2000", 0.2207), ("table5", "auc", 0.7893)])
def test_areas_stand_beside_the_paper_s(
    name: str, score: str, theirs: float, all_targets: tuple[Path, InProcess]
) -> None:
    out, _ = all_targets
    found = cells(out, name)
    assert found["this work"]["C=0.1"]["paper"] == theirs
    measured = [found[title]["C=0.1"]["measured"] for title in METHODS.values()]
    assert measured == [result(out, own)["test"][score] for own in ARMS]
    assert len(set(measured)) == len(METHODS)  # no row could stand for another
    assert f"| this work | {theirs:.4f} | {measured[-1]:.4f} |" in (out / f"{name}.md").read_text("utf-8")
    assert found["in any order"]["C=0.1"]["measured"] == pytest.approx(12 / (60 * 5))


@pytest.mark.parametrize("name", ["figure3", "figure4"])
def test_curves_are_told_and_drawn(name: str, all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    curve = result(out, "lazy_mil-C0.1-seed1")["test"]["curve"]
    reached = next(p for r, p in zip(curve["recall"], curve["precision"], strict=True) if r >= 0.5)
    assert rows(out, name, "C=0.1")["at recall 0.5"]["this work"]["measured"] == pytest.approx(100 * reached)
    drawn = (out / f"{name}.svg").read_text("utf-8")
    assert all(word in drawn for word in ("C=0.1", "precision", "recall", *METHODS.values()))


def test_the_first_answers_alone_are_drawn() -> None:
    # Of ten facts one is right in the first answer, the second in the fourth, the third in the tenth.
    curve = {"recall": [0.1, 0.1, 0.2, 0.3], "precision": [1, 0.5, 0.5, 0.3]}
    score = Score.model_validate({"facts": 10, "curve": curve})
    run = Run("run", "", (), made_result(task="distant_re", objective=AUC, test=score))
    assert len(_points(run, None)) == 4
    assert _points(run, 4) == [(0.1, 1), (0.1, 0.5), (0.2, 0.5)]
    assert _points(run, 2) == [(0.1, 1), (0.1, 0.5)]


def test_areas_by_round_are_told_and_drawn(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    for method, title in METHODS.items():
        folder = out / "arms" / "synthetic-bags" / f"{method}-C0.1-B32-E1-seed1"
        lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
        measured = [json.loads(line)["test"]["auc_2000"] for line in lines]
        row = rows(out, "figure5", title)["B=32 E=1"]
        assert [cell["measured"] for cell in row.values()] == [*measured, max(measured)]
        assert list(row) == ["round 1", "round 2", "highest"]
    drawn = (out / "figure5.svg").read_text("utf-8")
    assert all(word in drawn for word in ("AUC", "B=32 E=1", *METHODS.values()))
    assert reported(out, "figure5")["arms"]["one-C0.1-B32-E1"]["task.dropout"] == 0.1


def test_targets_share_their_arms_and_a_second_call_runs_none(all_targets: tuple[Path, InProcess]) -> None:
    out, runner = all_targets
    assert sorted(runner.ran) == sorted([*ARMS, *BY_ROUND])
    assert run_all(PAPER, lambda name: small(out)).ran == []


@pytest.mark.parametrize(("target", "cells", "runs"), [("table2", 2, 10), ("table5", None, 20), ("figure5", None, 30)])
def test_cells_are_the_first_fractions_or_the_first_of_the_grid(
    target: str, cells: int | None, runs: int, tmp_path: Path
) -> None:
    asked = [arm.name for arm in planned(PAPER, target, small(tmp_path, cells=cells))]
    assert len(asked) == len(set(asked)) == runs
    assert asked[-1] == {"table2": "lazy_mil-C0.2", "table5": "lazy_mil-C1", "figure5": "lazy_mil-C0.1-B64-E5"}[target]


@pytest.mark.parametrize(("target", "nearest"), [("table2", "gids"), ("table4", "bere-dti"), ("figure5", "gids")])
def test_a_corpus_that_is_missing_names_the_nearest(target: str, nearest: str, tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match=rf"is missing .* such as --corpus {nearest}$"):
        places(PAPER, target, ReproduceOptions(tmp_path, tmp_path))
    with pytest.raises(GrandRoundsError, match=r" such as --corpus synthetic-bags$"):
        places(PAPER, target, ReproduceOptions(tmp_path, tmp_path, nearest))


def test_a_corpus_of_one_file_is_named_alone(tmp_path: Path) -> None:
    reported = PAPER.corpora["gids"].missing(tmp_path)
    assert reported is not None
    assert "and put gids/dev.tsv under the folder that --data names" in reported


def test_corpora_of_documents_are_not_for_bags(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown corpus 'cdr'"):
        places(PAPER, "table2", ReproduceOptions(tmp_path, tmp_path, "cdr"))
