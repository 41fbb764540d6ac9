"""Federated BERT's tables: the printed numbers, and one shrunk run of all of them on synthetic notes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import torch as safetensors
from scipy.spatial.distance import jensenshannon
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.papers import PAPERS
from grandrounds.papers.fedbert import LOSSES, PAPER, PRETRAINING, TUNING, _describe_losses, numbers
from grandrounds.papers.fedbert_stages import SETTINGS, STAGES, encoder, overrides
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.paper import Cell
from grandrounds.papers.protocol import Study, places, reproduce
from grandrounds.reports.runs import Run
from grandrounds.simulation.prepare import held_out
from tests.papers.reproduced import InProcess, cells, planned, reported, run_all

OF_NOTES = {
    "data.options.hospitals": 2,
    "data.options.notes": 8,
    "data.validation": 0.2,
    "data.public": 0.2,
    "task.length": 32,
    "model.layers": 2,
    "model.width": 16,
    "model.heads": 2,
    "model.pieces": 200,
    "model.vocabulary_documents": 2,
    "training.learning_rate": 0.005,
    "federation.rounds": 2,
}
SHRUNK = {
    **{f"pretraining.{key}": value for key, value in OF_NOTES.items()},
    "data.options.hospitals": 2,
    "data.options.notes": 6,
    "data.validation": 0.2,
    "partition.sites": 2,
    "training.batch_size": 4,
    "training.epochs": 3,
    "training.learning_rate": 0.01,
    "device": "cpu",
}
PRETRAINED = ["centralized-seed1", "federated-seed1"]
TUNED = [
    f"{before}-then-{tuning}-seed1"
    for tuning in TUNING
    for before in ("none", "centralized-cycle2", "federated-cycle2")
]
All = tuple[Path, InProcess]


def small(out: Path, **changes: Any) -> ReproduceOptions:
    return ReproduceOptions(out, **{"corpus": "synthetic", "rounds": 2, "overrides": SHRUNK, **changes})


def arm(out: Path, corpus: str, name: str) -> Path:
    return out / "arms" / corpus / f"{name}-seed1"


def config(out: Path, corpus: str, name: str) -> dict[str, Any]:
    return tomllib.loads((arm(out, corpus, name) / "config.toml").read_text("utf-8"))


def result(out: Path, corpus: str, name: str) -> dict[str, Any]:
    return dict(json.loads((arm(out, corpus, name) / "result.json").read_text("utf-8")))


def kept(out: Path, name: str, cycle: int) -> Path:
    return arm(out, "synthetic-notes", name) / "models" / f"round-{cycle:05d}"


def test_the_numbers_are_the_paper_s() -> None:
    printed = numbers()
    assert printed["table1"]["i2b2-2010"]["centralized-then-centralized"] == [84.4, 87.3, 85.8]
    assert printed["table1"]["i2b2-2012"]["none-then-federated"] == [66.7, 70.7, 68.6]
    for grid in printed["table1"].values():
        assert list(grid) == [f"{before}-then-{tuning}" for tuning in TUNING for before in PRETRAINING]
        for precision, recall, f1 in grid.values():
            assert 2 * precision * recall / (precision + recall) == pytest.approx(f1, abs=0.1)
    assert printed["table2"]["spearman"]["none-federated"] == 0.96
    assert printed["table2"]["distance_sum"]["centralized-federated"] == 314.38
    assert PAPERS["fedbert"] is PAPER


def test_the_protocol_is_the_paper_s(tmp_path: Path) -> None:
    study = Study(
        PAPER, "table1", ReproduceOptions(tmp_path / "out", _touched(tmp_path), rounds=PAPER.rounds), InProcess()
    )
    first, second = study.config("mimic-iii"), study.config("i2b2-2010")
    assert (first.model.encoder, first.task["name"], first.task["length"]) == (
        "google-bert/bert-base-cased",
        "masked_lm",
        128,
    )
    assert (first.partition.sites, first.partition.unit, first.federation.weight_by) == (5, "patient", "patients")
    assert (first.federation.rounds, first.training.epochs) == (10, 1)
    assert (second.partition.sites, second.partition.unit, second.federation.weight_by) == (5, "document", "notes")
    assert (second.training.learning_rate, second.training.batch_size, second.training.epochs) == (2e-5, 32, 1)
    assert (second.task["tagger"], second.task["crf"], second.task["scheme"]) == ("bert", False, "BIO")
    assert second.federation.rounds == 6


def test_every_target_says_what_stands_in_and_what_the_paper_set(all_targets: All) -> None:
    out, _ = all_targets
    for name in PAPER.targets:
        page = (out / f"{name}.md").read_text("utf-8")
        assert "synthetic notes, which stands in for" in page
        assert "MIMIC-III's discharge summaries" in page
        assert f"grandrounds reproduce fedbert {name} pretraining.data.options.hospitals=2" in page
        assert str(out) not in page + json.dumps(reported(out, name))
        assert f"{name}.svg" in page
    assert "the synthetic corpus" not in (out / "table2.md").read_text("utf-8")
    protocol = reported(out, "table1")["protocol"]
    assert protocol["pre-training: cycles"] == {"paper": "15, of which cycle 10 is used", "here": "2"}
    assert protocol["pre-training: encoder"] == {"paper": "BERT base", "here": "new, 2 layers x 16"}
    assert protocol["pre-training: weights"] == {"paper": "patients", "here": "patients"}
    assert protocol["fine-tuning: weights"] == {"paper": "notes", "here": "notes"}
    assert protocol["fine-tuning: cycles"] == {"paper": "6; centralised: 4 epochs", "here": "2; centralised: 3 epochs"}
    assert protocol["fine-tuning: batch size"] == {"paper": "32", "here": "4"}


def test_overrides_go_to_their_stage_and_those_without_a_section_to_both(all_targets: All) -> None:
    out, _ = all_targets
    first, second = config(out, "synthetic-notes", "federated"), config(out, "synthetic", "none-then-federated")
    assert (first["task"]["length"], first["training"]["batch_size"], first["federation"]["rounds"]) == (32, 8, 2)
    assert (second["task"]["name"], second["training"]["batch_size"], second["federation"]["rounds"]) == ("ner", 4, 2)
    assert (first["device"], second["device"]) == ("cpu", "cpu")
    assert config(out, "synthetic", "none-then-centralized")["federation"]["rounds"] == 1  # 4 epochs for 6 cycles


def test_the_grid_stands_beside_the_paper_s(all_targets: All) -> None:
    out, _ = all_targets
    sections: dict[str, dict[str, Any]] = {}
    for row in reported(out, "table1")["rows"]:
        sections.setdefault(row["section"], {})[row["name"]] = row["cells"]
    assert list(sections) == [
        "the synthetic corpus after synthetic notes",
        "i2b2 2012 after MIMIC-III's discharge summaries: not run",
    ]
    own, other = sections.values()
    for before, title in PRETRAINING.items():
        for tuning, how in TUNING.items():
            found = own[f"{title}, {how}"]
            name = f"{before if before == 'none' else f'{before}-cycle2'}-then-{tuning}"
            test = result(out, "synthetic", name)["test"]
            measured = [100 * test[score] for score in ("precision", "recall", "f1")]
            assert [cell["measured"] for cell in found.values()] == pytest.approx(measured)
            theirs = numbers()["table1"]
            assert [cell["paper"] for cell in found.values()] == theirs["i2b2-2010"][f"{before}-then-{tuning}"]
            cells = other[f"{title}, {how}"].values()
            assert [cell["paper"] for cell in cells] == theirs["i2b2-2012"][f"{before}-then-{tuning}"]
            assert {cell["measured"] for cell in cells} == {None}


def test_fine_tuning_starts_from_the_encoder_of_its_pretraining(all_targets: All) -> None:
    out, _ = all_targets
    starts = {
        "none-then-centralized": kept(out, "federated", 0),
        "centralized-cycle2-then-federated": kept(out, "centralized", 2),
        "federated-cycle2-then-federated": kept(out, "federated", 2),
        "federated-cycle1-then-centralized": kept(out, "federated", 1),
    }
    for name, folder in starts.items():
        assert config(out, "synthetic", name)["model"]["encoder"] == str(folder.resolve())
    assert reported(out, "table1")["arms"]["none-then-federated"]["model.encoder"] == "federated/models/round-00000"
    study = Study(PAPER, "table1", small(out, seeds=2), InProcess())
    place = study.place(encoder("synthetic-notes", "centralized", 2, study.options), 2)
    assert place.endswith("/arms/synthetic-notes/centralized-seed2/models/round-00002")


def test_pretraining_may_run_once_for_every_seed(all_targets: All) -> None:
    (out, _), runner = all_targets, InProcess()
    options = small(out, seeds=2, overrides={**SHRUNK, "pretraining.seed": 1})
    table = PAPER.targets["table1"].make(Study(PAPER, "table1", options, runner))
    assert runner.ran == [name.replace("seed1", "seed2") for name in TUNED]
    second = tomllib.loads((out / "arms" / "synthetic" / runner.ran[1] / "config.toml").read_text("utf-8"))
    assert second["seed"] == 2
    assert second["model"]["encoder"] == str(kept(out, "centralized", 2).resolve())
    assert "Pre-training ran once, with seed 1." in " ".join(table.footnotes)
    with pytest.raises(ConfigError, match=r"pretraining\.seed = 'one'; it must be a whole number"):
        PAPER.targets["table1"].make(Study(PAPER, "table1", small(out, overrides={"pretraining.seed": "one"}), runner))


def test_all_encoders_start_alike_and_end_differently(all_targets: All) -> None:
    out, _ = all_targets
    files = {
        (name, i): kept(out, name, i) / "model.safetensors" for name in ("centralized", "federated") for i in (0, 2)
    }
    read = {key: path.read_bytes() for key, path in files.items()}
    assert read["centralized", 0] == read["federated", 0]
    assert len(set(read.values())) == 3
    ours = safetensors.load_file(files["federated", 2])["bert.encoder.layer.0.attention.self.query.weight"]
    theirs = AutoModel.from_pretrained(kept(out, "federated", 2)).encoder.layer[0].attention.self.query.weight
    assert torch.equal(ours, theirs)


def test_what_federation_loses_is_told_in_points_and_percent(all_targets: All) -> None:
    out, _ = all_targets
    found, notes = reported(out, "table1")["rows"], reported(out, "table1")["footnotes"]
    f1 = {row["name"]: row["cells"]["F1"]["measured"] for row in found if "not run" not in row["section"]}
    whole = f1["centralised, centralised"]
    theirs = {
        "federated pre-training alone": "3.80 points (4.4%)",
        "federated fine-tuning alone": "1.50 points (1.7%)",
        "both federated": "5.00 points (5.8%)",
    }
    for what, (before, tuning) in LOSSES.items():
        (said,) = (note for note in notes if f"F1 lost with {what}," in note)
        assert f"paper {theirs[what]}" in said
        left = f1[f"{PRETRAINING[before]}, {TUNING[tuning]}"]
        share = f" ({100 * (whole - left) / whole:.1f}%)" if whole else ""
        assert said.endswith(f"measured {whole - left:.2f} points{share}.")


def test_a_loss_is_the_difference_and_its_share_of_what_there_was() -> None:
    f1 = {f"{a}-then-{b}": Cell(80.0, [60.0, 50.0]) for a in TUNING for b in TUNING}
    f1["centralized-then-centralized"] = Cell(100.0, [50.0, 50.0])
    said = "F1 lost with both federated, on CDR: paper 20.00 points (20.0%), measured -5.00 points (-10.0%)."
    assert _describe_losses("CDR", f1)[2] == said


def looked_at(folder: Path, texts: list[str]) -> tuple[Any, Any, Any]:
    """Entropies of heads, and divergences of every two, a token on average and summed: by transformers and SciPy."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    entropies, means, sums = [], [], []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            layers = model(input_ids=ids, output_attentions=True).attentions
        heads = torch.cat([layer[0] for layer in layers]).double().numpy()
        smooth = 0.9999 * heads + 0.0001 / ids.shape[1]
        entropies.append(-(smooth * np.log(smooth)).sum(-1).mean(-1))
        between = np.array([[(jensenshannon(a, b, axis=-1) ** 2).mean() for b in heads] for a in heads])
        means.append(np.nan_to_num(between))
        sums.append(np.nan_to_num(between) * ids.shape[1])
    return np.mean(entropies, axis=0), np.mean(means, axis=0), np.sum(sums, axis=0)


