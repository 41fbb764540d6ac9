"""What every run leaves for a comparison: outcomes by unit, the work that it took, and what made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grandrounds
from grandrounds.metrics.outcomes import OUTCOMES, Record, outcomes_of_run, read_outcomes
from grandrounds.metrics.ranking import ranking_curve
from grandrounds.runs.results import Result
from tests.conftest import DISTANT_RE, DOCUMENT_RE, DRUGS, TinyConfig, corpus, write_corpus
from tests.simulation.crashes import cut, metrics

FILE = Path(OUTCOMES, "server.safetensors")
NER = {"task": {"name": "ner"}, "partition": {"scheme": "iid", "sites": 2}}


def run(config: dict[str, Any], out: Path) -> tuple[Result, dict[tuple[str, str], Record]]:
    result = grandrounds.run(config, out=out)
    return result, {(record.learner, record.split): record for record in outcomes_of_run(out)}


def f1_of(record: Record) -> float:
    tp, fp, fn = (int(record.outcomes.columns[part].sum()) for part in ("tp", "fp", "fn"))
    return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


@pytest.mark.parametrize("task", [{}, {"task": DOCUMENT_RE}, NER], ids=["sentence_re", "document_re", "ner"])
def test_the_outcomes_of_documents_sum_to_the_score(tiny_config: TinyConfig, tmp_path: Path, task: Any) -> None:
    result, found = run(tiny_config(**{"training.learning_rate": 5e-3, "federation.rounds": 4}, **task), tmp_path / "r")
    assert found.keys() == {("server", "validation"), ("server", "test")}
    for split in ("validation", "test"):
        assert f1_of(found["server", split]) == pytest.approx(getattr(result, split).f1, abs=1e-12)
    assert len(found["server", "test"].outcomes) == 24
    assert result.test.f1 > 0


def test_the_rows_of_a_note_are_one_unit(tiny_config: TinyConfig, tmp_path: Path) -> None:
    notes = [{"text": " ".join(f"The {drug} eased the pain again ." for drug in DRUGS * 3)} for _ in range(12)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    data = {"format": "notes-json", "train": str(tmp_path / "notes.jsonl"), "public": 0.25, "test": 0.25}
    config = tiny_config(task={"name": "masked_lm", "length": 32}, data=data, partition={"scheme": "iid", "sites": 2})
    result, found = run(config, tmp_path / "run")
    columns = found["server", "test"].outcomes.columns
    assert len(columns["nats"]) == 3
    assert columns["nats"].sum() / columns["masked"].sum() == pytest.approx(result.test.loss)
    assert columns["masked"].sum() == result.test.n


def test_pairs_keep_what_their_ranking_is_made_of(tiny_config: TinyConfig, tmp_path: Path) -> None:
    result, found = run(tiny_config(task=DISTANT_RE, **{"algorithm.name": "lazy_mil"}), tmp_path / "run")
    columns = found["server", "test"].outcomes.columns
    assert ranking_curve(columns["gold"].astype(bool), columns["scores"]).auc == result.test.auc
    assert len(columns["gold"]) == result.test.n
    assert columns["gold"].sum() == result.test.facts


def test_sites_with_models_of_their_own_keep_their_outcomes_beside_them(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    result, found = run(tiny_config(**{"algorithm.name": "local_only", "federation.rounds": 3}), tmp_path / "run")
    learners = result.test.learners
    assert found.keys() == {(site, "test") for site in learners}
    for site, score in learners.items():
        assert f1_of(found[site, "test"]) == pytest.approx(score.f1, abs=1e-12)
        assert (tmp_path / "run" / OUTCOMES / f"{site}.safetensors").exists()
    assert len({record.outcomes.digest for record in found.values()}) == 1


def test_the_digest_says_whether_two_runs_were_tested_on_the_same_units(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    other = str(write_corpus(tmp_path / "other.jsonl", corpus(25, "t")[1:]))
    settings: dict[str, dict[str, Any]] = {
        "one": {},
        "other seed and arm": {"seed": 2, "algorithm.name": "fedatt"},
        "other test": {"data.test": other},
    }
    made = {name: run(tiny_config(**own), tmp_path / name)[1]["server", "test"] for name, own in settings.items()}
    digests = {name: record.outcomes.digest for name, record in made.items()}
    assert digests["one"] == digests["other seed and arm"] != digests["other test"]


def test_outcomes_say_nothing_of_texts_and_ids(tiny_config: TinyConfig, tmp_path: Path) -> None:
    run(tiny_config(), tmp_path / "run")
    held = (tmp_path / "run" / FILE).read_bytes()
    assert not [word for word in (b"t000", b"aspirin", b"patient", b"TrIP") if word in held]
    columns = [record.outcomes.columns for record in read_outcomes(tmp_path / "run" / FILE)]
    assert {values.dtype for held in columns for values in held.values()} == {np.dtype(np.int64)}


# Work


def test_steps_and_examples_of_sites_and_server_are_counted(tiny_config: TinyConfig, tmp_path: Path) -> None:
    config = tiny_config(**{"training.epochs": 2, "training.batch_size": 4})
    result, _ = run(config, tmp_path / "run")
    sizes = [site.examples for site in result.sites]
    for line in metrics(tmp_path / "run"):
        assert line["examples"] == 2 * sum(sizes)
        assert line["steps"] == 2 * sum(-(-size // 4) for size in sizes)
        assert line["server_steps"] == line["server_examples"] == 0
    assert result.examples == 4 * sum(sizes)
    assert result.bytes_down == sum(line["bytes_down"] for line in metrics(tmp_path / "run"))


def test_the_server_works_too(tiny_config: TinyConfig, tmp_path: Path) -> None:
    result, _ = run(tiny_config(**{"algorithm.name": "validation_only"}), tmp_path / "run")
    assert (result.steps, result.examples) == (result.server_steps, result.server_examples)
    assert result.server_examples == 2 * 10  # those of three of 17 patients, in two rounds
    assert result.server_steps == 2 * 2


def test_fedner_counts_the_steps_of_private_and_shared_layers(tiny_config: TinyConfig, tmp_path: Path) -> None:
    options = {"name": "fedner", "batch": 6, "iterations": 3}
    result, _ = run(tiny_config(**NER, algorithm=options), tmp_path / "run")
    assert result.server_steps == 2 * 3
    assert result.steps == 2 * 3 * (2 + 1)  # two sites' private layers, and the shared ones
    assert result.examples == 2 * 3 * 6
    assert result.server_examples == 0


def test_work_is_the_same_with_workers_and_after_a_power_cut(tiny_config: TinyConfig, tmp_path: Path) -> None:
    whole, _ = run(tiny_config(), tmp_path / "whole")
    both, _ = run(tiny_config(workers=2), tmp_path / "workers")
    cut(tiny_config(), tmp_path / "cut", after=1)
    resumed = grandrounds.run(tiny_config(), out=tmp_path / "cut", resume=True)
    for result in (both, resumed):
        assert (result.steps, result.examples) == (whole.steps, whole.examples)
    held = (tmp_path / "whole" / FILE).read_bytes()
    assert (tmp_path / "workers" / FILE).read_bytes() == (tmp_path / "cut" / FILE).read_bytes() == held


def test_the_log_tells_of_the_work_that_a_reply_tells_of(tiny_config: TinyConfig, tmp_path: Path) -> None:
    result, _ = run(tiny_config(), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    up = [line for line in lines if line.get("direction") == "up"]
    assert sum(line["steps"] for line in up) == result.steps
    assert sum(line["examples"] for line in up) == result.examples
