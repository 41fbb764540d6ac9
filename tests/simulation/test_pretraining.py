"""Pre-training as a run: the same bits however it is run, and a folder that other tasks start from."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import torch as safetensors
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data import formats
from grandrounds.data.documents import Document, Span
from grandrounds.errors import ConfigError, DataError
from grandrounds.federation.learner import Site
from grandrounds.federation.policy import RefusalError
from grandrounds.models.encoder import Encoder, Size
from grandrounds.models.word_pieces import write_pieces
from grandrounds.reports.report import write_report
from grandrounds.runs.checkpoints import Checkpoints, Progress
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import DRUGS, PROBLEMS, TinyConfig
from tests.simulation.crashes import PowerCut, cut, metrics, timeless, weights

Pretraining = Callable[..., dict[str, Any]]
SPECIALTIES = ("cardiology", "surgery", "neurology", "urology", "allergy")


@pytest.fixture(scope="module")
def config(tiny_config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Pretraining:
    path = tmp_path_factory.mktemp("notes") / "notes.jsonl"
    lines = [
        {
            "text": " ".join(f"The {DRUGS[(i * j) % 4]} eased the {PROBLEMS[(i + j) % 5]} again ." for j in range(12)),
            "specialty": SPECIALTIES[i % 5],
            "patient": f"p{i // 2}",
        }
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def make(**overrides: Any) -> dict[str, Any]:
        data = {"format": "notes-json", "train": str(path), "public": 0.1, "validation": 0.1, "test": 0.1}
        partition = {"scheme": "by", "by": "specialty", "sites": 3}
        task = {"name": "masked_lm", "length": 48, "next_sentence": True}
        return tiny_config(**{"task": task, "data": data, "partition": partition, **overrides})

    return make


@pytest.fixture(scope="module")
def finished(config: Pretraining, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pretrained") / "run"
    grandrounds.run(config(**{"federation.rounds": 3, "federation.keep_models": True}), out=out)
    return out


def test_the_loss_falls_and_the_lowest_is_chosen(finished: Path) -> None:
    losses = [line["validation"]["loss"] for line in metrics(finished)]
    assert losses[0] > losses[1] > losses[2]
    result = json.loads((finished / "result.json").read_text())
    assert result["best_round"] == 3
    assert result["test"].keys() >= {"loss", "perplexity", "accuracy", "next_accuracy", "n"}


@pytest.mark.parametrize("after", [1, 2])
def test_masks_after_a_resume_are_those_of_an_undisturbed_run(
    finished: Path, config: Pretraining, tmp_path: Path, after: int
) -> None:
    content = config(**{"federation.rounds": 3})
    cut(content, tmp_path / "run", after)
    grandrounds.run(content, out=tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(finished)
    assert timeless(metrics(tmp_path / "run")) == timeless(metrics(finished))


def test_masks_in_two_workers_are_those_of_one_process(finished: Path, config: Pretraining, tmp_path: Path) -> None:
    grandrounds.run(config(**{"federation.rounds": 3}, workers=2), out=tmp_path / "run")
    assert weights(tmp_path / "run") == weights(finished)


def test_one_sites_federation_is_centralised_training(config: Pretraining, tmp_path: Path) -> None:
    one = {"partition": {"scheme": "iid", "sites": 1}}
    for name in ("fedavg", "centralized"):
        grandrounds.run(config(**one, **{"algorithm.name": name}), out=tmp_path / name)
    assert weights(tmp_path / "fedavg") == weights(tmp_path / "centralized")


def test_masks_hang_on_seed_site_and_round(config: Pretraining, tmp_path: Path) -> None:
    drawn = {}
    for seed in (1, 2):
        simulation = prepare(make_config(config(seed=seed)), Path(), tmp_path / str(seed))
        for who in ("site-01", "site-02"):
            for round in (1, 2):
                drawn[seed, who, round] = places(simulation, who, round)
                assert drawn[seed, who, round] == places(simulation, who, round)
    assert len(set(drawn.values())) == len(drawn)


def places(simulation: Simulation, who: str, round: int) -> tuple[int, ...]:
    """Where the rows of the first site are masked when they are trained on under this name in this round."""
    batches = list[Any]()

    def note(model: Any, batch: Any) -> torch.Tensor:
        batches.append(batch)
        still: torch.Tensor = 0 * model.embeddings.sum()
        return still

    site = at_site(simulation, "site-01", who, round, 0, simulation.model)
    site.train(loss=note)
    batches.sort(key=lambda batch: int(batch.index.min()))
    return tuple(place for batch in batches for place in batch.places.tolist())


def at_site(simulation: Simulation, whose: str, who: str, round: int, exchange: int, model: torch.nn.Module) -> Site:
    """A learner with the data of one site and under the name of one."""
    site_data = simulation.sites[whose]
    return Site(
        registration=simulation.sites[who].registration,
        spec=site_data.spec,
        splits=site_data.splits,
        model=model,
        start=model.state_dict,
        private={},
        models=None,
        round=round,
        exchange=exchange,
        secret=bytes,
    )


def test_patients_weigh_where_the_config_says_so(config: Pretraining, tmp_path: Path) -> None:
    simulation = prepare(make_config(config(**{"federation.weight_by": "patients"})), Path(), tmp_path)
    for site_data in simulation.sites.values():
        counts = site_data.registration.counts
        assert counts["examples"] == counts["notes"] >= counts["patients"] > 1
        assert len(site_data.splits["train"].rows) > counts["notes"]


def test_each_cycles_model_and_the_start_are_kept_on_request_and_load_in_transformers(
    finished: Path, config: Pretraining, tmp_path: Path
) -> None:
    kept = sorted((finished / "models").iterdir())
    assert [folder.name for folder in kept] == ["round-00000", "round-00001", "round-00002", "round-00003"]
    assert (kept[3] / "model.safetensors").read_bytes() == weights(finished)
    one, three = (AutoModelForMaskedLM.from_pretrained(kept[i]).state_dict() for i in (1, 3))
    assert any(not torch.equal(one[name], three[name]) for name in one)
    before = prepare(make_config(config()), Path(), tmp_path).model.state_dict()
    start = safetensors.load_file(kept[0] / "model.safetensors")
    assert start.keys() == before.keys()
    assert all(torch.equal(start[name], before[name]) for name in start)


def test_a_run_that_is_cut_short_keeps_the_model_of_every_round_that_it_has_a_checkpoint_of(
    finished: Path, config: Pretraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, save = config(**{"federation.rounds": 3, "federation.keep_models": True}), Checkpoints.save

    def power_cut(self: Checkpoints, progress: Progress, state: Any) -> None:
        save(self, progress, state)
        if progress.round == 2:
            raise PowerCut

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", power_cut)
        with pytest.raises(PowerCut):
            grandrounds.run(content, out=tmp_path / "run")
    grandrounds.run(content, out=tmp_path / "run", resume=True)
    files = sorted(path.relative_to(finished) for path in (finished / "models").glob("*/model.safetensors"))
    assert len(files) == 4
    assert all((tmp_path / "run" / file).read_bytes() == (finished / file).read_bytes() for file in files)


@pytest.mark.parametrize(
    "task",
    [
        {"name": "sentence_re", "max_length": 32},
        {"name": "ner", "tagger": "bert"},
        {"name": "document_re", "block": 16},
    ],
)
def test_other_tasks_start_from_the_pretrained_folder(
    task: dict[str, Any], finished: Path, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = tiny_config(task=task, **{"model.encoder": str(finished / "model"), "federation.rounds": 1})
    simulation = prepare(make_config(content), Path(), tmp_path)
    ours = safetensors.load_file(finished / "model" / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    theirs = {key: value for key, value in simulation.model.state_dict().items() if key.endswith(name)}
    assert [torch.equal(value, ours[f"bert.{name}"]) for value in theirs.values()] == [True]


def test_pretraining_goes_on_from_a_pretrained_folder(finished: Path, config: Pretraining, tmp_path: Path) -> None:
    grandrounds.run(config(**{"model.encoder": str(finished / "model"), "federation.rounds": 1}), out=tmp_path / "run")
    assert metrics(tmp_path / "run")[0]["validation"]["loss"] < metrics(finished)[2]["validation"]["loss"]


def test_of_a_frozen_encoder_only_the_head_travels(finished: Path, config: Pretraining, tmp_path: Path) -> None:
    content = config(**{"task.freeze_encoder": True, "federation.rounds": 2})
    result = grandrounds.run(content, out=tmp_path / "run")
    before = prepare(make_config(content), Path(), tmp_path / "again").model.state_dict()
    after = safetensors.load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert all(torch.equal(after[name], before[name]) for name in after if name.startswith("bert."))
    assert not all(torch.equal(after[name], before[name]) for name in after if name.startswith("cls."))
    head = sum(value.nbytes for name, value in after.items() if name.startswith("cls."))
    assert head < result.bytes_up_per_site_round < head + 2000
    assert [line["validation"]["loss"] for line in metrics(tmp_path / "run")] == sorted(
        (line["validation"]["loss"] for line in metrics(tmp_path / "run")), reverse=True
    )


def test_a_report_shows_the_loss(finished: Path, config: Pretraining, tmp_path: Path) -> None:
    page = write_report([finished], tmp_path / "report.html").read_text()
    assert "Masked word pieces" in page
    assert "loss after each round" in page
    shown = page.partition("<body")[2]
    assert "loss after each round" in shown
    assert "F1" not in shown


# A new encoder


def test_a_new_encoder_has_the_size_and_the_pieces_that_were_asked_for(config: Pretraining, tmp_path: Path) -> None:
    sized = {"model": {"encoder": "new", "layers": 3, "width": 24, "heads": 2, "pieces": 120, "dropout": 0.0}}
    model: Any = prepare(make_config(config(**sized)), Path(), tmp_path).model
    shape = model.bert.config
    assert (shape.num_hidden_layers, shape.hidden_size, shape.num_attention_heads) == (3, 24, 2)
    assert (shape.intermediate_size, shape.hidden_dropout_prob) == (96, 0.0)
    assert 60 < model.embeddings.shape[0] <= 120


def test_a_vocabulary_of_the_sites_has_nothing_that_few_of_their_documents_have(
    config: Pretraining, tmp_path: Path
) -> None:
    notes = {i: f"The {DRUGS[i % 4]} eased the {PROBLEMS[i % 5]} again ." for i in range(40)}
    for i in (4, 8):
        notes[i] += " Zanardiq was there ."
    lines = ({"text": text, "specialty": SPECIALTIES[i % 2]} for i, text in notes.items())
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    model = {"encoder": "new", "vocabulary": "sites", "vocabulary_documents": 3, "pieces": 100, "width": 16}
    made = config(data={"format": "notes-json", "train": str(path), "test": 0.1}, model=model)
    made["partition"] = {"scheme": "by", "by": "specialty"}
    prepare(make_config(made), Path(), tmp_path / "run")
    learnt = (tmp_path / "run" / "vocabulary" / "pieces.txt").read_text().split()
    assert {"eased", "again", "the"} <= set(learnt)
    assert not [piece for piece in learnt if "z" in piece or "q" in piece]
    made["model"]["vocabulary_documents"] = 1
    prepare(make_config(made), Path(), tmp_path / "all")
    assert "z" in (tmp_path / "all" / "vocabulary" / "pieces.txt").read_text().split()
    policy = tmp_path / "policy.toml"
    policy.write_text("vocabulary = 2\n")
    made["federation"]["policy"] = str(policy)
    with pytest.raises(RefusalError, match="lets words leave that 2 documents have, not those of 1"):
        prepare(make_config(made), Path(), tmp_path / "refused")


@pytest.mark.parametrize(("pieces", "lower"), [(["pain", "##s", "."], True), (["Pain", "pain", "##s"], False)])
def test_a_file_of_pieces_gives_them_their_numbers(pieces: list[str], lower: bool, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "", *pieces]) + "\n", encoding="utf-8")
    encoder = Encoder.new(Size(1, 8, 2, 100, 0.1), (), path)
    assert encoder.tokenizer.convert_tokens_to_ids(["[PAD]", "[UNK]", "[MASK]", *pieces]) == [0, 1, 4, 6, 7, 8]
    assert encoder.config.vocab_size == 9
    assert encoder.pieces(["Pain pains"]) == ([[6, 6, 7]] if lower else [[6, 7, 8]])


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ({"encoder": "tiny", "layers": 2}, r"model\.layers is for model\.encoder = 'new'"),
        ({"encoder": "new", "width": 30, "heads": 4}, "4 heads can't share"),
        ({"encoder": "new", "vocabulary": "nowhere.txt"}, r"model\.vocabulary: .* can't be read"),
        ({"encoder": "tiny", "vocabulary": "public"}, "'words' or 'new'"),
        ({"encoder": "words", "vocabulary": "nowhere.txt"}, r"model\.vocabulary: .* can't be read"),
    ],
)
def test_what_does_not_fit_a_new_encoder_is_told(
    model: dict[str, Any], reported: str, config: Pretraining, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reported):
        prepare(make_config(config(model=model)), Path(), tmp_path)


def test_a_run_that_failed_with_the_sites_vocabulary_learnt_leaves_its_folder_to_the_next(
    config: Pretraining, tmp_path: Path
) -> None:
    model = {
        "encoder": "new",
        "vocabulary": "sites",
        "vocabulary_documents": 2,
        "pieces": 100,
        "width": 16,
        "layers": 1,
    }
    with pytest.raises(ConfigError, match=r"task\.length is 1024, and the encoder reads 512"):
        grandrounds.run(config(model=model, **{"task.length": 1024}), out=tmp_path / "run")
    grandrounds.run(config(model=model, **{"federation.rounds": 1}), out=tmp_path / "run")
    assert AutoTokenizer.from_pretrained(tmp_path / "run" / "model").model_max_length == 512


def test_sites_too_small_for_the_threshold_are_told_what_to_lower(config: Pretraining, tmp_path: Path) -> None:
    model = {"encoder": "new", "vocabulary": "sites", "vocabulary_documents": 99}
    with pytest.raises(
        ConfigError, match=r"^no string is in 99 documents of a site; lower model\.vocabulary_documents"
    ):
        prepare(make_config(config(model=model)), Path(), tmp_path)


def test_without_public_text_a_new_encoder_is_pointed_to_the_sites() -> None:
    with pytest.raises(ConfigError, match=r"set data\.public to .*, or learn them .* model\.vocabulary = 'sites'"):
        Encoder.new(Size(1, 8, 2, 100, 0.1), (), None)


def test_a_byte_order_mark_is_no_part_of_a_piece(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("pain\n##s\n", encoding="utf-8-sig")
    assert Encoder.new(Size(1, 8, 2, 100, 0.1), (), path).pieces(["pains"]) == [[5, 6]]


def test_a_vocabulary_in_which_a_piece_is_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("pain\npain\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="a word piece a line, each once"):
        Encoder.new(Size(1, 8, 2, 100, 0.1), (), path)


@pytest.mark.parametrize("content", ["", "\n", "[PAD]\n[UNK]\n"])
def test_a_vocabulary_without_a_piece_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="it must have a word piece a line"):
        Encoder.new(Size(1, 8, 2, 100, 0.1), (), path)


def test_patients_are_kept_together_only_where_notes_say_whose_they_are(config: Pretraining, tmp_path: Path) -> None:
    deal = {"scheme": "iid", "sites": 2, "unit": "patient"}
    named = Path(config()["data"]["train"]).read_text("utf-8").splitlines()
    path = tmp_path / "notes.jsonl"
    path.write_text("\n".join(named[:50] + [line.replace('"patient"', '"subject"') for line in named[50:]]))
    partly = config(partition=deal, **{"data.train": str(path)})
    warnings = prepare(make_config(partly), Path(), tmp_path / "a").warnings
    assert warnings["documents that do not say whose they are, each as a patient's own"] == 10
    path.write_text("\n".join(named).replace('"patient"', '"subject"'))
    with pytest.raises(ConfigError, match="none says whose it is: give each a field 'patient'"):
        prepare(make_config(partly), Path(), tmp_path / "b")


def test_a_new_encoder_begins_with_how_common_pieces_are_at_the_sites(config: Pretraining, tmp_path: Path) -> None:
    model = {"encoder": "new", "vocabulary": "sites", "vocabulary_documents": 2, "pieces": 100, "width": 16}
    made = make_config(config(model={**model, "layers": 1}))
    simulated = prepare(made, Path(), tmp_path)
    guess = simulated.model.state_dict()["cls.predictions.bias"].exp()
    assert float(guess.sum()) == pytest.approx(1)
    pieces = simulated.spec.encoder.tokenizer.convert_ids_to_tokens(list(range(len(guess))))
    known = dict(zip(pieces, guess.tolist(), strict=True))
    assert known["again"] == pytest.approx(known["eased"])  # once a sentence, both
    assert known["the"] == pytest.approx(2 * known["again"], rel=0.01)
    assert known["[MASK]"] < known["again"] / 50
    again = prepare(made, Path(), tmp_path)  # as a worker or a resumed run finds it
    assert again.model.state_dict()["cls.predictions.bias"].equal(simulated.model.state_dict()["cls.predictions.bias"])


def test_a_merged_vocabulary_comes_with_how_common_its_pieces_are(config: Pretraining, tmp_path: Path) -> None:
    """Between hosts as in a simulation: the file, and the counts beside it, which must be its own."""
    write_pieces(tmp_path / "vocab.txt", {"eased": 30, "the": 60, "again": 30, "##s": 5}, 100)
    model = {"encoder": "new", "vocabulary": str(tmp_path / "vocab.txt"), "layers": 1, "width": 16}
    made = make_config(config(model=model))
    bias = prepare(made, Path(), tmp_path / "run").model.state_dict()["cls.predictions.bias"].exp()
    pieces = (tmp_path / "vocab.txt").read_text().split()
    known = dict(zip(pieces, bias.tolist(), strict=True))
    assert known["the"] / known["eased"] == pytest.approx(61 / 31)
    assert known["again"] / known["[MASK]"] == pytest.approx(31)
    (tmp_path / "vocab.txt").write_text("\n".join(reversed(pieces)) + "\n")
    with pytest.raises(ConfigError, match=r"vocab\.usage\.json' is of another vocabulary than 'vocab\.txt'"):
        prepare(made, Path(), tmp_path / "edited")
    (tmp_path / "vocab.usage.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"vocab\.usage\.json' can't be read"):
        prepare(made, Path(), tmp_path / "broken")
    (tmp_path / "vocab.usage.json").unlink()
    plain = prepare(made, Path(), tmp_path / "plain").model.state_dict()["cls.predictions.bias"]
    assert plain.abs().max() == 0


def test_a_size_that_cannot_be_is_told_before_sites_count(
    config: Pretraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grandrounds.setup.encoders.count_strings", lambda *_: pytest.fail("sites counted"))
    model = {"encoder": "new", "vocabulary": "sites", "width": 30, "heads": 4}
    with pytest.raises(ConfigError, match=r"model\.width is 30, which 4 heads can't share"):
        prepare(make_config(config(model=model)), Path(), tmp_path)


def test_test_notes_without_a_row_are_told_before_the_training(config: Pretraining, tmp_path: Path) -> None:
    spoken = [Document(str(i), f"The pain eased again after {i} days .") for i in range(30)]
    silent = Document("a", "a \u200b", (Span(2, 3),))  # what can be read lies outside of its sentence
    for part, documents in {"train": spoken, "test": [silent]}.items():
        formats.write("json", documents, tmp_path / f"{part}.json")
    data = {part: str(tmp_path / f"{part}.json") for part in ("train", "test")}
    partition = {"scheme": "iid", "sites": 2}
    made = make_config(config(data={"format": "json", "public": 0.2, **data}, partition=partition))
    with pytest.raises(DataError, match="of the test data no row can be made for masked_lm"):
        prepare(made, Path(), tmp_path / "run")


def test_each_sites_moments_live_on_from_cycle_to_cycle_where_they_are_kept(
    config: Pretraining, tmp_path: Path
) -> None:
    """As a loop by hand has it, with a model and an Adam for each site that are never put away."""
    content = config(**{"training.optimizer_state": "keep", "federation.rounds": 3, "data.validation": 0.0})
    grandrounds.run(content, out=tmp_path / "run")
    simulation = prepare(make_config(content), Path(), tmp_path / "again")
    shared = {name: value.clone() for name, value in simulation.model.state_dict().items()}
    models = {name: copy.deepcopy(simulation.model) for name in simulation.sites}
    optimizers: dict[str, torch.optim.Optimizer] = {}
    for round in (1, 2, 3):
        for name, model in models.items():
            model.load_state_dict(shared)
            site = at_site(simulation, name, name, round, 1, model)
            site.train(optimizer=optimizers.setdefault(name, site.optimizer()))
        sizes = {name: site_data.registration.counts["examples"] for name, site_data in simulation.sites.items()}
        for name in shared:
            total = sum(size * models[site].state_dict()[name] for site, size in sizes.items())
            shared[name] = total / sum(sizes.values())
    steps = {name: {int(state["step"]) for state in one.state.values()} for name, one in optimizers.items()}
    assert all(len(own) == 1 and own.pop() > 3 for own in steps.values())
    found = safetensors.load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert max(float((found[name] - shared[name]).abs().max()) for name in found) < 1e-5


# A pretrained encoder without a head


@pytest.fixture(scope="module")
def headless(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder as most are passed on: states and tokenizer, nothing that says what stands behind a mask."""
    folder = tmp_path_factory.mktemp("headless") / "bert"
    AutoModel.from_pretrained(finished / "model").save_pretrained(folder)
    AutoTokenizer.from_pretrained(finished / "model").save_pretrained(folder)
    assert not [name for name in safetensors.load_file(folder / "model.safetensors") if "cls" in name]
    return folder


