"""`reproduce`: names that are wrong, corpora that are missing, and results alone on standard output."""

from __future__ import annotations

import signal
from pathlib import Path

from grandrounds.cli import GOES_ON
from tests.cli.commands import run, start

SMALL = ("--corpus", "synthetic", "data.options.notes=2", "data.options.hospitals=2")


def test_unknown_names_are_refused_with_the_nearest() -> None:
    assert run("reproduce", "fedde").complaint() == "unknown paper 'fedde'; did you mean 'feded'?"
    assert run("reproduce", "feded", "tabel3").complaint() == "unknown target of feded 'tabel3'; did you mean 'table3'?"
    assert run("reproduce", "feded", "--corpus", "gda").complaint() == "unknown corpus 'gda'; did you mean 'gad'?"


def test_a_target_without_its_corpus_says_how_to_get_it_and_what_else_to_try(tmp_path: Path) -> None:
    said = run("reproduce", "feded", "table3", "--data", tmp_path, "--out", tmp_path / "out").complaint()
    assert said.startswith("GAD is missing (it is not under --data): take BioBERT's relation-extraction archive")
    assert "gad/1/train.tsv and gad/1/test.tsv" in said
    assert said.endswith("--corpus synthetic")
    assert not (tmp_path / "out").exists()


def test_with_no_corpus_at_all_nothing_runs(tmp_path: Path) -> None:
    assert "is missing" in run("reproduce", "feded", "--out", tmp_path / "out").complaint()


def test_json_alone_is_on_standard_output(tmp_path: Path) -> None:
    reported = run("reproduce", "feded", "table1", "table2", *SMALL, "--out", tmp_path, "--json").json()
    assert list(reported) == ["table1", "table2"]
    assert reported["table2"]["rows"][0]["cells"]["instances"]["paper"] == 3053
    assert reported["table2"]["command"].startswith("grandrounds reproduce feded table2 data.options.notes=2")


def test_a_table_shows_the_paper_beside_the_measured_and_says_what_stands_in(tmp_path: Path) -> None:
    shown = run("reproduce", "feded", "table2", *SMALL, "--out", tmp_path).good().stdout
    assert "paper" in shown
    assert "measured" in shown
    assert "the synthetic corpus, which stands in for i2b2 2010" in shown.replace("\n", " ")


def test_fedlcc_s_corpora_and_sites_are_counted_without_training(tmp_path: Path) -> None:
    reported = run("reproduce", "fedlcc", "table1", "figure2", *SMALL, "--out", tmp_path, "--json").json()
    assert reported["table1"]["rows"][0]["cells"]["train"] == {"paper": 500, "measured": 4, "runs": [4]}
    assert sum(row["cells"]["documents"]["measured"] for row in reported["figure2"]["rows"]) == 4
    assert (tmp_path / "figure2.svg").exists()
    assert not (tmp_path / "arms").exists()


def test_the_nearest_corpus_is_named_where_the_paper_s_is_missing(tmp_path: Path) -> None:
    said = run("reproduce", "fedlcc", "table5", "--data", tmp_path, "--out", tmp_path / "out").complaint()
    assert said.startswith("GDA is missing (it is not under --data): prepare it as edge-oriented graphs do")
    assert "gda/eog/train.data, gda/eog/dev.data and gda/eog/test.data" in said
    assert said.endswith("--corpus chemdisgene-disease")


def test_fedds_says_how_to_get_its_corpora(tmp_path: Path) -> None:
    said = run("reproduce", "fedds", "table2", "--data", tmp_path, "--out", tmp_path / "out").complaint()
    assert said.startswith("NYT10 is missing (it is not under --data): take it from OpenNRE")
    assert "nyt10/nyt10_train.txt and nyt10/nyt10_test.txt" in said
    assert said.endswith("--corpus gids")


def test_fedner_s_platforms_are_counted_without_training(tmp_path: Path) -> None:
    fewer = [f"sites.{name}.options.notes=2" for name in ("st-anne", "riverside", "northgate")]
    reported = run("reproduce", "fedner", "table1", "--corpus", "synthetic", *fewer, "--out", tmp_path, "--json").json()
    rows = {row["name"]: row["cells"] for row in reported["table1"]["rows"]}
    assert rows["at several platforms"]["entities"]["paper"] == 341
    assert rows["northgate (synthetic), in the place of SMM4H"]["types"]["measured"] == 1
    assert not (tmp_path / "arms").exists()


def test_fedner_s_platforms_that_need_access_are_named(tmp_path: Path) -> None:
    said = run("reproduce", "fedner", "table2", "--data", tmp_path, "--out", tmp_path / "out").complaint()
    assert "CADEC is missing (it is not under --data): take it from CSIRO's data access portal" in said
    assert "smm4h/train.tsv" in said
    assert said.endswith("--corpus three-platforms")


def test_a_stopped_reproduction_says_that_the_same_command_goes_on(tmp_path: Path) -> None:
    prelude = f"""
import pathlib, time
from grandrounds.simulation import sweep
def wait(*_):
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    time.sleep(60)
sweep.run_arms = wait
"""
    command = ("reproduce", "feded", "table7", *SMALL, "--out", tmp_path / "out")
    running = start(*command, prelude=prelude)
    running.until(tmp_path / "begun")
    running.send(signal.SIGINT)
    said = running.wait(30).complaint(130)
    assert said == "stopped; what was finished is kept, and the same command goes on"
    assert "no such option" in run(*command, "--resume").stderr.lower()


def test_every_command_that_takes_resume_is_advised_so() -> None:
    for name, advice in GOES_ON.items():
        assert ("--resume" in run(name, "--help").stdout) == ("--resume" in advice)
