"""`grandrounds run`: results on standard output, progress on standard error, a folder that holds everything."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tests.cli.commands import Outcome, run

Finished = tuple[Path, Outcome]


def test_standard_output_holds_the_result_and_nothing_else(finished: Finished) -> None:
    folder, outcome = finished
    assert outcome.json() == json.loads((folder / "result.json").read_text())


def test_progress_is_on_standard_error_a_line_a_round(finished: Finished) -> None:
    lines = [line.split()[:2] for line in finished[1].stderr.splitlines()]
    assert [line for line in lines if line and line[0] == "round"] == [["round", "1"], ["round", "2"], ["round", "3"]]


def test_the_result_says_what_programs_ask_for(finished: Finished) -> None:
    result = finished[1].json()
    assert {"precision", "recall", "f1", "accuracy", "n", "baseline", "baseline_f1", "per_class"} <= set(result["test"])
    assert (result["algorithm"], result["task"], result["rounds"], result["seed"]) == ("fedavg", "sentence_re", 3, 1)
    assert result["test"]["n"] == 24
    assert [site["name"] for site in result["sites"]] == ["site-01", "site-02", "site-03"]
    assert result["bytes_up_per_site_round"] == result["bytes_down_per_site_round"] > 0
    assert result["seconds"] > 0
    assert result["peak_memory_mb"] > 0
    assert result["selected_by"] == "validation"


def test_a_run_is_a_folder(finished: Finished) -> None:
    folder, _ = finished
    there = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert there == {
        "config.toml",
        "metrics.jsonl",
        "audit.jsonl",
        "checkpoints",
        "result.json",
        "model",
        "report.html",
        "outcomes",
        "sites.json",
    }
    f1s = [json.loads(line)["validation"]["f1"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    best = {1 + f1s[:done].index(max(f1s[:done])) for done in (2, 3)}
    kept = {int(path.name.removeprefix("round-")) for path in (folder / "checkpoints").iterdir()}
    assert kept == {0, 2, 3} | best


def test_the_folder_holds_the_complete_config_after_overrides(finished: Finished, config: Path) -> None:
    held = tomllib.loads((finished[0] / "config.toml").read_text())
    assert held["federation"]["rounds"] == 3
    assert held["training"]["optimizer"] == "adamw"
    assert tomllib.loads(config.read_text())["federation"]["rounds"] == 2


def test_bytes_on_the_wire_are_what_metrics_and_audit_both_say(finished: Finished) -> None:
    folder, _ = finished
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    audit = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    for way in ("up", "down"):
        logged = sum(line["bytes"] for line in audit if line.get("direction") == way)
        assert logged == sum(line[f"bytes_{way}"] for line in metrics) > 0


def test_a_finished_run_is_not_run_again(finished: Finished, config: Path) -> None:
    folder, first = finished
    before = (folder / "metrics.jsonl").stat().st_mtime_ns
    again = run("run", config, "federation.rounds=3", "--out", folder, "--resume", "--json")
    assert again.json() == first.json()
    assert "already finished" in again.stderr
    assert (folder / "metrics.jsonl").stat().st_mtime_ns == before


def test_more_rounds_of_a_finished_run_are_the_bits_of_a_longer_one(
    finished: Finished, config: Path, tmp_path: Path
) -> None:
    run("run", config, "--out", tmp_path / "two").good()
    longer = run("run", config, "federation.rounds=3", "--out", tmp_path / "two", "--resume").good()
    assert "going on after round 2" in longer.stderr
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (tmp_path / "two", finished[0])]
    assert weights[0] == weights[1]


def test_without_json_a_person_sees_a_table_with_the_trivial_baseline(config: Path, tmp_path: Path) -> None:
    outcome = run("run", config, "federation.rounds=1", "--out", tmp_path / "run").good()
    assert "all (micro)" in outcome.stdout
    assert "trivial: all 'TeRP'" in outcome.stdout
    assert str(tmp_path / "run" / "report.html") in outcome.stdout


def test_data_paths_may_start_elsewhere(config: Path, corpora: Path, tmp_path: Path) -> None:
    paths = ("data.train=train.jsonl", "data.test=test.jsonl", "federation.rounds=1")
    result = run("run", config, *paths, "--data", corpora, "--out", tmp_path / "run", "--json").json()
    assert result["test"]["n"] == 24


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(
    finished: Finished, config: Path, tmp_path: Path
) -> None:
    for seed in (1, 2):
        run("run", config, "federation.rounds=3", f"seed={seed}", "--out", tmp_path / str(seed)).good()
    same, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("1", "2"))
    first = (finished[0] / "model" / "model.safetensors").read_bytes()
    assert same == first != other
