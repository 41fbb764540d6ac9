"""Our models as a component of spaCy: the mentions, attributes and relations that `grandrounds.load` finds."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import grandrounds
from grandrounds.pipeline.linking import Dictionary
from tests.conftest import corpus
from tests.pipeline.models import save_sentence_relater, save_tagger
from tests.tasks.extractors import TEXT

spacy: Any = pytest.importorskip("spacy", reason="spaCy is not installed: pip install grandrounds[spacy]")


@pytest.fixture(scope="module")
def folders(encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("models")
    return [save_tagger(where / "ner"), save_sentence_relater(where / "re", encoder_folder("bert"))]


def english(*folders: Path, **settings: Any) -> Any:
    from grandrounds.pipeline import spacy_component  # noqa: F401  # as the entry point does

    nlp = spacy.blank("en")
    nlp.add_pipe("grandrounds", config={"model": [str(folder) for folder in folders], **settings})
    return nlp


def test_spacy_has_our_mentions_and_relations(folders: list[Path]) -> None:
    ours, doc = grandrounds.load(*folders)(TEXT), english(*folders)(TEXT)
    assert [(e.start_char, e.end_char, e.label_) for e in doc.ents] == [(m.start, m.end, m.type) for m in ours.mentions]
    assert [(r.type, r.head.text, r.tail.text) for r in doc._.relations] == [
        ("TrIP", "aspirin", "pain"),
        ("TrIP", "heparin", "fever"),
    ]
    assert [sentence.text for sentence in doc._.relations[0].evidence] == ["The aspirin eased\nthe pain ."]
    assert 0.9 < doc._.relations[0].score <= 1
    assert [ent._.score for ent in doc.ents] == [m["score"] for m in ours.to_dict()["mentions"]]
    assert doc._.grandrounds == ours


def test_what_is_negated_and_what_it_is_linked_to_are_attributes(folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("D1\tpain\nD2\tfever\n")
    Dictionary.build(tmp_path / "names.tsv", tmp_path / "names.sqlite").close()
    doc = english(folders[0], dictionary=str(tmp_path / "names.sqlite"))("The aspirin eased the pain . No fever .")
    by_text = {ent.text: ent for ent in doc.ents}
    assert (by_text["fever"]._.negated, by_text["pain"]._.negated) == ("No", None)
    assert (by_text["fever"].kb_id_, by_text["fever"]._.links) == ("D2", ["D2"])
    assert by_text["aspirin"]._.links == []
    (fever,) = (ent for ent in english(folders[0], assertions=False)("No fever .").ents)
    assert fever._.negated is None


def test_many_documents_are_read_as_each_by_itself(folders: list[Path]) -> None:
    nlp, texts = english(*folders), [document.text for document in corpus(9)] + ["", "   "]
    together = list(nlp.pipe(texts, batch_size=4))
    assert [doc.text for doc in together] == texts
    assert [[ent.text for ent in doc.ents] for doc in together] == [[ent.text for ent in nlp(t).ents] for t in texts]
    assert sum(len(doc.ents) for doc in together) >= 9


def test_the_extra_registers_the_component() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["spacy_factories"] == {"grandrounds": "grandrounds.pipeline.spacy_component:make"}
    assert project["optional-dependencies"]["spacy"] == ["spacy>=3.8"]
