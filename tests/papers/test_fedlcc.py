"""FedLCC's tables and figures: the printed numbers, and one shrunk run of all of them on the synthetic corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.papers import PAPERS
from grandrounds.papers.fedlcc import ENTROPY, IID, METHODS, PAPER, SCIBERT, arm, numbers
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.protocol import Study, places, reproduce
from tests.papers.reproduced import InProcess, cells, planned, reported, run_all

SHRUNK = {
    "data.options.hospitals": 2,
    "data.options.notes": 10,
    "data.validation": 0.3,
    "partition.sites": 3,
    "model.warm_up": 4,
    "training.batch_size": 2,
    "training.learning_rate": 1e-3,
    "algorithm.mu": 5.0,
    "device": "cpu",
}
TRAINED = [f"{method}-{split}-seed1" for split in ("iid", "entropy") for method in METHODS]


def small(out: Path, **changes: Any) -> ReproduceOptions:
    settings = {"corpus": "synthetic", "rounds": 2, "target_f1": 0.01, "cells": 1, "overrides": SHRUNK, **changes}
    return ReproduceOptions(out, **settings)


def result(out: Path, arm: str) -> dict[str, Any]:
    return dict(json.loads((out / "arms" / "synthetic" / arm / "result.json").read_text("utf-8")))


def f1_each_round(out: Path, arm: str) -> list[float]:
    """F1 on test, by round."""
    lines = (out / "arms" / "synthetic" / arm / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["test"]["f1"] for line in lines]


def rows(out: Path, name: str, section: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row["cells"] for row in reported(out, name)["rows"] if row["section"].startswith(section)}


def eog(id: str, *labels: str) -> str:
    """A line of two sentences, with a pair of a chemical and a disease for each label."""
    fields = [id, "Aspirin hurts .|Aspirin causes asthma and rash ."]
    for label, (disease, name, token) in zip(labels, [("D1", "asthma", 5), ("D2", "rash", 7)], strict=False):
        chemical = ["C1", "Aspirin|Aspirin", "Chemical", "0:3", "1:4", "0:1"]
        fields += [label, "L2R", "NON-CROSS", "3-4", f"{token}-{token + 1}", *chemical]
        fields += [disease, name, "Disease", str(token), str(token + 1), "1"]
    return "\t".join(fields) + "\n"


@pytest.fixture
def cdr(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "cdr" / "eog"
    folder.mkdir(parents=True)
    (folder / "train_filter.data").write_text(eog("1", "1:CID:2", "1:NR:2") + eog("2", "1:CID:2", "not_include"))
    (folder / "dev_filter.data").write_text(eog("3", "1:CID:2", "1:CID:2"))
    (folder / "test_filter.data").write_text(eog("4", "1:NR:2") + eog("5", "1:NR:2") + eog("6", "1:CID:2"))
    return tmp_path / "data"


def test_the_numbers_are_the_paper_s() -> None:
    printed = numbers()
    assert printed["table1"]["gda"]["train"] == [23353, 36079, 96399]
    assert printed["table3"]["quoted"]["GCNN (Sahu et al., 2019)"] == [52.8, 66.0, 58.6]
    assert printed["table3"][IID]["fedlcc"] == [69.56, 65.85, 67.66]
    assert printed["table4"][ENTROPY]["fedavg"] == [88.62, 90.91, 90.23]
    assert printed["table5"]["quoted"]["LSR (Nan et al., 2020)"] == [None, None, 82.2]
    assert printed["table6"][5] == {"B": 15, "E": 5, "fedavg": 11, "fedatt": 10, "fedlcc": 4}
    assert printed["table7"]["fedlcc"] == [55.56, 56.34]
    assert PAPERS["fedlcc"] is PAPER


def test_the_protocol_is_the_paper_s_table_2(cdr: Path, tmp_path: Path) -> None:
    study = Study(PAPER, "table3", ReproduceOptions(tmp_path / "out", cdr, rounds=PAPER.rounds), InProcess())
    config = study.config("cdr")
    assert (config.model.encoder, config.model.warm_up, config.data.public) == (SCIBERT, 0, 0)
    assert (config.partition.sites, config.federation.fraction, config.federation.rounds) == (10, 1, 50)
    training = config.training
    assert (training.batch_size, training.epochs, training.optimizer) == (3, 1, "adam")
    assert (training.learning_rate, training.head_learning_rate, training.weight_decay) == (2.5e-5, None, 0)
    assert config.complete()["algorithm"].items() >= {"name": "fedlcc", "mu": 0.1, "temperature": 0.5}.items()
    assert config.data.validation == "cdr/eog/dev_filter.data"
    for method, weighs in (("fedavg", "examples"), ("fedlcc", "uniform")):
        own = study.config("cdr", arm(method, ENTROPY, study.options))
        assert own.partition.scheme == ENTROPY
        assert (own.federation.weight_by or own.make_algorithm().weight_by) == weighs


def test_table_1_counts_documents_and_pairs_of_what_is_at_hand(cdr: Path, tmp_path: Path) -> None:
    reproduce(PAPER, "table1", ReproduceOptions(tmp_path, cdr), InProcess())
    found = {what: [cell["measured"] for cell in row.values()] for what, row in rows(tmp_path, "table1", "CDR").items()}
    assert found == {"documents": [2, 1, 3], "positive pairs": [2, 2, 1], "negative pairs": [1, 0, 2]}
    for absent, documents in (("CHR (not at hand)", 7298), ("GDA (not at hand)", 23353)):
        assert rows(tmp_path, "table1", absent)["documents"]["train"] == {"paper": documents, "measured": None}
    assert sum("is missing (it is not under --data)" in note for note in reported(tmp_path, "table1")["footnotes"]) == 2


def test_every_target_says_what_stands_in_and_what_the_paper_set(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    for name, target in PAPER.targets.items():
        page = (out / f"{name}.md").read_text("utf-8")
        assert f"the synthetic corpus, which stands in for {PAPER.corpora[target.corpora[0]].title}" in page
        assert f"grandrounds reproduce fedlcc {name}" in page
        assert str(out) not in page + json.dumps(reported(out, name))
    protocol = reported(out, "table3")["protocol"]
    assert protocol["encoder"] == {"paper": "SciBERT, cased", "here": "tiny"}
    assert protocol["sites, C"] == {"paper": "10", "here": "3"}
    assert protocol["rounds, T"] == {"paper": "50", "here": "2"}
    assert protocol["server's share of train"] == {"paper": "0", "here": "0.2"}
    assert protocol["contrast's weight, mu"] == {"paper": "0.1", "here": "5.0"}


def test_the_paper_s_scores_stand_beside_measured_ones(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    for name, iid, entropy in (("table3", 67.66, 65.6), ("table4", 91.99, 91.15), ("table5", 84.83, 84.32)):
        for section, own, f1 in (("(IID)", "fedlcc-iid-seed1", iid), ("(non-IID", "fedlcc-entropy-seed1", entropy)):
            found = rows(out, name, f"Federated training {section}")["FedLCC"]
            test = result(out, own)["test"]
            assert found["F1"]["paper"] == f1
            assert [found[c]["measured"] for c in ("P", "R", "F1")] == pytest.approx(
                [100 * test[c] for c in ("precision", "recall", "f1")]
            )
    arms = ["centralized-seed1", *TRAINED]
    assert len({result(out, own)["test"]["f1"] for own in arms}) > len(arms) // 2  # no row could stand for another
    centralized = rows(out, "table3", "Centralised")["the paper's model"]["F1"]
    assert (centralized["paper"], centralized["measured"]) == (
        68.1,
        100 * result(out, "centralized-seed1")["test"]["f1"],
    )


def test_quoted_rows_are_not_measured_and_the_trivial_answer_is_ours(all_targets: tuple[Path, InProcess]) -> None:
    found = reported(all_targets[0], "table3")["rows"]
    assert [row["name"].partition(" ")[0] for row in found if row["quoted"]] == ["GCNN", "LSR", "DocRE-HGNN", "MGSN"]
    assert all(cell["measured"] is None for row in found if row["quoted"] for cell in row["cells"].values())
    assert [row["name"].partition(":")[0] for row in found if row["section"] == "Not in the paper"] == ["trivial"]
    page = (all_targets[0] / "table3.md").read_text("utf-8")
    assert "| LSR (Nan et al., 2020) | – | quoted | – | quoted | 64.80 | quoted |" in page
    assert "in the round that validation data choose" in page


def test_table_7_has_ign_f1_beside_f1(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    found, test = cells(out, "table7")["FedLCC"], result(out, "fedlcc-iid-seed1")["test"]
    assert [found[c]["paper"] for c in ("Dev-Ign F1", "Dev-F1")] == [55.56, 56.34]
    assert found["Dev-Ign F1"]["measured"] == pytest.approx(100 * test["ign_f1"])
    assert found["Dev-F1"]["measured"] == pytest.approx(100 * test["f1"])


def test_rounds_to_a_target_are_counted(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    (row,) = cells(out, "table6").values()
    assert [row[title]["paper"] for title in METHODS.values()] == [8, 9, 5]
    for method, title in METHODS.items():
        f1s = f1_each_round(out, f"{method}-B3-E1-to-0.01-seed1")
        reached = [round for round, f1 in enumerate(f1s, start=1) if f1 >= 0.01]
        assert row[title]["measured"] == (reached[0] if reached else None)
        assert reached in ([], [len(f1s)])  # and there it stopped


def test_sites_and_their_entropy_are_counted_and_drawn(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    sites = cells(out, "figure2")
    assert sum(site["documents"]["measured"] for site in sites.values()) == 20
    means = [site["mean H"]["measured"] for name, site in sites.items() if "left out" not in name]
    assert means == sorted(means)
    assert "structural entropy H" in (out / "figure2.svg").read_text("utf-8")


def test_f1_by_round_is_told_and_drawn(all_targets: tuple[Path, InProcess]) -> None:
    out, _ = all_targets
    rounds = cells(out, "figure3")
    assert list(rounds) == ["round 1", "round 2"]
    assert [row["FedLCC"]["measured"] for row in rounds.values()] == pytest.approx(
        [100 * f1 for f1 in f1_each_round(out, "fedlcc-entropy-seed1")]
    )
    assert list(cells(out, "figure4")["round 1"]) == ["F=0.1"]
    for name, curve in (("figure3", "FedLCC"), ("figure4", "F=0.1")):
        assert curve in (out / f"{name}.svg").read_text("utf-8")


def test_targets_share_their_arms_and_a_second_call_runs_none(all_targets: tuple[Path, InProcess]) -> None:
    out, runner = all_targets
    to_target = [f"{method}-B3-E1-to-0.01-seed1" for method in METHODS]
    assert sorted(runner.ran) == sorted(["centralized-seed1", *TRAINED, *to_target, "fedlcc-iid-F0.1-seed1"])
    assert run_all(PAPER, lambda name: small(out)).ran == []


def test_the_whole_cohort_of_figure_4_is_the_arm_of_the_tables(tmp_path: Path) -> None:
    asked = [arm.name for arm in planned(PAPER, "figure4", small(tmp_path, cells=None))]
    assert asked == ["fedlcc-iid-F0.1", "fedlcc-iid-F0.3", "fedlcc-iid-F0.5", "fedlcc-iid"]


def test_a_reading_of_h_goes_to_the_sites_that_are_dealt_by_it(tmp_path: Path) -> None:
    options = small(tmp_path, overrides={**SHRUNK, "partition.entropy": "code"})
    study = Study(PAPER, "table3", options, InProcess())
    found = {s: study.config("synthetic", arm("fedlcc", s, options)).partition.entropy for s in (IID, ENTROPY)}
    assert found == {IID: None, ENTROPY: "code"}


@pytest.mark.parametrize(
    ("target", "nearest"), [("table4", "chemdisgene-gene"), ("table5", "chemdisgene-disease"), ("table7", "re-docred")]
)
def test_a_corpus_that_is_missing_names_the_nearest(target: str, nearest: str, tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match=rf"is missing .* such as --corpus {nearest}$"):
        places(PAPER, target, ReproduceOptions(tmp_path, tmp_path))


def test_a_stand_in_takes_the_place_of_what_it_is_nearest_to(tmp_path: Path) -> None:
    for part in ("dev", "test"):
        (tmp_path / "chemdisgene").mkdir(exist_ok=True)
        (tmp_path / "chemdisgene" / f"{part}_abstracts.txt.gz").touch()
    for corpus, place in (("chemdisgene-disease", "gda"), ("chemdisgene-gene", "chr"), ("synthetic", "cdr")):
        assert places(PAPER, "figure2", ReproduceOptions(tmp_path, tmp_path, corpus)) == ({place: corpus}, [])


def test_a_list_in_the_command_line_can_be_pasted(tmp_path: Path) -> None:
    reported = small(tmp_path, overrides={"federation.evaluate_on": ["validation"]}).command("fedlcc", "table3")
    assert """ 'federation.evaluate_on=["validation"]' --corpus synthetic""" in reported


def test_corpora_of_sentences_are_not_for_documents(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown corpus 'gad'; did you mean 'gda'"):
        places(PAPER, "table3", ReproduceOptions(tmp_path, tmp_path, "gad"))
