"""`extract` with a model of document_re: relations between entities, with scores and evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grandrounds.data.formats import read
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_features import MARKER
from grandrounds.tasks.saved import save_model
from tests.cli.commands import run
from tests.conftest import write_corpus
from tests.tasks.documents import eased
from tests.tasks.extractors import everything

DOCUMENT = eased(("aspirin", "pain"), ("heparin", "stroke"), ("insulin", "pain"))


@pytest.fixture(scope="module")
def willing(encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model that finds a relation in every pair."""
    extractor = everything(Encoder.find(str(encoder_folder("bert")), (MARKER,)))
    folder = tmp_path_factory.mktemp("willing") / "model"
    save_model(folder, extractor.task, extractor.encoder, extractor.model)
    return folder


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bare = replace(DOCUMENT, id="bare", mentions=(), entities=())
    return write_corpus(tmp_path_factory.mktemp("notes") / "notes.jsonl", [DOCUMENT, bare])


def test_json_and_brat_keep_score_and_evidence(willing: Path, notes: Path, tmp_path: Path) -> None:
    said = run("extract", willing, notes).good().stdout.splitlines()
    first, bare = (json.loads(line) for line in said)
    assert [(relation["head"], relation["tail"]) for relation in first["relations"]] == [
        (drug, problem) for drug in ("aspirin", "heparin", "insulin") for problem in ("pain", "stroke")
    ]
    assert "relations" not in bare
    expected = [relation["attributes"] for relation in first["relations"]]
    assert all(set(map(int, why["evidence"].split())) <= {0, 1, 2} for why in expected)
    run("extract", willing, notes, "--to", "brat", "--out", tmp_path / "found").good()
    again = {document.id: document for document in read(tmp_path / "found", "brat").documents}["d"]
    kept = [{name: r.attributes[name] for name in ("score", "evidence")} for r in again.relations]
    assert kept == expected


def test_the_page_quotes_the_evidence(willing: Path, notes: Path, tmp_path: Path) -> None:
    outcome = run("extract", willing, notes, "--to", "html", "--out", tmp_path / "found.html").good()
    assert "6 relations in 2 documents" in outcome.stderr
    page = (tmp_path / "found.html").read_text()
    (first, _) = (json.loads(line) for line in run("extract", willing, notes).good().stdout.splitlines())
    named = [relation["attributes"]["evidence"].split() for relation in first["relations"]]
    assert page.count('<q class="why">') == sum(map(len, named))
    for number in {number for numbers in named for number in numbers}:
        sentence = DOCUMENT.surface(DOCUMENT.sentences[int(number)])
        assert f'<q class="why">{sentence}</q>' in page
        assert f'<span class="d0s{number}">' in page


def test_a_document_without_mentions_is_counted_and_said(willing: Path, notes: Path) -> None:
    said = run("extract", willing, notes).good().stderr
    assert "warning: 1 documents without mentions, of which nothing can be asked" in said
