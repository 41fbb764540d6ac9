"""`init` on the corpora beside the project: a config that starts; and words of raw text as CoNLL has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tomli_w

from grandrounds.config.propose import propose
from grandrounds.config.schema import load_config
from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from grandrounds.data.words import TextRules
from grandrounds.simulation.prepare import prepare

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("GRANDROUNDS_DATA", ROOT.parent / "shared" / "data"))

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not DATA.is_dir(), reason="the corpora are not beside the project; set GRANDROUNDS_DATA"),
]


@pytest.mark.parametrize(
    ("folder", "format", "task"),
    [
        ("ade-corpus", "ade", "sentence_re"),
        ("bc5cdr-ner", "conll", "ner"),
        ("bere-dti", "bere", "distant_re"),
        ("biored", "pubtator", "document_re"),
        ("cdr/eog", "eog", "document_re"),
        ("cdr/pubtator", "pubtator", "document_re"),
        ("chemdisgene", "chemdisgene", "document_re"),
        ("chemdisgene/curated", "pubtator", "ner"),
        ("chemprot", "chemprot", "sentence_re"),
        ("eu-adr", "biobert-tsv", "sentence_re"),
        ("gad", "biobert-tsv", "sentence_re"),
        ("gids", "nre", "distant_re"),
        ("maccrobat", "brat", "sentence_re"),
        ("psytar", "conll", "ner"),
        ("re-docred", "docred", "document_re"),
    ],
)
def test_a_config_is_written_that_starts(folder: str, format: str, task: str, tmp_path: Path) -> None:
    if not (DATA / folder).is_dir():
        pytest.skip(f"{folder} is not in the data folder")
    made = propose(DATA / folder, tmp_path / "config.toml")
    assert (made.found.format, made.content["task"]["name"]) == (format, task)
    (tmp_path / "config.toml").write_text(tomli_w.dumps(made.content))
    assert prepare(load_config(tmp_path / "config.toml"), tmp_path, tmp_path).sites


@pytest.mark.parametrize(("train", "test"), [("bc5cdr-ner/train.tsv", "bc5cdr-ner/test.tsv"),
                                             ("psytar/train.txt", "psytar/test.txt")])  # fmt: skip
def test_raw_text_has_the_sentences_and_words_of_conll(train: str, test: str) -> None:
    rules = TextRules.learn(read(DATA / train, "conll").documents)
    sentences = [document.text for document in read(DATA / test, "conll")]
    whole = Document("x", "\n".join(sentences))
    found = [whole.text[start:end] for start, end in rules.sentences(whole)]
    assert found == sentences
    assert all(rules.pattern(Document("x", text)).findall(text) == text.split() for text in sentences)
