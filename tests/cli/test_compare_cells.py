"""`compare` on several partitions and corpora: one table, average ranks, one run of what no partition changes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean

import pytest
import tomli_w

from tests.cli.commands import Outcome, run
from tests.conftest import TinyConfig

ARMS = ("--algorithms", "fedavg,local_only,centralized")
PARTITIONS = ("--partitions", "iid,by:hospital")


@pytest.fixture(scope="module")
def corpora_files(tmp_path_factory: pytest.TempPathFactory, tiny_config: TinyConfig) -> str:
    """Two files of the same sentences; in one of them fewer are the sites' and `fedavg` learns faster."""
    folder, data = tmp_path_factory.mktemp("files"), tiny_config()["data"]
    small = {"data": {**data, "train_share": 0.5}, "compare": {"fedavg": {"training.learning_rate": 3e-3}}}
    for name, content in {"whole": {"data": data}, "small": small}.items():
        (folder / f"{name}.toml").write_text(tomli_w.dumps(content))
    return f"{folder / 'whole.toml'},{folder / 'small.toml'}"


@pytest.fixture(scope="module")
def cells(config: Path, corpora_files: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("cells") / "runs"
    wanted = (*ARMS, *PARTITIONS, "--corpora", corpora_files, "--out", folder, "--json")
    return folder, run("compare", config, "federation.rounds=2", *wanted)


def test_there_is_a_row_for_each_arm_corpus_and_partition(cells: tuple[Path, Outcome]) -> None:
    folder, outcome = cells
    rows = [row for row in outcome.json() if not row["trivial"]]
    named = sorted((row["corpus"], row["partition"], row["name"]) for row in rows)
    arms = ("centralized", "fedavg", "local_only")
    assert named == [(c, p, arm) for c in ("small", "whole") for p in ("by:hospital", "iid") for arm in arms]
    assert all(row["low"] <= row["f1_mean"] <= row["high"] for row in rows)
    for row in rows:
        if row["name"] != "centralized":
            own = folder / row["corpus"] / row["partition"].replace(":", "-") / row["name"]
            result = json.loads((own / "result.json").read_text())
            assert row["f1_mean"] == result["test"]["f1"]
            assert len(result["sites"]) == {"iid": 3, "by:hospital": 4}[row["partition"]]


def test_the_sections_of_a_corpus_take_the_place_of_the_config_s_and_its_arms_are_added(
    cells: tuple[Path, Outcome],
) -> None:
    folder, _ = cells
    rates = {
        path.parts[-4]: line
        for path in folder.glob("*/iid/fedavg/config.toml")
        for line in path.open()
        if "learning_rate =" in line
    }
    assert rates == {"small": "learning_rate = 0.003\n", "whole": "learning_rate = 0.002\n"}
    shares = {
        path.parts[-4]: "train_share = 0.5" in path.read_text() for path in folder.glob("*/iid/fedavg/config.toml")
    }
    assert shares == {"small": True, "whole": False}
    assert all("rounds = 2" in path.read_text() for path in folder.glob("*/*/*/config.toml"))  # overrides come last


def test_centralised_training_is_run_once_for_a_corpus(cells: tuple[Path, Outcome]) -> None:
    folder, outcome = cells
    assert sorted(path.parent.parent.parent.name for path in folder.glob("*/*/centralized/result.json")) == [
        "small",
        "whole",
    ]
    for corpus in ("small", "whole"):
        found = [row for row in outcome.json() if row["corpus"] == corpus and row["name"] == "centralized"]
        assert len({row["f1_mean"] for row in found}) == 1
        assert all(row["pooled"] for row in found)


def test_ranks_are_means_over_cells_and_the_bound_has_none(cells: tuple[Path, Outcome]) -> None:
    folder, outcome = cells
    held = json.loads((folder / "compare.json").read_text())
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for row in outcome.json():
        if not row["trivial"] and row["name"] != "centralized":
            scores.setdefault((row["corpus"], row["partition"]), {})[row["name"]] = row["f1_mean"]
    for name, other in (("fedavg", "local_only"), ("local_only", "fedavg")):
        own = [
            1.5 if cell[name] == cell[other] else 1.0 if cell[name] > cell[other] else 2.0 for cell in scores.values()
        ]
        (rank,) = [rank for rank in held["ranks"] if rank["name"] == name]
        assert (rank["mean"], rank["cells"]) == (fmean(own), 4)
    assert held["ranks"][-1] == {"name": "centralized", "mean": None, "cells": 0, "best": 0}


def test_json_csv_and_pages_say_the_same(cells: tuple[Path, Outcome]) -> None:
    folder, outcome = cells
    held = json.loads((folder / "compare.json").read_text())
    assert held["rows"] == outcome.json()
    assert len(held["runs"]) == 2 * 2 * 2 + 2
    with (folder / "compare.csv").open() as file:
        assert [row["partition"] for row in csv.DictReader(file)] == [row["partition"] for row in held["rows"]]
    page = (folder / "report.html").read_text()
    assert "small · by:hospital" in page
    for cell in held["cells"]:
        assert f'href="{cell["folder"]}/report.html"' in page
        own = json.loads((folder / cell["folder"] / "compare.json").read_text())
        assert {row["name"] for row in own["rows"]} >= {"fedavg", "local_only", "centralized"}


def test_started_again_it_runs_nothing_and_shows_the_tables(
    cells: tuple[Path, Outcome], config: Path, corpora_files: str
) -> None:
    folder, _ = cells
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*/*/metrics.jsonl")}
    wanted = (*ARMS, *PARTITIONS, "--corpora", corpora_files, "--out", folder)
    shown = run("compare", config, "federation.rounds=2", *wanted).good().stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "Average rank: by mean score within each cell" in shown
    assert "To 95% of centralised training's score" in shown


@pytest.mark.parametrize(
    ("partitions", "complaint"),
    [
        ("iid,dirichlt:0.1", "unknown partition scheme 'dirichlt'; did you mean 'dirichlet'?"),
        ("dirichlet", "the partition 'dirichlet' needs partition.alpha after a colon, such as dirichlet:0.1"),
        ("by", "the partition 'by' needs partition.by after a colon, such as by:hospital"),
        ("iid:3", "the partition 'iid:3': nothing goes after 'iid'"),
        ("quantity:much", "the partition 'quantity:much' needs partition.alpha after a colon, such as quantity:0.1"),
        ("iid,by:ward", "unknown document attribute 'ward'; known: hospital, patient"),
        ("time:year,time-year", "unknown partition scheme 'time-year'; did you mean 'time'?"),
    ],
)
def test_a_partition_that_can_t_be_is_refused_before_anything_runs(
    config: Path, tmp_path: Path, partitions: str, complaint: str
) -> None:
    outcome = run("compare", config, "--partitions", partitions, "--out", tmp_path / "none")
    assert outcome.complaint() == complaint
    assert not (tmp_path / "none").exists()


def test_two_corpora_of_one_name_and_a_file_that_is_not_there_are_refused(config: Path, tmp_path: Path) -> None:
    for name in ("a/x.toml", "b/x.toml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("seed = 1\n")
    two = f"{tmp_path}/a/x.toml,{tmp_path}/b/x.toml"
    outcome = run("compare", config, "--corpora", two, "--out", tmp_path / "none")
    assert outcome.complaint() == "two corpora are called 'x'; rename one of the files"
    outcome = run("compare", config, "--corpora", f"{tmp_path}/c.toml", "--out", tmp_path / "none")
    assert outcome.complaint() == f"there is no config '{tmp_path}/c.toml'; check the path"
