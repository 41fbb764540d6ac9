"""Extractors that find something: one asked for everything, one trained for seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from grandrounds.data.documents import Document
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from grandrounds.tasks.joint import Joint, JointOptions
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.saved import Extractor
from tests.conftest import corpus

CURES = DocumentRE(DocumentREOptions(block=8), ["cures"], [("treatment", "problem")])


def everything(encoder: Encoder, window: int = 512) -> Extractor:
    """A random network whose threshold lets every pair through."""
    task = DocumentRE(DocumentREOptions(block=8, window=window), CURES.relations, CURES.asked.types or ())
    torch.manual_seed(3)
    model = task.model(encoder).eval()
    threshold = model.threshold
    assert isinstance(threshold, Tensor)
    threshold.fill_(-100)
    return Extractor(task, encoder, model)


SMALL: dict[str, Any] = {"word_width": 12, "character_width": 6, "filters": 10, "hidden": 8}


def small(**options: Any) -> NER:
    return NER.of(NEROptions(**{**SMALL, **options}), corpus())


def made(task: NER | Joint, encoder: Encoder, seed: int = 0) -> Extractor:
    torch.manual_seed(seed)
    return Extractor(task, encoder, task.model(encoder).eval())


def taught(words: Encoder) -> Extractor:
    """Trained for seconds, so that it finds things."""
    task = small(dropout=0.0)
    found = made(task, words)
    features = task.features(task.examples(corpus(40))[0], words)
    optimizer = torch.optim.Adam(found.model.parameters(), lr=0.02)
    found.model.train()
    for step in range(120):
        optimizer.zero_grad()
        task.loss(found.model, features.batch(np.arange(step % 4, 40, 4))).backward()
        optimizer.step()
    found.model.eval()
    assert found.evaluate(corpus(40))[0]["f1"] > 0.9
    return found


def small_joint(documents: list[Document], **options: Any) -> Joint:
    return Joint.of(JointOptions(**{"hidden": 8, "span_words": 3, "dropout": 0, **options}), documents)


def taught_joint(encoder: Encoder, documents: list[Document], **options: Any) -> Extractor:
    """The same for mentions and relations."""
    task = small_joint(documents, **{"hidden": 24, **options})
    found = made(task, encoder)
    features = task.features(task.examples(documents)[0], encoder)
    optimizer = torch.optim.Adam(found.model.parameters(), lr=5e-3)
    found.model.train()
    for step in range(90):
        optimizer.zero_grad()
        task.loss(found.model, features.batch(np.arange(step % 6, len(features.examples), 6))).backward()
        optimizer.step()
    found.model.eval()
    return found


TEXT = "The aspirin eased\nthe pain .\r\n\r\n  The ct  scan showed stroke again .\n\tNo fever was seen before heparin ."
