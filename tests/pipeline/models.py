"""Folders of models that find something, made in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from grandrounds.models.encoder import Encoder
from grandrounds.tasks.saved import Extractor, save_model
from grandrounds.tasks.sentence_re import MARKERS, SentenceRE, SentenceREOptions
from tests.conftest import corpus
from tests.tasks.extractors import taught


def word_tagger() -> Extractor:
    return taught(Encoder.find("words", public=[document.text for document in corpus()]))


def sentence_relater(encoder: Path, **options: Any) -> Extractor:
    """Relates every treatment to every problem of its sentence."""
    task = SentenceRE(SentenceREOptions(**options), ["TrIP"], [("treatment", "problem")])
    found = Encoder.find(str(encoder), MARKERS)
    model = task.model(found).eval()
    with torch.no_grad():
        list(model.parameters())[-1].copy_(torch.tensor([-9.0, 9.0]))
    return Extractor(task, found, model)


def save_tagger(folder: Path) -> Path:
    return saved(folder, word_tagger())


def save_sentence_relater(folder: Path, encoder: Path) -> Path:
    return saved(folder, sentence_relater(encoder))


def saved(folder: Path, model: Extractor) -> Path:
    save_model(folder, model.task, model.encoder, model.model)
    return folder
