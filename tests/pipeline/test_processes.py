"""Several processes give what one gives, in the same order; what goes wrong in one is one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from grandrounds.errors import GrandRoundsError
from grandrounds.pipeline.processes import Models, evaluate, extract
from grandrounds.tasks.saved import load
from tests.cli.commands import run
from tests.conftest import corpus, write_corpus
from tests.pipeline.models import save_sentence_relater, save_tagger


@pytest.fixture(scope="module")
def folders(encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("models")
    return [save_tagger(where / "ner"), save_sentence_relater(where / "re", encoder_folder("bert"))]


def test_the_command_writes_the_same_bytes_with_two_processes(folders: list[Path], tmp_path: Path) -> None:
    for i, document in enumerate(corpus(23)):
        (tmp_path / f"{i:02d}.txt").write_text(document.text * (1 + i % 3))
    words = ("extract", *folders, tmp_path, "--format", "text", "--batch", "4")
    one, two = run(*words).good(), run(*words, "--processes", "2").good()
    assert [json.loads(line)["id"] for line in one.stdout.splitlines()] == [f"{i:02d}.txt" for i in range(23)]
    assert two.stdout == one.stdout
    assert "in 23 documents" in two.stderr


def test_texts_keep_their_numbers_and_warnings_add_up(folders: list[Path]) -> None:
    models = Models(folders, {"window": 3})
    texts = [document.text for document in corpus(11)] + ["word " * 2000 + "aspirin eased pain ."]
    found = {}
    for processes in (1, 2):
        pipeline = models.load()
        found[processes] = list(extract(models, pipeline, texts, 3, processes)), dict(pipeline.warnings)
    assert found[1] == found[2]
    assert [document.id for document in found[2][0]] == [f"text-{number}" for number in range(1, 13)]
    assert sum(found[2][1].values()) >= 1


def test_evaluation_gives_the_same_score(folders: list[Path], tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "gold.jsonl", corpus(21))
    one = run("evaluate", folders[0], path, "--json").json()
    two = run("evaluate", folders[0], path, "--json", "--batch", "4", "--processes", "2").json()
    assert one == two
    assert one["f1"] > 0.9
    heard: list[int] = []
    evaluate(Models(folders[:1]), load(folders[0]), corpus(21), 8, 1, heard.append)
    assert heard == [8, 16, 21]


def test_a_corpus_without_examples_is_said_once(folders: list[Path]) -> None:
    bare = [document for document in corpus(5) if not document.mentions]
    with pytest.raises(GrandRoundsError, match="the corpus holds no example of sentence_re"):
        evaluate(Models(folders[1:]), load(folders[1]), bare, 2, 2)


def test_what_goes_wrong_in_a_process_is_one_sentence(folders: list[Path], tmp_path: Path) -> None:
    pipeline = Models(folders).load()
    with pytest.raises(GrandRoundsError, match="is not a saved model"):
        list(extract(Models([tmp_path]), pipeline, ["pain ."] * 9, 1, 2))


def test_a_process_that_dies_is_named(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grandrounds.pipeline.processes.work", die)
    with pytest.raises(GrandRoundsError, match="a process ended before its time"):
        list(extract(Models(folders), Models(folders).load(), ["pain ."] * 9, 1, 2))


def die(*arguments: object) -> None:
    import os

    os._exit(9)