def test_attention_is_compared_as_scipy_would(all_targets: All) -> None:
    out, _ = all_targets
    study = Study(PAPER, "table2", small(out), InProcess())
    texts = [document.text for document in held_out(study.config("synthetic-notes"), Path())]
    assert len(texts) == 4  # two a hospital
    folders = {"none": kept(out, "federated", 0)} | {name: kept(out, name, 2) for name in ("centralized", "federated")}
    seen = {name: looked_at(folder, texts) for name, folder in folders.items()}
    found = cells(out, "table2")
    by_depth = [f"entropy by depth: {title}" for title in PRETRAINING.values()]
    assert list(found) == ["none, centralised", "none, federated", "centralised, federated", *by_depth]
    for one, other in (("none", "centralized"), ("none", "federated"), ("centralized", "federated")):
        (a, b, c), (d, e, f) = seen[one], seen[other]
        row = found[f"{PRETRAINING[one]}, {PRETRAINING[other]}"]
        assert row["Spearman"]["measured"] == pytest.approx(spearmanr(a, d).statistic)
        assert row["distance, sum"]["measured"] == pytest.approx(np.abs(c - f).mean(), rel=5e-3)
        assert row["distance, mean"]["measured"] == pytest.approx(np.abs(b - e).mean(), rel=5e-3)
    for name, title in PRETRAINING.items():
        layers = seen[name][0].reshape(2, -1).mean(axis=1)
        measured = found[f"entropy by depth: {title}"]["entropy, last layer less first"]["measured"]
        assert measured == pytest.approx(layers[-1] - layers[0], rel=1e-3, abs=1e-5)
    assert found["none, federated"]["Spearman"]["paper"] == 0.96
    assert found["none, centralised"]["distance, sum"]["paper"] == 8398.95
    assert found["none, centralised"]["distance, mean"]["paper"] is None


