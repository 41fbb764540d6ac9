"""One model in place of two: text in, mentions and relations out, by every way that a pipeline has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

import grandrounds
from grandrounds.data.documents import Document
from grandrounds.errors import GrandRoundsError
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.export import export_to_hub
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.reports.extraction import extraction_page
from grandrounds.tasks.saved import Extractor
from grandrounds.web.reading import Reader
from grandrounds.web.rest import Limits, application
from tests.cli.commands import run
from tests.conftest import corpus, write_corpus
from tests.pipeline.models import saved, sentence_relater, word_tagger
from tests.tasks.extractors import taught_joint

TEXT = "The heparin eased the pain . No fever was seen before aspirin ."


@pytest.fixture(scope="module")
def joint(encoder_folder: Callable[[str], Path]) -> Extractor:
    return taught_joint(Encoder.find(str(encoder_folder("bert"))), corpus(60))


@pytest.fixture(scope="module")
def folder(joint: Extractor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "joint", joint)


def said(document: Document) -> list[tuple[str, str, str]]:
    ends = [(r.type, *(document.mentions[m] for m in r.mentions or ())) for r in document.relations]
    return [(type, document.surface(head), document.surface(tail)) for type, head, tail in ends]


def test_one_model_finds_mentions_and_relations_in_text(folder: Path) -> None:
    nlp = grandrounds.load(folder)
    found = nlp(TEXT)
    assert [found.surface(m) for m in found.mentions] == ["heparin", "pain", "fever", "aspirin"]
    assert said(found) == [("TrIP", "heparin", "pain")]
    assert "negated" in found.mentions[2].attributes
    assert found.entity(found.relations[0].head).mentions == (0,)
    assert nlp.finds == "relations"
    assert nlp.extract(TEXT, threshold=1.0).relations == ()


def test_its_relations_stay_when_other_models_add_theirs(
    joint: Extractor, encoder_folder: Callable[[str], Path]
) -> None:
    relater = sentence_relater(encoder_folder("bert"))
    both = Pipeline([joint], [relater])(TEXT)
    assert said(both) == [("TrIP", "heparin", "pain"), ("TrIP", "heparin", "pain"), ("TrIP", "aspirin", "fever")]
    two = Pipeline([word_tagger(), joint], [])(TEXT)
    assert [two.surface(m) for m in two.mentions] == ["heparin", "pain", "fever", "aspirin"]
    assert said(two) == [("TrIP", "heparin", "pain")]


def test_a_document_s_own_relations_are_not_handed_through(joint: Extractor) -> None:
    gold = corpus(1)[0]
    assert gold.relations
    other = replace(gold, relations=(replace(gold.relations[0], type="TeRP"),))
    assert [r.type for r in Pipeline([joint], [])(other).relations] == ["TrIP"]


def test_the_commands_extract_and_evaluate_take_it(folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text(TEXT)
    outcome = run("extract", folder, note, "--to", "dict").good()
    (found,) = map(json.loads, outcome.stdout.splitlines())
    assert [(r["type"], r["head"]["text"], r["tail"]["text"]) for r in found["relations"]] == [
        ("TrIP", "heparin", "pain")
    ]
    assert "4 mentions, 1 relation in 1 document" in outcome.stderr
    test = write_corpus(tmp_path / "test.jsonl", corpus(24, "t"))
    table = run("evaluate", folder, test, "--format", "json").good().stdout
    assert "mentions (micro)" in table
    assert "trivial: no relation" in table


def test_a_page_shows_what_it_found(folder: Path) -> None:
    nlp = grandrounds.load(folder)
    page = extraction_page([nlp(TEXT)], "Relations found", nlp.finds)
    assert "heparin → pain" in page
    assert "It has no mentions, so there was nothing to relate." in extraction_page(
        [nlp("Nothing .")], "Relations found", nlp.finds
    )


def test_it_is_served(joint: Extractor) -> None:
    torch.set_num_threads(1)
    with TestClient(application(Reader(Pipeline([joint], []), 4), Limits(10_000, 30))) as client:
        (described,) = client.get("/models").json()["models"]
        assert (described["task"], described["finds"]) == ("joint", "mentions and relations")
        page = client.get("/").text
        assert "Mentions and relations: problem, test" in page
        assert '<aside id="relations" class="relations" aria-label="Relations">' in page
        (document,) = client.post("/extract", json={"text": TEXT}).json()["documents"]
        assert [r["type"] for r in document["relations"]] == ["TrIP"]


def test_hugging_face_has_no_form_for_it(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match="is a model of joint, which Hugging Face has no form for"):
        export_to_hub(folder, tmp_path / "hub")
