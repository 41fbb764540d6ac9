"""FedED's tables: the printed numbers, and one shrunk run of all of them on the synthetic corpus."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.papers import PAPERS
from grandrounds.papers.corpora import CORPORA
from grandrounds.papers.feded import LITERALLY, PAPER, numbers
from grandrounds.papers.measures import scores
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.paper import Cell, PaperTable, Row
from grandrounds.papers.protocol import Study, Target, places, reproduce
from tests.papers.reproduced import InProcess, cells, reported, run_all

SHRUNK = {
    "data.options.hospitals": 2,
    "data.options.notes": 4,
    "partition.sites": 3,
    "model.warm_up": 1,
    "training.batch_size": 8,
    "task.max_length": 48,
    "device": "cpu",
}


def small(out: Path, **changes: Any) -> ReproduceOptions:
    settings = {"corpus": "synthetic", "rounds": 2, "target_f1": 0.01, "cells": 1, "overrides": SHRUNK, **changes}
    return ReproduceOptions(out, **settings)


def one_arm(study: Study) -> PaperTable:
    runs = study.run("synthetic", {"fedavg": {"algorithm.name": "fedavg"}})
    return PaperTable(
        "table3", "", "percent", "method", ["F1"], [Row("FedAvg", [Cell(None, *scores(runs["fedavg"], ["f1"]))])]
    )


SHORT = Target("one arm", ("gad",), one_arm)


def test_the_numbers_are_the_paper_s() -> None:
    printed = numbers()
    assert printed["table3"]["feded"] == [74.77, 88.61, 81.11]
    assert printed["table4"]["quoted"]["Lee et al. (2020)"] == [77.86, 83.55, 79.74]
    assert printed["table5"]["quoted"]["Chauhan et al. (2019)"] == [None, None, 71.01]
    assert printed["table6"]["TrWP"] == {"validation_only": 0, "fedavg": 0, "fedatt": 0, "feded": 11.97}
    assert printed["table7"]["feded"] == {"i2b2": 42_000, "gad": 5_000, "eu-adr": 323}
    assert printed["table8"][5] == {"B": 16, "E": 3, "fedavg": 47, "fedatt": 46, "feded": 15}
    assert sum(printed["table2"].values()) == sum(printed["table1"]["i2b2"].values()) == 29_345


def test_the_protocol_is_the_paper_s(tmp_path: Path) -> None:
    (tmp_path / "gad" / "1").mkdir(parents=True)
    for part in ("train", "test"):
        (tmp_path / "gad" / "1" / f"{part}.tsv").touch()
    config = Study(PAPER, "table3", ReproduceOptions(tmp_path / "out", tmp_path), InProcess()).config("gad")
    assert config.model.encoder == "emilyalsentzer/Bio_ClinicalBERT"
    assert (config.partition.sites, config.federation.fraction, config.data.public) == (50, 0.1, 0.2)
    assert (config.training.batch_size, config.training.epochs, config.training.learning_rate) == (4, 2, 2.5e-5)


def test_every_target_writes_markdown_and_json_that_say_what_stands_in(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    for name in PAPER.targets:
        page = (out / f"{name}.md").read_text("utf-8")
        assert "the synthetic corpus, which stands in for" in page
        assert f"grandrounds reproduce feded {name}" in page
        assert reported(out, name)["target"] == name
        assert str(out) not in page + json.dumps(reported(out, name))


def test_the_paper_s_scores_stand_beside_measured_ones(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    for name, f1 in (("table3", 81.11), ("table4", 83.87), ("table5", 75.09)):
        found = cells(out, name)["FedED"]
        result = json.loads((out / "arms" / "synthetic" / "feded-seed1" / "result.json").read_text())
        assert found["F1"]["paper"] == f1
        assert found["F1"]["measured"] == pytest.approx(100 * result["test"]["f1"])
        assert found["P"]["measured"] == pytest.approx(100 * result["test"]["precision"])
    of_class = json.loads((out / "arms/synthetic/fedatt-seed1/result.json").read_text())["test"]["per_class"]
    found = cells(out, "table6")["TrIP"]["FedAtt"]
    assert found == {"paper": 1.3, "measured": 100 * of_class["TrIP"]["f1"], "runs": [100 * of_class["TrIP"]["f1"]]}


def test_quoted_rows_are_not_measured_and_ours_have_no_paper(all_targets: tuple[Path, InProcess]) -> None:
    rows = reported(all_targets[0], "table5")["rows"]
    assert [row["name"] for row in rows if row["quoted"]] == ["Sahu et al. (2016)", "Raj et al. (2017)"]
    assert all(cell["measured"] is None for row in rows if row["quoted"] for cell in row["cells"].values())
    ours = [row for row in rows if row["section"] == "Not in the paper"]
    assert [row["name"].partition(":")[0] for row in ours] == [
        "the server's set alone",
        "FedAvg + server labels",
        "trivial",
    ]
    assert all(row["cells"]["F1"]["paper"] is None and row["cells"]["F1"]["measured"] is not None for row in ours)


@pytest.mark.parametrize(
    ("target", "row", "head", "paper"),
    [
        ("table3", "Lee et al. (2020): [CLS] alone", "cls", [77.32, 82.68, 79.83]),
        ("table4", "Lee et al. (2020): [CLS] alone", "cls", [77.86, 83.55, 79.74]),
        ("table5", "Chauhan et al. (2019): CNN upon a frozen encoder, by ranking", "ranking_cnn", [None, None, 71.01]),
    ],
)
def test_other_papers_heads_are_measured_centralised(
    target: str, row: str, head: str, paper: list[float | None], all_targets: tuple[Path, InProcess]
) -> None:
    found, folder = cells(all_targets[0], target)[row], all_targets[0] / f"arms/synthetic/centralized-{head}-seed1"
    score = json.loads((folder / "result.json").read_text())["test"]
    assert [cell["paper"] for cell in found.values()] == paper
    assert found["F1"]["measured"] == pytest.approx(100 * score["f1"])
    config = tomllib.loads((folder / "config.toml").read_text())
    assert (config["task"]["head"], config["algorithm"]["name"]) == (head, "centralized")


@pytest.mark.parametrize("target", ["table3", "table4", "table5", "table6", "table8", "figure2"])
def test_feded_as_printed_stands_beside_ours(target: str, all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    found = cells(out, target)
    rows = found if target in ("table3", "table4", "table5") else next(iter(found.values()))
    ours, literal = rows["FedED"], rows["FedED as printed"]
    for one, other in [(ours, literal)] if "paper" in ours else zip(ours.values(), literal.values(), strict=True):
        assert one["paper"] == other["paper"]
        assert other["runs"]


def test_feded_as_printed_reads_the_equations_to_the_letter_whatever_is_overridden(tmp_path: Path) -> None:
    options = small(tmp_path, overrides={"algorithm.temperature": 4.0, "algorithm.weight": 0.5, "server.epochs": 3})
    study = Study(PAPER, "table5", options, InProcess())
    made = study.config("synthetic", LITERALLY)
    read = made.complete()["algorithm"]
    assert (read["average"], read["temperature"], read["tempered_student"]) == ("probabilities", 1.0, False)
    assert (read["weight"], read["hard_labels"], made.server_training().epochs) == (None, True, 1)


def test_an_upload_s_minutes_are_its_bytes_at_a_megabyte_a_second(all_targets: tuple[Path, InProcess]) -> None:
    found = cells(all_targets[0], "table7")
    assert found["FedAvg"]["GAD, minutes"] == {"paper": 7.05, "measured": None}
    sent, minutes = found["FedED, fp16"]["i2b2 2010"], found["FedED, fp16"]["i2b2 2010, minutes"]
    assert minutes["measured"] == sent["measured"] / 60_000_000
    assert minutes["paper"] == 42_000 / 60_000_000
    page = (all_targets[0] / "table7.md").read_text()
    assert "| FedAvg | 423 MB |" in page
    assert "| 7.05 |" in page
    assert "| 0.0007 |" in page


def test_rounds_to_a_target_are_sixty_by_default() -> None:
    assert {name: target.rounds for name, target in PAPER.targets.items() if target.rounds} == {
        "table8": 60,
        "figure2": 60,
    }


def test_counts_are_of_what_the_task_finds(all_targets: tuple[Path, InProcess]) -> None:
    sizes, relations = cells(all_targets[0], "table1"), cells(all_targets[0], "table2")
    total = sizes["i2b2 2010"]["train"]["measured"] + sizes["i2b2 2010"]["test"]["measured"]
    assert total == sum(row["instances"]["measured"] for row in relations.values()) > 0
    assert sizes["GAD"]["train"] == {"paper": 4797, "measured": None}


def test_predictions_are_lighter_than_weights_and_eight_bits_lightest(all_targets: tuple[Path, InProcess]) -> None:
    bytes_up = {name: row["i2b2 2010"]["measured"] for name, row in cells(all_targets[0], "table7").items()}
    assert bytes_up["FedAvg"] == bytes_up["FedAtt"] > 50 * bytes_up["FedED, fp32"]
    assert bytes_up["FedED, fp32"] > bytes_up["FedED, fp16"] > bytes_up["FedED, int8"] > 0


def test_rounds_to_a_target_are_counted_and_drawn(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    (row,) = cells(out, "table8").values()
    assert row["FedED"]["paper"] == 9
    assert all(cell["runs"][0] in (None, 1, 2) for cell in row.values())
    drawn = (out / "figure2.svg").read_text()
    assert drawn.startswith("<svg")
    assert "FedED" in drawn
    assert "(figure2.svg)" in (out / "figure2.md").read_text()


def test_targets_share_their_arms_and_a_second_call_runs_none(all_targets: tuple[Path, InProcess]) -> None:
    out, runner = all_targets
    assert len(runner.ran) == len(set(runner.ran)) == 9 + 2 + 4 + 4
    assert run_all(PAPER, lambda name: small(out)).ran == []


def test_arms_of_another_config_are_refused(all_targets: tuple[Path, InProcess]) -> None:
    other = small(all_targets[0], overrides={**SHRUNK, "training.batch_size": 4})
    with pytest.raises(ConfigError, match=r"another config \(training\.batch_size differ\).* --out"):
        reproduce(PAPER, "table3", other, InProcess())


@pytest.mark.parametrize("name", ["i2b2", "gad", "eu-adr"])
def test_a_missing_corpus_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    sentence = CORPORA[name].missing(tmp_path)
    assert sentence is not None
    assert str(CORPORA[name].train) in sentence
    assert ("data use agreement" if name == "i2b2" else "BioBERT") in sentence
    assert CORPORA["synthetic"].missing(None) is None


def test_a_target_without_any_corpus_is_refused_and_one_with_some_names_the_rest(tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match=r"EU-ADR is missing \(--data is not given\).*--corpus synthetic"):
        places(PAPER, "table4", ReproduceOptions(tmp_path))
    for part in ("train", "test"):
        (tmp_path / "gad" / "1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "gad" / "1" / f"{part}.tsv").touch()
    found, missing = places(PAPER, "table7", ReproduceOptions(tmp_path, tmp_path))
    assert found == {"gad": "gad"}
    assert [sentence.partition(" is missing")[0] for sentence in missing] == ["i2b2 2010", "EU-ADR"]


def test_a_search_takes_the_rate_that_is_best_on_validation_and_tells_it(tmp_path: Path) -> None:
    runner = InProcess()
    options = small(tmp_path, search=True, seeds=2, rounds=1, overrides={**SHRUNK, "training.learning_rate": 3e-3})
    table = reproduce(replace(PAPER, targets={"table3": SHORT}), "table3", options, runner)
    trials = [f"fedavg-rate{rate}-seed1" for rate in ("0.001", "0.003", "0.009")]
    assert runner.ran == [*trials, "fedavg-seed1", "fedavg-seed2"]
    f1 = {}
    for trial in trials:
        folder = tmp_path / "search" / "synthetic" / trial
        config = tomllib.loads((folder / "config.toml").read_text())
        assert (config["data"]["validation"], config["federation"]["evaluate_on"]) == (0.1, ["validation"])
        found = json.loads((folder / "result.json").read_text())["validation"]
        f1[trial.split("rate")[1].removesuffix("-seed1")] = found["f1"]
    best = max(f1, key=lambda rate: f1[rate])
    assert table.to_dict()["search"] == {"fedavg": {"tried": f1, "chosen": best}}
    for seed in (1, 2):
        config = tomllib.loads((tmp_path / f"arms/synthetic/fedavg-seed{seed}/config.toml").read_text())
        assert config["training"]["learning_rate"] == float(best)
        assert config["data"]["validation"] == 0
    rate = next(line for line in table.protocol if line.name == "learning rate")
    assert (rate.paper, rate.here, rate.differs) == ("2.5e-05", best, True)
    assert f"- fedavg: `{best}` of 0.001 (" in table.to_markdown()
    assert "--search" in table.command


def test_options_of_an_algorithm_go_to_the_arms_that_have_them(tmp_path: Path) -> None:
    options = small(tmp_path, overrides={"algorithm.temperature": 0.5, "algorithm.step": 0.5})
    study = Study(PAPER, "table5", options, InProcess())
    assert study.config("synthetic", {"algorithm.name": "feded"}).algorithm == {"name": "feded", "temperature": 0.5}
    assert study.config("synthetic").algorithm == {"name": "fedavg"}
    assert study.config("synthetic", {"algorithm.name": "fedatt"}).algorithm == {"name": "fedatt", "step": 0.5}
    assert study.config("synthetic", {"algorithm.name": "validation_only"}).algorithm == {"name": "validation_only"}


def test_overrides_that_have_an_option_or_are_unknown_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'federation\.rounds' has an option of its own here; give --rounds instead"):
        ReproduceOptions(tmp_path, overrides={"federation.rounds": 3})
    with pytest.raises(ConfigError, match="did you mean 'temperature'"):
        ReproduceOptions(tmp_path, overrides={"algorithm.temperatur": 3})


def test_the_command_line_is_told_without_a_machine_s_paths(tmp_path: Path) -> None:
    options = ReproduceOptions(
        tmp_path, tmp_path, encoder="/models/minilm", overrides={"federation.policy": "/etc/site.toml"}
    )
    assert options.command("feded", "table3") == (
        "grandrounds reproduce feded table3 federation.policy=site.toml --data DIR --encoder minilm --seeds 1 "
        "--rounds 30"
    )


def test_every_paper_is_known_by_its_name() -> None:
    assert PAPERS["feded"] is PAPER
