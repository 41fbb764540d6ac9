"""A tagger in Hugging Face's form finds what ours finds; what that form can't hold is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForTokenClassification, pipeline

import grandrounds
from grandrounds.errors import GrandRoundsError
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.export import export_to_hub
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.saved import Extractor, save_model
from tests.cli.commands import run
from tests.conftest import corpus
from tests.tasks.extractors import everything


def tagger(encoder: Encoder, crf: bool, steps: int) -> Extractor:
    task = NER.of(NEROptions(tagger="bert", crf=crf, dropout=0.0), corpus())
    torch.manual_seed(0)
    model = task.model(encoder)
    features = task.features(task.examples(corpus(40))[0], encoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        optimizer.zero_grad()
        task.loss(model, features.batch(np.arange(step % 4, 40, 4))).backward()
        optimizer.step()
    return Extractor(task, encoder, model.eval())


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def saved(
    request: pytest.FixtureRequest, encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    found = tagger(Encoder.find(str(encoder_folder(request.param))), False, 60)
    folder = tmp_path_factory.mktemp("tagger") / "model"
    save_model(folder, found.task, found.encoder, found.model)
    return folder


def test_hugging_face_finds_the_same_mentions(saved: Path, tmp_path: Path) -> None:
    export_to_hub(saved, tmp_path / "hf")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "hf")
    nlp = grandrounds.load(saved)
    assert list(model.config.id2label.values()) == list(nlp.taggers[0].task.tags)  # type: ignore[attr-defined]
    theirs = pipeline("ner", model=str(tmp_path / "hf"), aggregation_strategy="first")
    found = 0
    for document in corpus(12):
        ours = [(m.start, m.end, m.type) for m in nlp(document.text).mentions]
        assert [(m["start"], m["end"], m["entity_group"]) for m in theirs(document.text)] == ours
        found += len(ours)
    assert found >= 12


def test_the_command_writes_the_folder_once(saved: Path, tmp_path: Path) -> None:
    run("export", saved, "--to", "hf", "--out", tmp_path / "hf").good()
    assert (tmp_path / "hf" / "model.safetensors").exists()
    assert "is not empty; choose another folder" in run("export", saved, "--out", tmp_path / "hf").complaint()
    assert run("export", saved, "--to", "onnx").complaint() == "unknown form 'onnx'; known: hf"


def test_what_has_no_such_form_is_refused(encoder_folder: Callable[[str], Path], tmp_path: Path) -> None:
    with_crf = tagger(Encoder.find(str(encoder_folder("bert"))), True, 0)
    relations = everything(Encoder.find(str(encoder_folder("bert")), ("*",)))
    for name, model in (("ner with a CRF", with_crf), ("document_re", relations)):
        folder = tmp_path / name
        save_model(folder, model.task, model.encoder, model.model)
        with pytest.raises(GrandRoundsError, match=f"is a model of {name}, which Hugging Face has no form for"):
            export_to_hub(folder, tmp_path / "hf")


def test_the_folder_of_a_run_cannot_be_taken_for_hugging_face_s(saved: Path) -> None:
    for kind in (AutoModel, AutoModelForTokenClassification):
        with pytest.raises(ValueError, match="Unrecognized model"):
            kind.from_pretrained(saved)
    with pytest.raises(GrandRoundsError, match="is a trained extractor, not an encoder"):
        Encoder.find(str(saved))
