"""`attention`: tables, JSON and pictures of several models; what can't be compared is said in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from tests.cli.commands import run


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path]) -> Path:
    """The tiny BERT, moved a little."""
    folder = tmp_path_factory.mktemp("models") / "other"
    model = AutoModel.from_pretrained(encoder_folder("bert"))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder_folder("bert")).save_pretrained(folder)
    return folder


def test_three_models_are_set_side_by_side(
    encoder_folder: Callable[[str], Path], other: Path, model: Path, corpora: Path, tmp_path: Path
) -> None:
    """The third is a run's, fine-tuned from the first."""
    models = (encoder_folder("bert"), other, model)
    found = run("attention", *models, "--text", corpora / "test.jsonl", "--json", "--out", tmp_path / "out").json()
    assert found["documents"] == 24
    assert [np.shape(m["entropy"]) for m in found["models"]] == [(2, 2)] * 3
    assert all(0 < value < 5 for m in found["models"] for value in m["entropy_by_layer"])
    for measure, same in (("spearman", 1), ("distance", 0), ("distance_sum", 0)):
        matrix = np.array(found[measure])
        np.testing.assert_allclose(np.diag(matrix), same, atol=1e-12)
        np.testing.assert_array_equal(matrix, matrix.T)
    assert found["distance_sum"][0][1] > found["distance"][0][1] > found["distance"][0][2] > 0
    whole = json.loads((tmp_path / "out" / "attention.json").read_text())
    assert [np.shape(m["divergence"]) for m in whole["models"]] == [(4, 4)] * 3
    assert [np.shape(m["positions"]) for m in whole["models"]] == [(4, 2)] * 3
    assert whole["spearman"] == found["spearman"]
    for name in ("entropy.svg", "divergence.svg", "heads.svg"):
        assert (tmp_path / "out" / name).read_text().startswith("<svg")
    assert "| other |" in (tmp_path / "out" / "attention.md").read_text()


def test_the_tables_are_shown_and_the_same_again(
    encoder_folder: Callable[[str], Path], other: Path, corpora: Path, tmp_path: Path
) -> None:
    arguments = ("attention", encoder_folder("bert"), other, "--text", corpora / "test.jsonl", "--most", "5")
    told = run(*arguments, "--out", tmp_path / "a").good().stdout
    assert "Spearman correlation" in told
    assert "layer 2" in told
    run(*arguments, "--out", tmp_path / "b").good()
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_texts_may_be_plain_files(encoder_folder: Callable[[str], Path], other: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("The aspirin eased the pain .")
    (tmp_path / "none.txt").write_text(" \n")
    outcome = run("attention", encoder_folder("bert"), other, "--text", tmp_path, "--json")
    assert outcome.json()["documents"] == 1
    assert "note: 1 documents without text" in outcome.stderr


@pytest.fixture
def wide(tmp_path: Path, encoder_folder: Callable[[str], Path]) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder("bert"))
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path / "wide")
    tokenizer.save_pretrained(tmp_path / "wide")
    return tmp_path / "wide"


def test_what_cannot_be_compared_is_said(
    encoder_folder: Callable[[str], Path], other: Path, wide: Path, corpora: Path, tmp_path: Path
) -> None:
    text = ("--text", corpora / "test.jsonl")
    assert "name two or more" in run("attention", other, *text).complaint()
    assert "named twice" in run("attention", other, other, *text).complaint()
    assert "other has 2 layers of 2 and wide has 1 layers of 4" in run("attention", other, wide, *text).complaint()
    assert "cannot load encoder" in run("attention", other, tmp_path / "none", *text).complaint()
    assert "no such file" in run("attention", encoder_folder("bert"), other, "--text", "none").complaint()