def test_f1_goes_by_cycle_from_before_the_first(all_targets: All) -> None:
    out, _ = all_targets
    found = cells(out, "cycles")
    assert list(found) == ["0", "1", "2"]
    names = ["none-then-centralized", "federated-cycle1-then-centralized", "federated-cycle2-then-centralized"]
    f1 = [100 * result(out, "synthetic", name)["test"]["f1"] for name in names]
    assert [row["F1"]["measured"] for row in found.values()] == pytest.approx(f1)
    lines = (arm(out, "synthetic-notes", "federated") / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["validation"]["loss"] for line in lines]
    assert [row["loss"]["measured"] for row in found.values()] == [None, *losses]
    assert "strict F1" in (out / "cycles.svg").read_text("utf-8")


def test_targets_share_their_arms_and_a_second_call_runs_none(all_targets: All) -> None:
    out, runner = all_targets
    assert runner.ran == [*PRETRAINED, *TUNED, "federated-cycle1-then-centralized-seed1"]
    assert run_all(PAPER, lambda name: small(out, cells=2)).ran == []
    assert list(cells(out, "cycles")) == ["0", "2"]


def test_more_cycles_go_on_and_leave_earlier_fine_tuning_as_it_is(all_targets: All) -> None:
    out, _ = all_targets
    for rounds, waiting in ((3, PRETRAINED), (1, [name.replace("cycle2", "cycle1") for name in TUNED])):
        options = small(out, overrides={**SHRUNK, "pretraining.federation.rounds": rounds})
        asked = [arm.folder.name for arm in planned(PAPER, "table1", options)]
        assert asked == [name for name in waiting if not (out / "arms" / "synthetic" / name).exists()]


