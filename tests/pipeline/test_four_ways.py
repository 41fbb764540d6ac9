"""Text reaches the same mentions by the command line, in Python, in spaCy and by Hugging Face's pipeline("ner")."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import pipeline

import grandrounds
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.export import export_to_hub
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.saved import Extractor
from tests.cli.commands import run
from tests.conftest import corpus
from tests.pipeline.models import save_sentence_relater, saved

Mentions = list[tuple[int, int, str]]


@pytest.fixture(scope="module")
def folders(encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A tagger without a CRF, the kind that Hugging Face has a form for, and a relation model."""
    encoder, where = Encoder.find(str(encoder_folder("bert"))), tmp_path_factory.mktemp("models")
    task = NER.of(NEROptions(tagger="bert", crf=False, dropout=0.0), corpus())
    torch.manual_seed(0)
    model = task.model(encoder)
    features = task.features(task.examples(corpus(40))[0], encoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(60):
        optimizer.zero_grad()
        task.loss(model, features.batch(np.arange(step % 4, 40, 4))).backward()
        optimizer.step()
    tagger = saved(where / "ner", Extractor(task, encoder, model.eval()))
    return [tagger, save_sentence_relater(where / "re", encoder_folder("bert"))]


def by_command(folders: list[Path], text: str, tmp_path: Path) -> Mentions:
    piped = f"import io, sys; sys.stdin = io.TextIOWrapper(io.BytesIO({text.encode()!r}))"
    (line,) = run("extract", *folders, "-", "--to", "dict", prelude=piped).good().stdout.splitlines()
    return [(m["start"], m["end"], m["type"]) for m in json.loads(line)["mentions"]]


def in_python(folders: list[Path], text: str, tmp_path: Path) -> Mentions:
    nlp = grandrounds.load(*folders)
    document = nlp(text)
    return [(mention.start, mention.end, mention.type) for mention in document.mentions]


def in_spacy(folders: list[Path], text: str, tmp_path: Path) -> Mentions:
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install grandrounds[spacy]")
    from grandrounds.pipeline import spacy_component  # noqa: F401  # as the entry point does

    nlp = spacy.blank("en")
    nlp.add_pipe("grandrounds", config={"model": [str(folder) for folder in folders]})
    return [(ent.start_char, ent.end_char, ent.label_) for ent in nlp(text).ents]


def by_hugging_face(folders: list[Path], text: str, tmp_path: Path) -> Mentions:
    export_to_hub(folders[0], tmp_path / "hf")
    nlp = pipeline("ner", model=str(tmp_path / "hf"), aggregation_strategy="first")
    return [
        (start + m["start"], start + m["end"], m["entity_group"])
        for start, end in grandrounds.load(folders[0])(text).sentences  # it would read them as one
        for m in nlp(text[start:end])
    ]


@pytest.mark.parametrize("way", [by_command, in_python, in_spacy, by_hugging_face])
def test_the_mentions_are_the_same(way: Callable[..., Mentions], folders: list[Path], tmp_path: Path) -> None:
    one, other = [document for document in corpus(12) if document.relations][:2]
    second = len(one.text) + 2
    gold = [(mention.start, mention.end, mention.type) for mention in one.mentions]
    gold += [(second + mention.start, second + mention.end, mention.type) for mention in other.mentions]
    assert way(folders, f"{one.text}\n\n{other.text}", tmp_path) == gold


def test_relations_come_with_them_from_end_to_end(folders: list[Path], tmp_path: Path) -> None:
    text = "The aspirin eased the pain ."
    found = grandrounds.load(*folders)(text)
    (relation,) = found.to_dict()["relations"]
    assert (relation["head"]["text"], relation["type"], relation["tail"]["text"]) == ("aspirin", "TrIP", "pain")