def test_a_head_that_the_encoder_lacks_begins_as_its_states_are(
    headless: Path, config: Pretraining, tmp_path: Path
) -> None:
    model: Any = prepare(make_config(config(**{"model.encoder": str(headless)})), Path(), tmp_path).model
    head = model.cls["predictions"]
    assert torch.equal(head.transform.dense.weight, torch.eye(32))
    assert head.transform.LayerNorm.weight.unique().tolist() == pytest.approx([0.3])
    assert head.bias.abs().max() == 0
    given = safetensors.load_file(headless / "model.safetensors")
    ours = model.bert.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in given.items())


def test_a_head_that_the_encoder_has_stays_as_it_is(finished: Path, config: Pretraining, tmp_path: Path) -> None:
    chosen = {"model.encoder": str(finished / "model"), "model.vocabulary": "sites", "model.vocabulary_documents": 2}
    model: Any = prepare(make_config(config(**chosen)), Path(), tmp_path).model
    given = safetensors.load_file(finished / "model" / "model.safetensors")
    assert all(torch.equal(value, given[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("source", ["sites", "public"])
def test_a_new_head_knows_how_common_the_encoders_pieces_are(
    source: str, headless: Path, config: Pretraining, tmp_path: Path
) -> None:
    chosen = {"model.encoder": str(headless), "model.vocabulary": source, "model.vocabulary_documents": 2}
    simulated = prepare(make_config(config(**chosen)), Path(), tmp_path)
    guess = simulated.model.state_dict()["cls.predictions.bias"].exp()
    assert float(guess.sum()) == pytest.approx(1)
    pieces = simulated.spec.encoder.tokenizer.convert_ids_to_tokens(list(range(len(guess))))
    known = dict(zip(pieces, guess.tolist(), strict=True))
    assert known["again"] == pytest.approx(known["eased"])  # once a sentence, both
    assert known["the"] == pytest.approx(2 * known["again"], rel=0.02)
    assert known["[MASK]"] < known["again"] / 20
    again = prepare(make_config(config(**chosen)), Path(), tmp_path)  # as a worker or a resumed run builds it
    assert again.model.state_dict()["cls.predictions.bias"].equal(simulated.model.state_dict()["cls.predictions.bias"])


def test_pieces_that_few_documents_of_a_site_have_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("pain\neased\nrash\n", encoding="utf-8")
    encoder = Encoder.new(Size(1, 8, 2, 100, 0.1), (), tmp_path / "vocab.txt")
    documents = ["pain pain", "pain eased", "rash rash rash"]
    assert encoder.count_pieces(documents, least=2) == {"pain": 3}
    assert encoder.count_pieces(documents, least=1) == {"eased": 1, "pain": 3, "rash": 3}


@pytest.mark.parametrize(
    ("chosen", "reported"),
    [
        ({"model.vocabulary": "public", "data.public": 0.0}, r"raise data\.public"),
        ({"model.vocabulary": "sites", "model.vocabulary_documents": 99}, r"lower model\.vocabulary_documents"),
        ({"model.vocabulary": "vocab.txt"}, "keeps its own word pieces; 'public' or 'sites'"),
    ],
)
def test_counts_that_cannot_be_had_are_told(
    chosen: dict[str, Any], reported: str, headless: Path, config: Pretraining, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reported):
        prepare(make_config(config(**{"model.encoder": str(headless), **chosen})), Path(), tmp_path)


@pytest.mark.parametrize("task", [{"name": "ner", "tagger": "bert"}, {"name": "document_re", "block": 16}])
def test_fine_tuning_starts_with_exactly_the_weights_that_pretraining_left(
    task: dict[str, Any], headless: Path, config: Pretraining, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    grandrounds.run(config(**{"model.encoder": str(headless), "federation.rounds": 1}), out=tmp_path / "run")
    left = safetensors.load_file(tmp_path / "run" / "model" / "model.safetensors")
    start = safetensors.load_file(headless / "model.safetensors")
    assert any(not torch.equal(left[f"bert.{name}"], value) for name, value in start.items() if "pooler" not in name)
    content = tiny_config(task=task, **{"model.encoder": str(tmp_path / "run" / "model"), "federation.rounds": 1})
    tuned = prepare(make_config(content), Path(), tmp_path / "tuned")
    taken = {name.removeprefix("encoder."): value for name, value in tuned.model.state_dict().items()}
    ours = {name.removeprefix("bert."): value for name, value in left.items() if name.startswith("bert.")}
    words = "embeddings.word_embeddings.weight"  # a task's markers are new rows behind those of the encoder
    shared = ours.keys() & taken.keys() - {words}
    assert len(shared) >= len(start) - 3
    assert all(torch.equal(ours[name], taken[name]) for name in shared)
    assert torch.equal(ours[words], taken[words][: len(ours[words])])
    before, after = (AutoTokenizer.from_pretrained(at) for at in (headless, tmp_path / "run" / "model"))
    assert before.get_vocab() == after.get_vocab()