def test_cycles_are_run_only_where_they_are_named() -> None:
    assert [name for name, target in PAPER.targets.items() if not target.asked] == ["table1", "table2"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"model.layers": 2},
            r"'model\.layers' is of the encoder that is pre-trained: give pretraining\.model\.layers",
        ),
        ({"pretraining.model.encoder": "new"}, r"'model\.encoder' has an option of its own here; give --encoder"),
        ({"pretraining.federation.rounds": 0}, r"pretraining\.federation\.rounds = 0; it must be a whole number"),
        ({"pretraining.task.lenght": 32}, r"task\.lenght"),
        ({"training.bacth_size": 32}, r"training\.bacth_size"),
        ({"pretrain.task.length": 32}, "pretrain"),
        ({"pretraining.seed": True}, r"pretraining\.seed = True; it must be a whole number"),
        ({"pretraining.federation.rounds": True}, r"pretraining\.federation\.rounds = True; it must be a whole number"),
        (
            {"pretraining.federation.early_stopping": 2},
            r"'pretraining\.federation\.early_stopping' may end pre-training before .* give pretraining\.federation",
        ),
        ({"pretraining.federation.stop_at_f1": 0.5}, "may end pre-training before the cycle whose encoder is used"),
    ],
)
@pytest.mark.parametrize("target", ["table1", "table2"])
def test_a_mistake_in_either_stage_is_told_before_anything_runs(
    target: str, changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    runner = InProcess()
    with pytest.raises(ConfigError, match=said):
        reproduce(PAPER, target, small(tmp_path, overrides={**SHRUNK, **changed}), runner)
    assert runner.ran == []


def test_nothing_is_meant_for_fine_tuning_where_there_are_only_notes(tmp_path: Path) -> None:
    runner = InProcess()
    for key in ("training.bacth_size", "training.epochs"):
        said = rf"'{key}' is of fine-tuning, which 'synthetic-notes' has none of; give pretraining\.{key}"
        with pytest.raises(ConfigError, match=said):
            reproduce(PAPER, "table2", small(tmp_path, corpus="synthetic-notes", overrides={key: 8}), runner)
    assert runner.ran == []


@pytest.mark.parametrize("target", ["table1", "table2"])
def test_an_encoder_that_has_no_transformer_is_refused_at_once(target: str, tmp_path: Path) -> None:
    runner = InProcess()
    with pytest.raises(ConfigError, match="--encoder words has no transformer to pre-train"):
        reproduce(PAPER, target, small(tmp_path, encoder="words"), runner)
    assert runner.ran == []


@pytest.mark.parametrize("by_round", [False, True])
def test_an_arm_that_was_run_for_longer_than_it_asks_is_told_unless_rounds_are_looked_up(
    by_round: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's rounds are 6 here; an arm may ask for others itself."""
    planned = {"as asked": 6, "longer": 7, "own, as asked": 4, "own, longer": 6}
    found = {name: Run(name, f"[federation]\nrounds = {rounds}", (), None) for name, rounds in planned.items()}
    module = "grandrounds.papers.protocol"
    monkeypatch.setattr(f"{module}._finished", lambda arm: True)
    monkeypatch.setattr(f"{module}.read_run", lambda folder: found[folder.name.removesuffix("-seed1")])
    study = Study(PAPER, "table1", small(tmp_path, rounds=6), InProcess())
    own = {"own, as asked": {"federation.rounds": 4}, "own, longer": {"federation.rounds": 4}}
    study.run("synthetic", {name: own.get(name, {}) for name in planned}, by_round=by_round)
    reported = ["longer had already been run for 7 rounds", "own, longer had already been run for 6 rounds"]
    assert study.footnotes == ([] if by_round else [f"{said}, which stand here." for said in reported])


def test_notes_alone_are_enough_for_table_2_but_not_for_table_1(tmp_path: Path) -> None:
    data = _touched(tmp_path)
    assert places(PAPER, "table2", ReproduceOptions(tmp_path, data))[0] == {"mimic-iii": "mimic-iii"}
    with pytest.raises(ConfigError, match="mtsamples has no mentions to be found; take --corpus cdr"):
        reproduce(PAPER, "table1", ReproduceOptions(tmp_path, data, "mtsamples"), InProcess())


def test_corpora_that_are_missing_say_where_they_go_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError) as problem:
        places(PAPER, "table1", ReproduceOptions(tmp_path, tmp_path))
    said = str(problem.value)
    assert said.count("MIMIC-III's discharge summaries is missing") == 1
    assert "put mimic-iii/NOTEEVENTS.csv under the folder that --data names" in said
    assert "i2b2 2010 is missing" in said
    assert "its folders of .xml files in i2b2-2012/train and i2b2-2012/test" in said
    assert said.endswith("such as --corpus cdr")
    with pytest.raises(
        GrandRoundsError, match=r"text/mtsamples\.jsonl .* CDR is missing .*CDR_TestSet.* --corpus synthetic$"
    ):
        places(PAPER, "table1", ReproduceOptions(tmp_path, tmp_path, "cdr"))
    assert places(PAPER, "table1", ReproduceOptions(tmp_path, _touched(tmp_path), "cdr"))[0] == {"i2b2-2010": "cdr"}


def _touched(folder: Path) -> Path:
    for path in (
        "mimic-iii/NOTEEVENTS.csv",
        "i2b2-2010/train/x",
        "i2b2-2010/test/x",
        "text/mtsamples.jsonl",
        *(f"cdr/pubtator/CDR_{part}Set.PubTator.txt" for part in ("Training", "Development", "Test")),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def test_each_stage_gets_its_overrides() -> None:
    given = {"pretraining.training.epochs": 2, "training.epochs": 3, "threads": 2, "pretraining.federation.rounds": 9}
    assert overrides("mtsamples", given) == {"training.epochs": 2, "threads": 2}
    assert overrides("cdr", given) == {"training.epochs": 3, "threads": 2}


def test_an_encoder_that_is_named_is_where_pretraining_starts(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    options = ReproduceOptions(tmp_path / "out", encoder=str(tmp_path / "bert"), corpus="synthetic")
    study = Study(PAPER, "table1", options, InProcess())
    first = study.config("synthetic-notes")
    assert (first.model.encoder, first.model.layers, first.data.public) == (str(tmp_path / "bert"), None, 0)
    assert first.model.vocabulary == "sites"
    assert first.training.learning_rate == 5e-5
    assert study.config("synthetic").training.learning_rate == 2e-5
    assert all(place.nearest in STAGES for place in STAGES.values())


def test_the_grid_may_start_from_the_first_layers_of_a_pretrained_encoder(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    given = {"pretraining.model.layers": 3}
    options = ReproduceOptions(tmp_path / "out", encoder=str(tmp_path / "bert"), corpus="synthetic", overrides=given)
    first = Study(PAPER, "table1", options, InProcess()).config("synthetic-notes")
    assert (first.model.layers, first.model.width) == (3, None)
    assert SETTINGS["pre-training: encoder"](first) == "bert, pretrained, the first 3 layers"
