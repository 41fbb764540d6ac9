"""A run as a folder: what it holds, what it refuses, and that its bits hang on its config alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import grandrounds
from grandrounds.config.schema import load_config, make_config
from grandrounds.data.formats import read
from grandrounds.data.structural_entropy import entropies
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.audit import verify
from grandrounds.reports.report import write_report
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.results import Result
from grandrounds.simulation.prepare import prepare
from grandrounds.tasks.sentence_re import SentenceRE
from tests.conftest import HOSPITALS, TinyConfig, corpus, sentence, write_corpus
from tests.simulation.crashes import PowerCut, Watch, cut, metrics, timeless, weights

RESULT = {"test", "rounds", "seconds", "bytes_up_per_site_round", "bytes_down_per_site_round", "peak_memory_mb"}


@pytest.fixture(scope="module")
def finished(tiny_config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    grandrounds.run(tiny_config(**{"federation.rounds": 3}), out=out)
    return out


def run(content: dict[str, Any], out: Path, **more: Any) -> Result:
    return grandrounds.run(content, out=out, **more)


# What a run leaves behind


def test_the_result_has_the_keys_that_programs_read(finished: Path, tiny_config: TinyConfig) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert result.keys() >= RESULT
    assert result["test"].keys() >= {"precision", "recall", "f1"}
    assert (result["rounds"], result["algorithm"], result["seed"]) == (3, "fedavg", 1)
    lines = metrics(finished)
    assert result["bytes_up_per_site_round"] == sum(line["bytes_up"] for line in lines) / 9
    assert result["bytes_down_per_site_round"] == sum(line["bytes_down"] for line in lines) / 9
    assert verify(finished / "audit.jsonl", result["audit_head"]) > 18


def test_bytes_are_those_of_the_saved_weights_within_their_header(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert result["bytes_up_per_site_round"] == pytest.approx(len(weights(finished)), rel=0.01)


def test_the_saved_model_scores_what_the_result_says(finished: Path, tiny_config: TinyConfig) -> None:
    documents = read([Path(tiny_config()["data"]["test"])], "json").documents
    score, _ = grandrounds.load(finished / "model").evaluate(documents)
    assert score == json.loads((finished / "result.json").read_text())["test"]


def test_the_config_of_a_run_loads_to_an_equal_config(finished: Path, tiny_config: TinyConfig) -> None:
    expected = make_config(tiny_config(**{"federation.rounds": 3}))
    assert load_config(finished / "config.toml").complete() == expected.complete()


def test_metrics_have_each_round_once_with_who_was_asked_and_what_it_cost(finished: Path) -> None:
    lines = metrics(finished)
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["sites"] == ["site-01", "site-02", "site-03"]
        assert (line["replies"], line["lost"], line["abandoned"]) == (3, {}, False)
        assert line["bytes_up"] == line["bytes_down"] > 0


def test_fp16_halves_what_sites_send_and_nothing_else(finished: Path, tiny_config: TinyConfig, tmp_path: Path) -> None:
    run(tiny_config(**{"federation.compression": "fp16"}), tmp_path / "run")
    full, half = metrics(finished)[0], metrics(tmp_path / "run")[0]
    assert half["bytes_up"] / full["bytes_up"] == pytest.approx(0.53, abs=0.05)
    assert half["bytes_down"] == full["bytes_down"]


# The bits hang on the config alone


def test_the_same_config_gives_the_same_bits_and_another_seed_others(
    finished: Path, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    torch.manual_seed(123)
    run(tiny_config(**{"federation.rounds": 3}), tmp_path / "again")
    assert weights(tmp_path / "again") == weights(finished)
    assert timeless(metrics(tmp_path / "again")) == timeless(metrics(finished))
    run(tiny_config(**{"federation.rounds": 3}, seed=2), tmp_path / "other")
    assert weights(tmp_path / "other") != weights(finished)


def test_two_workers_give_the_same_bits(finished: Path, tiny_config: TinyConfig, tmp_path: Path) -> None:
    run(tiny_config(**{"federation.rounds": 3}, workers=2), tmp_path / "run")
    assert weights(tmp_path / "run") == weights(finished)
    assert timeless(metrics(tmp_path / "run")) == timeless(metrics(finished))


def hospitals(corpora: Path, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"train": str(corpora / f"{name}.jsonl")} for name in names}


def test_the_order_of_site_tables_changes_nothing(tiny_config: TinyConfig, corpora: Path, tmp_path: Path) -> None:
    for order, names in (("one", HOSPITALS), ("other", HOSPITALS[::-1])):
        sites = {"sites": hospitals(corpora, names), "data.train": None, "partition": {}}
        run(tiny_config(**sites), tmp_path / order)
    assert weights(tmp_path / "one") == weights(tmp_path / "other")
    assert timeless(metrics(tmp_path / "one")) == timeless(metrics(tmp_path / "other"))
    assert metrics(tmp_path / "one")[0]["sites"] == sorted(HOSPITALS)


def test_a_tiny_encoder_gives_the_same_bits_twice(tiny_config: TinyConfig, tmp_path: Path) -> None:
    for name in ("one", "other"):
        run(tiny_config(**{"model.encoder": "tiny", "federation.rounds": 1}), tmp_path / name)
    assert weights(tmp_path / "one") == weights(tmp_path / "other")


# Crashes


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_run_cut_after_a_round_and_resumed_ends_with_the_same_bits(
    finished: Path, tiny_config: TinyConfig, tmp_path: Path, after: int
) -> None:
    content, out = tiny_config(**{"federation.rounds": 3}), tmp_path / "run"
    cut(content, out, after)
    watch = Watch()
    result = run(content, out, resume=True, watcher=watch)
    assert watch.done_before == after
    assert weights(out) == weights(finished)
    assert timeless(metrics(out)) == timeless(metrics(finished))
    assert timeless(result.to_dict()) == timeless(json.loads((finished / "result.json").read_text()))


@pytest.mark.parametrize("name", ["local_only", "validation_only", "fedatt", "feded", "centralized"])
def test_every_algorithm_resumes_with_the_same_bits_moments_kept(
    name: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = tiny_config(**{"algorithm": {"name": name}, "training.optimizer_state": "keep", "federation.rounds": 3})
    run(content, tmp_path / "whole")
    cut(content, tmp_path / "cut", 2)
    run(content, tmp_path / "cut", resume=True)
    found = [sorted(p.relative_to(tmp_path / k) for p in (tmp_path / k).glob("model*/**/*")) for k in ("whole", "cut")]
    assert found[0] == found[1]
    for path in (tmp_path / "whole").glob("model*/**/model.safetensors"):
        assert path.read_bytes() == (tmp_path / "cut" / path.relative_to(tmp_path / "whole")).read_bytes()
    assert timeless(metrics(tmp_path / "whole")) == timeless(metrics(tmp_path / "cut"))


@pytest.mark.parametrize("moment", ["add_round", "checkpoint"])
def test_a_crash_between_metrics_and_checkpoint_loses_no_round_and_doubles_none(
    moment: str, finished: Path, tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grandrounds.runs import loop

    owner, name = (RunFolder, "add_round") if moment == "add_round" else (loop.RoundLoop, "_checkpoint")
    calls, original = Counter[str](), getattr(owner, name)

    def cut_the_second_round(self: Any, *given: Any) -> None:
        calls[name] += 1
        original(self, *given)
        if calls[name] == (2 if moment == "add_round" else 3):
            raise PowerCut

    content, out = tiny_config(**{"federation.rounds": 3}), tmp_path / "run"
    monkeypatch.setattr(owner, name, cut_the_second_round)
    with pytest.raises(PowerCut):
        run(content, out)
    monkeypatch.undo()
    run(content, out, resume=True)
    assert timeless(metrics(out)) == timeless(metrics(finished))
    assert weights(out) == weights(finished)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_passed_over_and_said(
    damage: str, finished: Path, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content, out = tiny_config(**{"federation.rounds": 3}), tmp_path / "run"
    cut(content, out, 2)
    path = out / "checkpoints" / "round-00002" / "model.safetensors"
    data = bytearray(path.read_bytes())
    match damage:
        case "flip":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "cut":
            path.write_bytes(data[:-100])
        case _:
            path.unlink()
    watch = Watch()
    run(content, out, resume=True, watcher=watch)
    assert watch.done_before == 1
    assert any(said.startswith("checkpoint of round 2") and "the one before is used" in said for said in watch.said)
    assert weights(out) == weights(finished)
    assert [line["round"] for line in metrics(out)] == [1, 2, 3]


def test_without_a_whole_checkpoint_there_is_nothing_to_resume(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content, out = tiny_config(), tmp_path / "run"
    cut(content, out, 1)
    for path in (out / "checkpoints").glob("*/digest"):
        path.write_text("0" * 64)
    with pytest.raises(GrandRoundsError, match="there is no whole checkpoint"):
        run(content, out, resume=True)


# The folder


def test_a_folder_that_holds_a_run_is_refused_without_resume(finished: Path, tiny_config: TinyConfig) -> None:
    with pytest.raises(GrandRoundsError, match="holds another run; go on with it by --resume"):
        run(tiny_config(**{"federation.rounds": 3}), finished)


def test_a_run_with_another_config_is_refused_and_the_difference_named(finished: Path, tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"another config \(seed differ\)"):
        run(tiny_config(**{"federation.rounds": 3}, seed=5), finished, resume=True)


def test_a_run_killed_while_it_wrote_its_first_file_leaves_the_folder_free(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    (tmp_path / ".config.toml.4242.part").write_text("seed")
    grandrounds.run(tiny_config(**{"federation.rounds": 1}), out=tmp_path)


def test_a_run_stops_once_the_test_f1_reaches_the_target(tiny_config: TinyConfig, tmp_path: Path) -> None:
    options = {"federation.rounds": 5, "training.learning_rate": 5e-3, "training.epochs": 3}
    grandrounds.run(tiny_config(**options), out=tmp_path / "all")
    f1 = [line["test"]["f1"] for line in metrics(tmp_path / "all")]
    target = sorted(f1)[2]
    first = next(i for i, score in enumerate(f1) if score >= target) + 1
    stopping = tiny_config(**options, **{"federation.stop_at_f1": target})
    assert grandrounds.run(stopping, out=tmp_path / "stopped").rounds == first
    assert first < 5


def test_a_folder_of_other_things_and_a_file_are_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("x")
    with pytest.raises(GrandRoundsError, match="is not empty and holds no run"):
        run(tiny_config(), tmp_path / "thesis")
    with pytest.raises(GrandRoundsError, match="is a file"):
        run(tiny_config(), tmp_path / "thesis" / "chapter.txt")


def test_a_folder_in_which_a_run_is_going_on_is_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    held = RunFolder(tmp_path / "run", make_config(tiny_config()), resume=False)
    with pytest.raises(GrandRoundsError, match="another process is running"):
        run(tiny_config(), tmp_path / "run", resume=True)
    held.close()


def test_a_finished_run_is_not_run_again_but_may_be_prolonged(tiny_config: TinyConfig, tmp_path: Path) -> None:
    out, watch = tmp_path / "run", Watch()
    first = run(tiny_config(**{"data.validation": 0.0}), out)
    assert run(tiny_config(**{"data.validation": 0.0}), out, resume=True, watcher=watch) == first
    assert watch.rounds == []
    longer = {"federation.rounds": 3, "data.validation": 0.0}
    run(tiny_config(**longer), out, resume=True)
    run(tiny_config(**longer), tmp_path / "three")
    assert weights(out) == weights(tmp_path / "three")


# Rounds


def test_evaluate_every_and_checkpoint_every_are_honoured(tiny_config: TinyConfig, tmp_path: Path) -> None:
    every = {"federation.evaluate_every": 2, "federation.checkpoint_every": 3, "federation.rounds": 5}
    run(tiny_config(**every, **{"data.validation": 0.0}), tmp_path / "run")
    assert [line["round"] for line in metrics(tmp_path / "run") if "test" in line] == [2, 4, 5]
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["round-00000", "round-00003", "round-00005"]


def test_only_the_splits_asked_for_are_evaluated(tiny_config: TinyConfig, tmp_path: Path) -> None:
    result = run(tiny_config(**{"federation.evaluate_on": ["validation"]}), tmp_path / "run")
    assert all("validation" in line and "test" not in line for line in metrics(tmp_path / "run"))
    assert result.test.n == 24


def test_the_saved_model_is_that_of_the_best_round_on_validation(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """A learning rate that spoils the model again: the best round is not the last."""
    wild = {"federation.rounds": 6, "training.learning_rate": 2e-2, "data.validation": 0.2, "seed": 4}
    result = run(tiny_config(**wild), tmp_path / "run")
    f1 = [line["validation"]["f1"] for line in metrics(tmp_path / "run")]
    best = f1.index(max(f1)) + 1
    assert (result.best_round, result.selected_by) == (best, "validation")
    assert best < 6, "the test needs a run whose best round is not the last"
    assert result.validation.f1 == max(f1)
    run(tiny_config(**{**wild, "federation.rounds": best}), tmp_path / "short")
    assert weights(tmp_path / "run") == weights(tmp_path / "short")


def test_without_validation_the_last_round_counts(tiny_config: TinyConfig, tmp_path: Path) -> None:
    result = run(tiny_config(**{"data.validation": 0.0}), tmp_path / "run")
    assert (result.best_round, result.selected_by, result.validation) == (None, "last round", None)
    assert result.test.to_dict() == metrics(tmp_path / "run")[-1]["test"]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"accuracy": 0.5}, "the score of the task 'sentence_re' has no 'f1', its objective"),
        ({"f1": 0.5, "how": "well"}, "the score of the task 'sentence_re': how: Input should be a valid number"),
    ],
)
def test_a_score_that_a_run_cannot_be_judged_by_is_refused(
    figures: dict[str, Any], said: str, tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SentenceRE, "score", lambda self, counts: figures)
    with pytest.raises(GrandRoundsError, match=said):
        run(tiny_config(), tmp_path / "run")


def test_early_stopping_waits_so_many_evaluations_and_no_more(tiny_config: TinyConfig, tmp_path: Path) -> None:
    frozen = {"training.learning_rate": 1e-12, "federation.rounds": 9, "federation.early_stopping": 2}
    result = run(tiny_config(**frozen), tmp_path / "run")
    assert (result.rounds, result.best_round, result.rounds_planned) == (3, 1, 9)
    assert len(metrics(tmp_path / "run")) == 3


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_that_every_site_refuses_are_abandoned_and_change_nothing(
    rounds: int, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text('allow = ["scores", "done"]')
    refused = {"federation.policy": str(tmp_path / "policy.toml"), "federation.rounds": rounds, "data.validation": 0.0}
    watch = Watch()
    result = run(tiny_config(**refused), tmp_path / "run", watcher=watch)
    lines = metrics(tmp_path / "run")
    assert [line["abandoned"] for line in lines] == [True] * rounds
    assert {reason for line in lines for reason in line["lost"].values()} == {
        "refused: the site's policy does not let 'parameters' leave"
    }
    assert any("was abandoned: 0 good replies" in said for said in watch.said)
    assert [line["bytes_up"] for line in lines] == [0] * rounds
    frozen = {**refused, "federation.rounds": 1, "algorithm": {"name": "fedatt"}}
    run(tiny_config(**frozen), tmp_path / "start")
    assert weights(tmp_path / "run") == weights(tmp_path / "start")
    assert result.rounds == rounds


def test_min_replies_that_are_not_met_abandon_and_those_met_do_not(
    tiny_config: TinyConfig, corpora: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text("allow = []")
    sites = hospitals(corpora, HOSPITALS)
    sites["mercy"]["policy"] = str(tmp_path / "policy.toml")
    common = {"sites": sites, "data.train": None, "partition": {}, "federation.rounds": 1}
    for wanted, abandoned in ((3, False), (4, True)):
        run(tiny_config(**common, **{"federation.min_replies": wanted}), tmp_path / str(wanted))
        (line,) = metrics(tmp_path / str(wanted))
        assert (line["abandoned"], list(line["lost"]), line["replies"]) == (abandoned, ["mercy"], 3)


# Sites


def test_scores_that_every_site_refuses_cost_no_model(tiny_config: TinyConfig, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('allow = ["done"]')
    options = {"algorithm": {"name": "local_only"}, "federation.policy": str(tmp_path / "p.toml")}
    watch = Watch()
    result = grandrounds.run(tiny_config(**options), out=tmp_path / "run", watcher=watch)
    assert result.test is None
    assert "test" not in metrics(tmp_path / "run")[0]
    assert any("no score on test" in sentence and "does not let 'scores' leave" in sentence for sentence in watch.said)
    assert len(list((tmp_path / "run" / "models").iterdir())) == 3


def test_weights_by_patients_need_patients_and_say_so_before_a_site_is_asked(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    path = write_corpus(tmp_path / "train.jsonl", [replace(document, attributes={}) for document in corpus(60)])
    watch = Watch()
    without = {"federation.weight_by": "patients", "data.train": str(path)}
    with pytest.raises(ConfigError, match=r"weight_by = 'patients', but site 'site-01' registered no such count"):
        run(tiny_config(**without), tmp_path / "run", watcher=watch)
    assert watch.answers == []


def test_weights_by_patients_and_by_examples_differ_where_patients_are_known(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    skewed = {"partition": {"scheme": "dirichlet", "sites": 3, "alpha": 0.3}, "federation.rounds": 1}
    found = []
    for by in ("patients", "examples", "uniform"):
        run(tiny_config(**skewed, **{"federation.weight_by": by}), tmp_path / by)
        found.append(weights(tmp_path / by))
    assert len(set(found)) == 3


def test_a_partition_by_hospital_has_a_site_for_each_with_its_own_documents(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    whole = {"data.public": 0.0, "data.validation": 0.0, "partition": {"scheme": "by", "by": "hospital"}}
    result = run(tiny_config(**whole), tmp_path / "run")
    expected = Counter(document.attributes["hospital"] for document in corpus(60))
    assert {site.name: site.examples for site in result.sites} == expected
    assert metrics(tmp_path / "run")[0]["sites"] == sorted(HOSPITALS)


def test_a_run_dealt_by_structural_entropy_shows_it_site_by_site(tiny_config: TinyConfig, tmp_path: Path) -> None:
    drugs, pain = [("aspirin", "treatment"), " and ", ("heparin", "treatment")], ("pain", "problem")
    wide = [sentence(f"w{i}", [*drugs, " eased the ", pain, " ."], {(0, 2): "TrIP"}) for i in range(10)]
    plain = corpus(30)
    train = write_corpus(tmp_path / "train.jsonl", [*plain, *wide])
    dealt = {"scheme": "structural_entropy", "sites": 3, "entropy": "code", "unit": "document"}
    result = run(tiny_config(**{"data.train": str(train), "partition": dealt}), tmp_path / "run")
    low, *_, high = entropies([*plain, *wide], "code")
    assert low < high
    expected = [("site-01", low), ("site-03", high)]
    assert [(site.name, asdict(site.entropy)) for site in result.sites] == [
        (name, pytest.approx({"min": h, "mean": h, "max": h})) for name, h in expected
    ]
    assert result.left_out == ("site-02",)
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text("utf-8")
    assert "An empty interval is left out: site-02." in page
    assert all(f">{h:.2f}</text>" in page for h in (low, high))


def test_a_site_without_examples_is_left_out_and_said(tiny_config: TinyConfig, corpora: Path, tmp_path: Path) -> None:
    empty = write_corpus(tmp_path / "empty.jsonl", [sentence("e", ["Only ", ("pain", "problem"), " ."], {})])
    sites = {**hospitals(corpora, HOSPITALS[:2]), "village": {"train": str(empty)}}
    shares = {"data.public": 0.0, "data.validation": 0.0}
    result = run(tiny_config(sites=sites, **{"data.train": None, "partition": {}}, **shares), tmp_path / "run")
    assert result.left_out == ("village",)
    assert [site.name for site in result.sites] == sorted(HOSPITALS[:2])


def test_shares_of_sites_with_nothing_to_share_do_not_stop_a_run(
    tiny_config: TinyConfig, corpora: Path, tmp_path: Path
) -> None:
    empty = write_corpus(tmp_path / "empty.jsonl", [sentence("e", ["Only ", ("pain", "problem"), " ."], {})])
    sites = {**hospitals(corpora, HOSPITALS[:2]), "village": {"train": str(empty)}}
    result = run(tiny_config(sites=sites, **{"data.train": None, "partition": {}}), tmp_path / "run")
    assert result.left_out == ("village",)


def test_a_fraction_draws_sites_by_seed_and_round(tiny_config: TinyConfig, tmp_path: Path) -> None:
    part = {"partition": {"scheme": "iid", "sites": 6}, "federation.fraction": 0.5, "federation.rounds": 4}
    run(tiny_config(**part), tmp_path / "run")
    drawn = [tuple(line["sites"]) for line in metrics(tmp_path / "run")]
    assert all(len(set(sites)) == 3 and list(sites) == sorted(sites) for sites in drawn)
    assert len(set(drawn)) > 1


def test_a_mistake_before_round_one_leaves_the_folder_free(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match="nowhere"):
        run(tiny_config(**{"data.test": "nowhere.jsonl", "model.encoder": "tiny"}), tmp_path / "run")
    run(tiny_config(**{"federation.rounds": 1, "model.encoder": "tiny"}), tmp_path / "run")
    assert (tmp_path / "run" / "result.json").exists()


def test_shares_that_leave_nothing_to_train_on_are_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"together below 1"):
        make_config(tiny_config(**{"data.public": 0.5, "data.validation": 0.5}))
    with pytest.raises(
        ConfigError, match=r"data.public = .*, data.validation = .*, data.test = .*: shares .* together below 1"
    ):
        make_config(tiny_config(**{"data.public": 0.3, "data.validation": 0.3, "data.test": 0.4}))


def test_a_share_of_train_to_test_on_is_the_same_for_every_seed(tiny_config: TinyConfig, tmp_path: Path) -> None:
    held = {}
    for seed in (1, 2):
        config = make_config(tiny_config(**{"data.test": 0.25, "seed": seed, "federation.rounds": 1}))
        ready = prepare(config, tmp_path, tmp_path / str(seed))
        held[seed] = {part: set(split.rows.tolist()) for part, split in ready.splits.items()}
        sites = [set(site_data.splits["train"].rows.tolist()) for site_data in ready.sites.values()]
        everything = [*held[seed].values(), *sites]
        assert sum(map(len, everything)) == len(set.union(*everything))
        whole = sum(map(len, everything))
        shares = {part: len(rows) / whole for part, rows in held[seed].items()}
        assert shares == pytest.approx({"test": 0.25, "public": 0.2, "validation": 0.1}, abs=0.05)
    assert held[1]["test"] == held[2]["test"]
    assert held[1]["validation"] != held[2]["validation"]


def test_sites_with_corpora_of_their_own_are_tested_on_a_corpus(tiny_config: TinyConfig, tmp_path: Path) -> None:
    train = tiny_config()["data"]["train"]
    own = {"data.test": 0.2, "data.train": None, "partition": {}, "sites": {"a": {"train": train}}}
    with pytest.raises(ConfigError, match="name a corpus to test on"):
        run(tiny_config(**own), tmp_path / "run")
