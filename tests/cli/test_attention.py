"""`attention`: tables, JSON and pictures of several models; what can't be compared is said in a sentence."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from grandrounds.cli.attention import attention
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
    reported = run(*arguments, "--out", tmp_path / "a").good().stdout
    assert "Spearman correlation" in reported
    assert "layer 2" in reported
    run(*arguments, "--out", tmp_path / "b").good()
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_texts_may_be_plain_files(encoder_folder: Callable[[str], Path], other: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("The aspirin eased the pain .")
    (tmp_path / "none.txt").write_text(" \n")
    outcome = run("attention", encoder_folder("bert"), other, "--text", tmp_path, "--json")
    assert outcome.json()["documents"] == 1
    assert "warning: 1 documents without text" in outcome.stderr


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


def test_what_is_no_model_yet_or_no_longer_whole_is_said(
    encoder_folder: Callable[[str], Path], model: Path, corpora: Path, tmp_path: Path
) -> None:
    bert, text = encoder_folder("bert"), ("--text", corpora / "test.jsonl")
    for name in ("tiny", "words", "new"):
        assert "is learnt in a run, and no model before" in run("attention", bert, name, *text).complaint()
    shutil.copytree(model, tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").unlink()
    assert "is damaged; train or copy it again" in run("attention", bert, tmp_path / "run", *text).complaint()
    (tmp_path / "run" / "tokenizer_config.json").unlink()
    assert "is damaged; train or copy it again" in run("attention", bert, tmp_path / "run", *text).complaint()


def test_a_folder_of_files_in_another_format_is_told_with_what_was_passed_over(
    encoder_folder: Callable[[str], Path], other: Path, corpora: Path
) -> None:
    outcome = run("attention", encoder_folder("bert"), other, "--text", corpora)
    assert "no document with text to read in the format 'text'; name another with --format" in outcome.complaint()
    assert "warning: 6 files or folders passed over, not ending in .txt" in outcome.stderr


def test_heads_that_are_all_alike_have_no_correlation(encoder_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Where every head looks everywhere, ranks say nothing: null, since JSON has no nan."""
    for name in ("a", "b"):
        model = AutoModel.from_pretrained(encoder_folder("bert"))
        with torch.no_grad():
            for layer in model.encoder.layer:
                layer.attention.self.query.weight.zero_()
                layer.attention.self.query.bias.zero_()
        model.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(encoder_folder("bert")).save_pretrained(tmp_path / name)
    (tmp_path / "one.txt").write_text("The aspirin eased the pain .")
    models = (tmp_path / "a", tmp_path / "b")
    reported = (
        run("attention", *models, "--text", tmp_path / "one.txt", "--json", "--out", tmp_path / "out").good().stdout
    )
    for content in (reported, (tmp_path / "out" / "attention.json").read_text()):
        assert "NaN" not in content
        assert json.loads(content)["spearman"] == [[None, None], [None, None]]
    assert "| b | – | – |" in (tmp_path / "out" / "attention.md").read_text()


def test_memory_does_not_grow_with_the_documents(
    encoder_folder: Callable[[str], Path], other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def peak(documents: int) -> int:
        line = {"text": "The aspirin eased the pain .", "attributes": {"history": "x" * 100_000}}
        path = tmp_path / f"{documents}.jsonl"
        path.write_text("".join(json.dumps({"id": str(i), **line}) + "\n" for i in range(documents)))
        tracemalloc.start()
        attention([encoder_folder("bert"), other], [path], as_json=True)  # in this process, whose memory is traced
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert json.loads(capsys.readouterr().out)["documents"] == documents
        return most

    peak(20)  # what is only loaded once
    few, many = peak(20), peak(120)
    assert many < few + 2_000_000, (few, many)
