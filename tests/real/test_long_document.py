"""A document of 100,000 words is read whole, below 2 GB; relations are asked for within windows of sentences, and the
pairs that lie in none of them are counted."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from grandrounds import subprocesses
from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.pipeline.windows import TOO_FAR
from grandrounds.tasks.document_features import MARKER
from tests.conftest import corpus
from tests.pipeline.models import word_tagger
from tests.tasks.extractors import everything

pytestmark = pytest.mark.real
WORDS, WINDOW, MEGABYTES = 100_000, 10, 2048


def repeated() -> tuple[str, int]:
    """The test corpus again and again, and how many mentions it has."""
    texts, words, mentions = list[str](), 0, 0
    while words < WORDS:
        for document in corpus(40):
            texts.append(document.text)
            words, mentions = words + len(document.text.split()), mentions + len(document.mentions)
    return "\n\n".join(texts), mentions


def distinct() -> Document:
    """Sentences of twenty words, each with a treatment and a problem of its own."""
    text, sentences, mentions = "", list[Span](), list[Mention]()
    for i in range(WORDS // 20):
        start = len(text)
        for before, name, type in (("", f"a{i}", "treatment"), (" eased the", f" p{i}", "problem")):
            text += before + name
            mentions.append(Mention(len(text) - len(name.strip()), len(text), type, f"T{len(mentions)}"))
        text += " for some time" * 5 + " . "
        sentences.append(Span(start, len(text) - 1))
    entities = tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions))
    return Document("long", text, tuple(sentences), tuple(mentions), entities)


def read(folder: str, out: str) -> None:
    text, mentions = repeated()
    tagged = Pipeline((word_tagger(),))(text)
    nlp = Pipeline((), (everything(Encoder.find(folder, (MARKER,))),), window=WINDOW)
    related = nlp(distinct())
    found = {
        "mentions": [len(tagged.mentions), mentions],
        "last": max(mention.end for mention in tagged.mentions) / len(text),
        "relations": len(related.relations),
        "outside": nlp.warnings[TOO_FAR],
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    Path(out).write_text(json.dumps(found))


def test_nothing_is_cut_and_what_lies_outside_of_windows_is_counted(
    encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    subprocesses.start(read, str(encoder_folder("bert")), str(tmp_path / "found")).join()
    found = json.loads((tmp_path / "found").read_text())
    sentences = WORDS // 20
    starts = range(0, sentences - WINDOW // 2, WINDOW // 2)
    asked = {(i, j) for start in starts for i in range(start, start + WINDOW) for j in range(start, start + WINDOW)}
    asked = {(i, j) for i, j in asked if max(i, j) < sentences}
    assert found["relations"] == len(asked)
    assert found["outside"] == sentences**2 - len(asked)
    there, gold = found["mentions"]
    assert there == pytest.approx(gold, rel=0.05)  # the tagger is as good at the end as at the start
    assert found["last"] > 0.9999
    assert found["megabytes"] < MEGABYTES, found
    print(found)
