"""`extract` with a model of ner: mentions in raw text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from grandrounds.data.formats import read
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.saved import save_model
from tests.cli.commands import run
from tests.conftest import corpus
from tests.tasks.extractors import TEXT, taught

SURFACES = ["aspirin", "pain", "ct  scan", "stroke", "fever", "heparin"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    extractor = taught(Encoder.find("words", public=[document.text for document in corpus()]))
    folder = tmp_path_factory.mktemp("tagger") / "model"
    save_model(folder, extractor.task, extractor.encoder, extractor.model)
    return folder


@pytest.fixture
def note(tmp_path: Path) -> Path:
    (tmp_path / "note.txt").write_bytes(TEXT.encode())
    return tmp_path / "note.txt"


def test_offsets_are_characters_of_the_file(tagger: Path, note: Path) -> None:
    (line,) = run("extract", tagger, note).good().stdout.splitlines()
    found = json.loads(line)
    assert [TEXT[mention["start"] : mention["end"]] for mention in found["mentions"]] == SURFACES
    assert all(0 < float(mention["attributes"]["score"]) <= 1 for mention in found["mentions"])


def test_what_is_found_can_be_written_as_brat(tagger: Path, note: Path, tmp_path: Path) -> None:
    outcome = run("extract", tagger, note, "--to", "brat", "--out", tmp_path / "found").good()
    assert "6 mentions in 1 document, " in outcome.stderr
    (again,) = read(tmp_path / "found", "brat").documents
    assert [again.surface(mention) for mention in again.mentions] == SURFACES


def test_the_page_highlights_mentions_and_speaks_of_no_relation(tagger: Path, note: Path, tmp_path: Path) -> None:
    run("extract", tagger, note, "--to", "html", "--out", tmp_path / "found.html").good()
    page = (tmp_path / "found.html").read_text()
    body = page[page.index("<body") :]
    said = r"(?: · negated \(&quot;No&quot;\))?"
    marked = re.findall(rf'<mark class="d0m\d [^>]*title="(\w+){said} · [01]\.\d{{4}}"[^>]*>([^<]*)</mark>', body)
    assert [surface for _, surface in marked] == SURFACES
    assert [type for type, _ in marked] == ["treatment", "problem", "test", "problem", "problem", "treatment"]
    assert "1 document, 6 mentions." in body
    assert "elation" not in body.split("<script")[0]


def test_a_text_in_which_nothing_is_found_is_shown_as_it_is(tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("was .")
    run("extract", tagger, tmp_path / "empty.txt", "--to", "html", "--out", tmp_path / "found.html").good()
    assert "No mentions were found." in (tmp_path / "found.html").read_text()
