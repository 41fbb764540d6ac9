"""FedNER's tables and figures: the printed numbers, and one shrunk run of all of them at three synthetic hospitals."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grandrounds.algorithms.fedner import shares
from grandrounds.config.schema import make_config
from grandrounds.data.synthetic import synthesize
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.models.taggers import TAGGERS
from grandrounds.papers import PAPERS
from grandrounds.papers.fedner import MASKS, PAPER, SCORES, SHARES, numbers
from grandrounds.papers.fedner_arms import TITLES, languages, splits, taggers
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.platforms import AT_HAND, PLATFORMS, ROLES, THEIRS
from grandrounds.papers.protocol import Study, places, reproduce
from tests.papers.reproduced import InProcess, cells, planned, reported, run_all

SITES = {"CADEC": "st-anne", "ADE Corpus": "riverside", "SMM4H": "northgate"}
TYPES = {"st-anne": ["problem", "test"], "riverside": ["problem", "treatment"], "northgate": ["treatment"]}
SHRUNK = {
    **{f"sites.{site}.options.notes": 12 for site in SITES.values()},
    "data.public": 0.2,
    "task.filters": 10,
    "task.hidden": 6,
    "task.character_width": 6,
    "training.epochs": 1,
    "training.learning_rate": 0.01,
    "algorithm.iterations": 3,
    "device": "cpu",
}
DEFAULTS = [f"{tagger}-{how}-seed1" for tagger in TITLES for how in ("alone", "fedner")]
FURTHER = [
    *("elmoner-alone-share0.1-seed1", "elmoner-fedner-share0.1-seed1"),
    *(f"elmoner-private-{private}-seed1" for private in ("cnn-lstm-crf", "crf", "nothing")),
    *("elmoner-alone-masked1-seed1", "elmoner-fedner-masked1-seed1"),
    "elmoner-fedner-mixed-seed1",
]
All = tuple[Path, InProcess, Callable[[Path, str], ReproduceOptions]]


def small(out: Path, **changes: Any) -> ReproduceOptions:
    return ReproduceOptions(out, **{"corpus": "synthetic", "rounds": 1, "cells": 1, "overrides": SHRUNK, **changes})


@pytest.fixture(scope="module")
def all_targets(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path]) -> All:
    """Every table and figure, run once; of sweeps the two ends, of the taggers' splits the full one's."""
    out, language = tmp_path_factory.mktemp("reproduced"), str(encoder_folder("bert"))

    def options(folder: Path, name: str) -> ReproduceOptions:
        return small(folder, encoder=language, cells=2 if name in ("figure3", "figure5") else 1)

    return out, run_all(PAPER, lambda name: options(out, name)), options


def result(out: Path, arm: str) -> dict[str, Any]:
    return dict(json.loads((out / "arms" / "synthetic" / f"{arm}-seed1" / "result.json").read_text("utf-8")))


def config(out: Path, arm: str) -> dict[str, Any]:
    return tomllib.loads((out / "arms" / "synthetic" / f"{arm}-seed1" / "config.toml").read_text("utf-8"))


def at(out: Path, arm: str, site: str, part: str = "test") -> list[float]:
    """Strict and relaxed F1 of a site."""
    score = result(out, arm)[part]["learners"][site]
    return [100 * score["f1"], 100 * score["relaxed_f1"]]


def measured(row: dict[str, Any]) -> list[float]:
    return [cell["measured"] for cell in row.values()]


def test_the_numbers_are_the_paper_s() -> None:
    printed = numbers()
    assert printed["table1"]["ADE Corpus"] == {"sentences": 4484, "types": 3, "entities": 4785}
    assert printed["table1"]["overlapping"] == 341
    assert printed["table2"]["CADEC"]["gram_cnn"] == [55.92, 55.08, 56.79, 80.66, 81.16, 80.17]
    assert printed["table2"]["ADE Corpus"]["fedner"] == [82.57, 80.22, 85.06, 88.90, 88.39, 89.42]
    assert printed["table2"]["SMM4H"]["s_lstm_crf"] == [32.12, 40.77, 26.50, 62.79, 70.93, 56.33]
    for role in ROLES:
        assert list(printed["table2"][role]) == [*TITLES, "fedner"]
        for f1, precision, recall, *_ in printed["table2"][role].values():
            assert 2 * precision * recall / (precision + recall) == pytest.approx(f1, abs=0.02)
    assert PAPERS["fedner"] is PAPER
    assert list(TITLES) == list(TAGGERS)


def test_the_protocol_is_the_paper_s(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for path in ("cadec/text/x.txt", "smm4h/train.tsv", "ade-corpus/DRUG-AE.rel", "ade-corpus/DRUG-DOSE.rel"):
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).touch()
    options = ReproduceOptions(tmp_path / "out", data, encoder="elmo", overrides={"model.vectors": "glove.txt"})
    made = Study(PAPER, "table2", options, InProcess()).config(THEIRS)
    options = made.task_options()
    assert (options.tagger, options.language, options.scheme, options.dropout) == ("elmoner", "elmo", "BIO", 0.2)
    assert (options.character_width, options.filters, options.hidden) == (100, 200, 200)
    assert (made.training.optimizer, made.training.learning_rate, made.training.weight_decay) == ("adam", 0.001, 0)
    assert made.complete()["algorithm"]["batch"] == 64
    assert {site.test for site in made.sites.values()} == {0.2}
    assert made.data.public == 0
    # N_i, by the sizes of its table 1.
    sizes = {role.lower().split()[0]: numbers()["table1"][role]["sentences"] for role in ROLES}
    assert {name: made.training_at(name).batch_size for name in made.sites} == shares(sizes, 64)


def test_at_each_set_of_platforms_an_epoch_alone_is_as_many_steps_as_together() -> None:
    for platforms in PLATFORMS.values():
        assert sum(platforms.batches) == 64
        assert len(platforms.corpora) == len(platforms.batches) == len(ROLES)
        make_config({"task": {"name": "ner"}, "sites": platforms.tables(), "algorithm": {"name": "fedner"}})


def test_every_target_says_what_stands_in_and_what_the_paper_set(all_targets: All) -> None:
    out, *_ = all_targets
    for name in PAPER.targets:
        page = (out / f"{name}.md").read_text("utf-8")
        assert "three synthetic hospitals, which stands in for the set of CADEC, the ADE corpus and SMM4H" in page
        assert f"grandrounds reproduce fedner {name}" in page
        assert str(out) not in page + json.dumps(reported(out, name))
        assert "/" not in json.dumps(reported(out, name)["arms"])
    protocol = reported(out, "table2")["protocol"]
    assert protocol["sentences an iteration, N"] == {"paper": "64", "here": "64"}
    assert protocol["filters"] == {"paper": "200", "here": "10"}
    assert protocol["iterations a round, FedNER"] == {"paper": "not said", "here": "3"}
    assert protocol["runs"] == {"paper": "10, the mean", "here": "1"}


def test_the_platforms_are_counted(all_targets: All) -> None:
    found, names = cells(all_targets[0], "table1"), {}
    for number, (role, site) in enumerate(SITES.items(), start=1):
        made = synthesize(hospitals=1, notes=12, first=number, types=TYPES[site])
        notes = [*made.train, *made.test]
        names[site] = {note.surface(mention) for note in notes for mention in note.mentions}
        sentences, mentions = sum(len(n.sentences) for n in notes), sum(len(n.mentions) for n in notes)
        row = found[f"{site} (synthetic), in the place of {role}"]
        assert measured(row) == [sentences, len(TYPES[site]), mentions, len(names[site])]
        assert row["entities"]["paper"] == numbers()["table1"][role]["entities"]
    one, two, three = names.values()
    assert found["at several platforms"]["entities"]["measured"] == len(one & two | two & three | one & three) > 1
    assert found["at several platforms"]["entities"]["paper"] == 341


def test_every_tagger_stands_beside_the_paper_s_at_every_platform(all_targets: All) -> None:
    out, *_ = all_targets
    rows = reported(out, "table2")["rows"]
    assert len(rows) == 3 * 11
    taggers = {title: f"{tagger}-alone" for tagger, title in TITLES.items() if tagger != "elmoner"}
    with_bert = {"ELMoNER with BERT": "elmoner-alone", "FedNER with BERT": "elmoner-fedner"}
    with_bert["FedNER, tag schemes mixed"] = "elmoner-fedner-mixed"
    for role, site in SITES.items():
        section = f"{site} (synthetic), in the place of {role}"
        own = {row["name"]: row for row in rows if row["section"] == section}
        assert list(own) == [*taggers, "ELMoNER", "FedNER", *with_bert]
        printed = dict(zip(own, [*numbers()["table2"][role].values(), *[[None] * 6] * 3], strict=True))
        for title, row in own.items():
            assert [cell["paper"] for cell in row["cells"].values()] == printed[title]
            assert row.get("not_run", False) == (title in ("ELMoNER", "FedNER"))
        for title, arm in {**taggers, **with_bert}.items():
            score = result(out, arm)["test"]["learners"][site]
            assert measured(own[title]["cells"]) == pytest.approx([100 * score[name] for name in SCORES.values()])
            assert ("language" in config(out, arm)["task"]) == (title in with_bert)
    assert "| ELMoNER | 63.86 | not run | 63.03 | not run |" in (out / "table2.md").read_text("utf-8")
    assert any("allenai.org/allennlp/software/elmo" in note for note in reported(out, "table2")["footnotes"])


@pytest.mark.parametrize("target", ["table2", "figure6"])
def test_elmo_and_bert_are_arms_of_their_own(target: str, tmp_path: Path) -> None:
    (tmp_path / "elmo").mkdir()
    (tmp_path / "elmo" / "options.json").touch()
    options = small(tmp_path / "out", encoder=f"some/bert,{tmp_path / 'elmo'}")
    found = {arm.name: arm.config.task.get("language") for arm in planned(PAPER, target, options)}
    read = {name: language and Path(language).name for name, language in found.items()}
    for how in ("alone", "fedner"):
        assert read[f"elmoner-{how}"] == "elmo"  # the paper's, whatever comes first
        assert read[f"elmoner-bert-{how}"] == "bert"
    assert {name for name, language in read.items() if language} == {n for n in read if n.startswith("elmoner")}
    assert options.command("fedner", target).endswith("--encoder some/bert,elmo --seeds 1 --rounds 1 --cells 1")
    with pytest.raises(ConfigError, match="two language models of BERT's kind"):
        languages(small(tmp_path, encoder="some/bert,other/bert"))


def test_without_any_language_model_both_are_not_run(tmp_path: Path) -> None:
    arms = planned(PAPER, "table2", small(tmp_path))
    assert sorted(arm.name for arm in arms) == sorted(
        [f"{t}-alone" for t in TITLES if t != "elmoner"] + ["cnn_clstm_crf-fedner", "cnn_clstm_crf-fedner-mixed"]
    )


def test_one_platform_tags_in_bioes_beside_others_in_bio(all_targets: All) -> None:
    out, *_ = all_targets
    models = (out / "arms" / "synthetic" / "elmoner-fedner-mixed-seed1" / "models").glob("*/grandrounds.json")
    about = {path.parent.name: json.loads(path.read_text("utf-8"))["schema"]["options"] for path in models}
    schemes = {site: options["scheme"] for site, options in about.items()}
    assert schemes == {"st-anne": "BIOES", "riverside": "BIO", "northgate": "BIO"}
    assert any("st-anne (synthetic)" in note and "BIOES" in note for note in reported(out, "table2")["footnotes"])


def test_less_training_data_takes_as_many_steps(all_targets: All) -> None:
    out, *_ = all_targets
    found = cells(out, "figure3")
    assert list(found) == ["0.1", "1"]
    for row, end in (("0.1", "-share0.1"), ("1", "")):
        (alone, relaxed), (together, also) = (
            at(out, f"elmoner-{how}{end}", "riverside") for how in ("alone", "fedner")
        )
        assert measured(found[row]) == pytest.approx([alone, together, relaxed, also, together - alone, also - relaxed])
    few = config(out, "elmoner-alone-share0.1")
    assert (few["data"]["train_share"], few["training"]["epochs"]) == (0.1, 10)
    sizes = [sum(s["examples"] for s in result(out, f"elmoner-fedner{end}")["sites"]) for end in ("-share0.1", "")]
    assert 0 < sizes[0] < 0.5 * sizes[1]  # a tenth, but one patient of a site at least
    assert all(word in (out / "figure3.svg").read_text("utf-8") for word in ("share of train", "alone", "FedNER"))


def test_what_is_shared_goes_from_nothing_to_everything(all_targets: All) -> None:
    out, *_ = all_targets
    found, made = cells(out, "figure4"), splits("elmoner", all_targets[2](out, "figure4"))
    assert (
        list(found)
        == list(made)
        == [
            "nothing",
            "embeddings",
            "embeddings + cnn",
            "embeddings + cnn + lstm",
            "everything",
        ]
    )
    private = [["cnn", "lstm", "crf"], ["lstm", "crf"], ["crf"], []]
    assert [config(out, name)["algorithm"].get("private") for name, _ in made.values()] == [None, *private]
    validated = {}
    for shared, (name, _) in made.items():
        validated[shared] = at(out, name, "riverside", "validation")[0]
        assert measured(found[shared]) == pytest.approx([*at(out, name, "riverside"), validated[shared]])
    best = max(validated, key=lambda shared: validated[shared])
    assert f"The best split by validation: ELMoNER: {best}." in reported(out, "figure4")["footnotes"]
    of_all = result(out, "elmoner-private-nothing")["test"]["per_class"]
    assert set(of_all) == {"problem", "test", "treatment"}
    assert "embeddings + cnn + lstm" in (out / "figure4.svg").read_text("utf-8")


@pytest.mark.parametrize("tagger", TITLES)
def test_every_tagger_has_its_default_among_its_splits(tagger: str, tmp_path: Path) -> None:
    made = splits(tagger, small(tmp_path, encoder="bert"))
    assert len(made) == 3 + len(TAGGERS[tagger].context)
    assert list(made)[-2 if "lstm" not in TAGGERS[tagger].splits()["default"] else -3] == next(
        shared for shared, (name, _) in made.items() if name == f"{tagger}-fedner"
    )


def test_overlapping_entities_are_masked_and_counted(all_targets: All) -> None:
    out, *_ = all_targets
    found = cells(out, "figure5")
    assert list(found) == ["0", "1"]
    warnings = result(out, "elmoner-fedner-masked1")["warnings"]
    there = warnings["entities in the training data of several sites"]
    assert warnings["of these entities, masked"] == there > 0
    assert warnings["mentions masked"] >= 2 * there
    assert config(out, "elmoner-alone-masked1")["data"]["mask_overlap"] == 1
    said = f"Entities in several platforms' training data: {there}; masked: 0 at 0, {there} at 1."
    assert said in reported(out, "figure5")["footnotes"]
    for row, end in (("0", ""), ("1", "-masked1")):
        strict = [at(out, f"elmoner-{how}{end}", "st-anne")[0] for how in ("alone", "fedner")]
        assert measured(found[row])[:2] == pytest.approx(strict)
    assert "share masked" in (out / "figure5.svg").read_text("utf-8")


def test_taggers_alone_and_under_fedner_are_told_and_drawn(all_targets: All) -> None:
    out, *_ = all_targets
    found = cells(out, "figure6")
    assert list(found) == [*TITLES.values(), "ELMoNER with BERT"]
    for tagger, title in {**TITLES, "elmoner": "ELMoNER with BERT"}.items():
        (alone, relaxed), (together, also) = (at(out, f"{tagger}-{how}", "riverside") for how in ("alone", "fedner"))
        assert measured(found[title]) == pytest.approx([alone, together, relaxed, also])
    assert [cell["paper"] for cell in found["ELMoNER"].values()] == [81.62, 82.57, 87.44, 88.90]
    assert [cell["paper"] for cell in found["LSTM-CRF"].values()] == [62.27, None, 74.59, None]
    drawn = (out / "figure6.svg").read_text("utf-8")
    drawn_titles = [title for title in found if title != "ELMoNER"]
    assert all(word in drawn for word in ("alone", "FedNER", *drawn_titles))


def test_targets_share_their_arms_and_a_second_call_runs_none(all_targets: All) -> None:
    out, runner, options = all_targets
    assert sorted(runner.ran) == sorted([*DEFAULTS, *FURTHER])
    assert run_all(PAPER, lambda name: options(out, name)).ran == []


def test_without_a_language_model_the_full_tagger_is_left_out_openly(tmp_path: Path) -> None:
    runner = InProcess()
    table = reproduce(PAPER, "figure5", small(tmp_path), runner)
    assert runner.ran == ["cnn_clstm_crf-alone-seed1", "cnn_clstm_crf-fedner-seed1"]
    assert any("ELMoNER is left out, and FedNER is of CNN-CLSTM-CRF" in note for note in table.footnotes)
    assert "elmoner" not in taggers(small(tmp_path))
    assert {line.name: line.here for line in table.protocol}["language model"] == "none"


@pytest.mark.parametrize(("target", "cells", "runs"), [("figure3", None, 8), ("figure5", 3, 6), ("figure4", 2, 9)])
def test_cells_are_the_first_of_a_sweep(target: str, cells: int | None, runs: int, tmp_path: Path) -> None:
    asked = [arm.name for arm in planned(PAPER, target, small(tmp_path, cells=cells))]
    assert len(asked) == len(set(asked)) == runs


def test_sweeps_begin_with_their_ends() -> None:
    for values in (SHARES, MASKS):
        assert set(values[:2]) == {min(values), max(values)}


def test_a_share_of_a_share_is_trained_on(tmp_path: Path) -> None:
    options = small(tmp_path, overrides={**SHRUNK, "data.train_share": 0.5, "training.epochs": 2})
    less = {arm.name: arm.config for arm in planned(PAPER, "figure3", options)}["cnn_clstm_crf-alone-share0.1"]
    assert (less.data.train_share, less.training.epochs) == (0.05, 20)


def test_platforms_that_are_missing_say_how_to_get_them_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError) as problem:
        places(PAPER, "table2", ReproduceOptions(tmp_path, tmp_path))
    said = str(problem.value)
    assert "CADEC is missing (it is not under --data): take it from CSIRO's data access portal" in said
    assert "ADE corpus is missing" in said
    assert "put the training file of task 2 as smm4h/train.tsv under the folder that --data names" in said
    assert said.endswith(f"such as --corpus {AT_HAND}")
    with pytest.raises(GrandRoundsError, match=r"PsyTAR is missing .* bc5cdr-ner/devel\.tsv .* --corpus synthetic$"):
        places(PAPER, "table2", ReproduceOptions(tmp_path, tmp_path, AT_HAND))
    assert places(PAPER, "table2", ReproduceOptions(tmp_path, corpus=AT_HAND, data=_touched(tmp_path)))[0] == {
        THEIRS: AT_HAND
    }


def _touched(folder: Path) -> Path:
    for corpus in PLATFORMS[AT_HAND].corpora:
        trains = corpus.train if isinstance(corpus.train, tuple) else (corpus.train,)
        for path in (*trains, corpus.test, PLATFORMS[AT_HAND].public):
            if isinstance(path, str):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).touch()
    return folder


def test_platforms_that_stand_in_are_named_so() -> None:
    called = [PLATFORMS[AT_HAND].called(role) for role in ROLES]
    assert called == ["PsyTAR, in the place of CADEC", "ADE corpus", "BC5CDR, in the place of SMM4H"]
    assert [PLATFORMS[THEIRS].called(role) for role in ROLES] == ["CADEC", "ADE corpus", "SMM4H"]


def test_what_a_target_varies_or_an_option_sets_can_t_be_overridden(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'task\.language' has an option of its own here; give --encoder instead"):
        ReproduceOptions(tmp_path, overrides={"task.language": "elmo"})
    for target, key, value in (("figure4", "algorithm.private", ["crf"]), ("figure5", "data.mask_overlap", 0.5)):
        options = small(tmp_path, overrides={**SHRUNK, key: value})
        with pytest.raises(ConfigError, match=f"{target} tries one value of '{key}' after another"):
            reproduce(PAPER, target, options, InProcess())
