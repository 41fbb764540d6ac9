"""A model reads as its training data were read: raw text in its words, files with its options."""

from __future__ import annotations

import json
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pytest

import grandrounds
from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from tests.cli.commands import run
from tests.conftest import PROBLEMS, TinyConfig

LEVELS = ("COVID-19", "T-cell", "5-HT")


def conll(path: Path, size: int) -> Path:
    """Sentences with stops in them and none at their end, names with hyphens, and signs side by side."""
    blocks = []
    for name, problem in islice(cycle(product(LEVELS, PROBLEMS)), size):
        tokens = [("The", "O"), (name, "B-thing"), ("vs", "O"), (".", "O"), ("Grade", "O"), ("B", "O"), ("(", "O")]
        tokens += [(problem, "B-problem"), (").", "O"), ("Again", "O")]
        blocks.append("\n".join(f"{token} {tag} x" for token, tag in tokens))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(tiny_config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("conll")
    options = {"tag_column": 1, "sentences_per_document": 3}
    config = tiny_config(
        **{
            "task": {"name": "ner", "word_width": 12, "character_width": 6, "filters": 10, "hidden": 8},
            "data": {
                "format": "conll",
                "train": str(conll(folder / "train.conll", 60)),
                "test": str(conll(folder / "test.conll", 15)),
                "public": 0.2,
                "options": options,
            },
            "model.encoder": "words",
            "training.learning_rate": 2e-2,
            "training.batch_size": 4,
            "training.epochs": 4,
            "federation.rounds": 3,
        }
    )
    result = grandrounds.run(config, out=folder / "run")
    assert result.test.f1 > 0.9
    saved = json.loads((folder / "run" / "model" / "grandrounds.json").read_text())
    assert saved["trained"] == {"format": "conll", "options": options}
    return folder / "run" / "model", folder / "test.conll"


def places(document: Any) -> list[tuple[int, int, str]]:
    return [(mention.start, mention.end, mention.type) for mention in document.mentions]


def test_the_same_sentences_as_raw_text_have_the_same_mentions(model: tuple[Path, Path], tmp_path: Path) -> None:
    extractor = grandrounds.load(model[0])
    marked = read(model[1], "conll", tag_column=1, sentences_per_document=5).documents
    found = [places(extractor.extract(document)) for document in marked]
    assert sum(map(len, found)) > 20
    assert found == [places(extractor.extract(Document("x", document.text))) for document in marked]
    text = tmp_path / "raw.txt"
    text.write_text(marked[0].text, encoding="utf-8")
    (line,) = run("extract", model[0], text).good().stdout.splitlines()
    assert [(m["start"], m["end"], m["type"]) for m in json.loads(line)["mentions"]] == found[0]


def test_running_text_has_the_training_corpus_words(model: tuple[Path, Path]) -> None:
    found = grandrounds.load(model[0]).extract(Document("x", "The COVID-19 vs. Grade B (pain). Again"))
    assert [found.surface(mention) for mention in found.mentions] == ["COVID-19", "pain"]


def test_evaluate_reads_as_in_training_unless_told_otherwise(model: tuple[Path, Path], tmp_path: Path) -> None:
    score = run("evaluate", model[0], model[1], "--json").json()
    assert (score["n"], score["f1"] > 0.9) == (15, True)
    other = tmp_path / "other.conll"
    other.write_text("\n".join(" ".join(line.split()[::-1]) for line in model[1].read_text().split("\n")))
    assert run("evaluate", model[0], other, "--json", "--option", "token_column=2").json() == score
    assert run("evaluate", model[0], other, "--json").json() != score


def test_options_are_checked(model: tuple[Path, Path]) -> None:
    assert "did you mean 'tag_column'" in run("evaluate", model[0], model[1], "--option", "tag_colum=1").complaint()
    assert "KEY=VALUE" in run("extract", model[0], model[1], "--format", "conll", "--option", "x").complaint()
