"""Encoders of every family are found, marked, trained, saved and loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.tasks.masked_lm import MaskedLM, MaskedLMOptions
from grandrounds.tasks.saved import save_model
from grandrounds.tasks.sentence_re import MARKERS, SentenceRE, SentenceREOptions
from tests.conftest import FAMILIES, TEXTS

Folders = Callable[[str], Path]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_trains_every_part_of_its_encoder_that_a_pair_reads(
    family: str, encoder_folder: Folders, documents: list[Document]
) -> None:
    encoder = Encoder.find(str(encoder_folder(family)), MARKERS)
    task = SentenceRE.of(SentenceREOptions(max_length=32), documents)
    features = task.features(task.examples(documents[:8])[0], encoder)
    model = task.model(encoder)
    batch = features.batch(np.arange(8))
    task.loss(model, batch).backward()
    trained = [name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert len([name for name in trained if "layer.0" in name]) >= 10
    assert any("word_embeddings" in name for name in trained)
    assert task.outputs(model, batch).shape == (8, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tokenizer_got_four_markers_that_are_one_piece_each(family: str, encoder_folder: Folders) -> None:
    plain, encoder = (Encoder.find(str(encoder_folder(family)), markers) for markers in ((), MARKERS))
    assert len(encoder.tokenizer) == len(plain.tokenizer) + 4
    ids = encoder.tokenizer.convert_tokens_to_ids(list(MARKERS))
    assert sorted(ids) == list(range(len(plain.tokenizer), len(plain.tokenizer) + 4))
    assert encoder.pieces(["<e1>"]) == [[ids[0]]]
    table = encoder.build().get_input_embeddings()
    assert table.weight.shape[0] == len(encoder.tokenizer)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_layers_give_what_the_whole_encoder_has_after_them(family: str, encoder_folder: Folders) -> None:
    whole = Encoder.find(str(encoder_folder(family)))
    ids = torch.tensor([whole.pieces([TEXTS[0]])[0]])
    first = whole.first_layers(1).build().eval()(input_ids=ids).last_hidden_state
    after = whole.build().eval()(input_ids=ids, output_hidden_states=True).hidden_states
    assert torch.equal(first, after[1])
    assert not torch.allclose(first, after[2])


def test_more_layers_than_there_are_are_refused(encoder_folder: Folders) -> None:
    with pytest.raises(ConfigError, match=r"model.layers = 3, but encoder '.*' has 2 layers"):
        Encoder.find(str(encoder_folder("bert"))).first_layers(3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_encoder_comes_back_with_its_shapes_pieces_and_name(
    family: str, encoder_folder: Folders, tmp_path: Path
) -> None:
    encoder = Encoder.find(str(encoder_folder(family)), MARKERS)
    encoder.save(tmp_path / "saved")
    again = Encoder.saved(tmp_path / "saved")
    assert again.pieces(TEXTS) == encoder.pieces(TEXTS)
    assert (again.name, again.width, again.window) == (Path(encoder.name).name, 32, encoder.window)  # no machine's path
    assert again.pieces(MARKERS) == encoder.pieces(MARKERS)
    shapes = [{name: value.shape for name, value in e.build().state_dict().items()} for e in (encoder, again)]
    assert shapes[0] == shapes[1]
    assert again.tokenizer.cls_token_id == encoder.tokenizer.cls_token_id
    assert again.tokenizer.pad_token_id == encoder.tokenizer.pad_token_id


def test_building_reads_the_folders_weights(encoder_folder: Folders) -> None:
    folder = encoder_folder("bert")
    first, second = Encoder.find(str(folder)).build(), Encoder.find(str(folder)).build()
    name = "encoder.layer.1.output.dense.weight"
    assert torch.equal(first.state_dict()[name], second.state_dict()[name])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_window_can_be_read_and_no_more(family: str, encoder_folder: Folders) -> None:
    encoder = Encoder.find(str(encoder_folder(family)))
    model = encoder.build()
    assert encoder.window == 64

    def read(length: int) -> torch.Size:
        ids = torch.full((1, length), 10)
        return last_hidden(model, ids, torch.ones_like(ids)).shape

    assert read(64) == (1, 64, 32)
    with pytest.raises((IndexError, RuntimeError)):
        read(65)


def test_pieces_are_never_truncated(encoder: Encoder) -> None:
    assert len(encoder.pieces(["pain " * 3000])[0]) == 3000


def test_tiny_learns_the_same_word_pieces_each_time_from_texts_in_any_order() -> None:
    first = Encoder.find("tiny", MARKERS, TEXTS)
    for texts in (TEXTS, TEXTS[::-1], TEXTS):
        assert Encoder.find("tiny", MARKERS, texts).tokenizer.get_vocab() == first.tokenizer.get_vocab()
    assert first.tokenizer.decode(first.pieces(["The heparin eased the pain"])[0]) == "the heparin eased the pain"
    assert first.tokenizer.unk_token_id not in first.pieces(["unaesthetic trips"])[0]


def test_tiny_without_public_text_says_what_to_raise() -> None:
    with pytest.raises(ConfigError, match=r"set data\.public"):
        Encoder.find("tiny", MARKERS, [])


def test_an_encoder_that_is_nowhere_is_named_with_the_ways_out() -> None:
    with pytest.raises(
        ConfigError, match=r"cannot load encoder 'no/such'.*HF_HUB_OFFLINE.*give a folder.*or in a config 'tiny'"
    ):
        Encoder.find("no/such", MARKERS)


def test_a_tokenizer_without_cls_is_refused(encoder_folder: Folders, tmp_path: Path) -> None:
    folder = tmp_path / "without"
    shutil.copytree(encoder_folder("bert"), folder)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        if path.exists():
            content = json.loads(path.read_text())
            content.pop("cls_token", None)
            path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="has no cls_token; take a BERT-like encoder"):
        Encoder.find(str(folder), MARKERS)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_without_a_tokenizer_is_refused(family: str, encoder_folder: Folders, tmp_path: Path) -> None:
    """transformers would make one of special pieces alone, to which every word is unknown."""
    shutil.copytree(encoder_folder(family), tmp_path / "bare")
    for path in (tmp_path / "bare").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ConfigError, match="has no tokenizer; save it beside the weights"):
        Encoder.find(str(tmp_path / "bare"))
    with pytest.raises(ConfigError, match="has no tokenizer; save it beside the weights"):
        Encoder.saved(tmp_path / "bare")


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_other_names_are_refused_but_a_pooler_may_be_missing(
    family: str, encoder_folder: Folders, tmp_path: Path
) -> None:
    shutil.copytree(encoder_folder(family), tmp_path / "changed")
    path = tmp_path / "changed" / "model.safetensors"
    weights = load_file(path)
    save_file({name: value for name, value in weights.items() if "pooler" not in name}, path, {"format": "pt"})
    encoder = Encoder.find(str(tmp_path / "changed"))
    built = encoder.build().state_dict()
    assert all(torch.equal(value, built[name]) for name, value in weights.items() if "pooler" not in name)
    save_file({f"student.{name}": value for name, value in weights.items()}, path, {"format": "pt"})
    with pytest.raises(ConfigError, match=r"are not those of its config\.json: \d+ are missing, such as"):
        encoder.build()
    if family == "bert":
        with pytest.raises(ConfigError, match=r"are not those of its config\.json"):
            MaskedLM(MaskedLMOptions(length=32)).model(encoder)


def test_a_fine_tuned_run_is_no_encoder_of_another(encoder: Encoder, task: SentenceRE, tmp_path: Path) -> None:
    """Its weights are under names of its own, so that none of them would be found."""
    save_model(tmp_path / "model", task, encoder, task.model(encoder))
    with pytest.raises(ConfigError, match="or one of masked_lm"):
        Encoder.find(str(tmp_path / "model")).build()
