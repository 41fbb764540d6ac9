"""A saved model comes back bit for bit and reads documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import grandrounds
from grandrounds.data.documents import Document, Relation
from grandrounds.errors import DataError, GrandRoundsError
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.saved import Extractor, load, save_model
from grandrounds.tasks.sentence_re import SentenceRE, SentenceREOptions
from tests.conftest import sentence


@pytest.fixture
def extractor(task: SentenceRE, encoder: Encoder) -> Extractor:
    torch.manual_seed(0)
    model = task.model(encoder).eval()
    with torch.no_grad():
        model.head.weight.mul_(5)  # a random head that answers more than one class
    return Extractor(task, encoder, model)


@pytest.mark.parametrize("head", ["entity_pair", "cls", "ranking_cnn"])
def test_probabilities_are_bit_identical_after_saving_and_loading(
    head: str, documents: list[Document], encoder: Encoder, tmp_path: Path
) -> None:
    task = SentenceRE.of(SentenceREOptions(head=head), documents)
    torch.manual_seed(0)
    made = Extractor(task, encoder, task.model(encoder).eval())
    save_model(tmp_path / "model", task, encoder, made.model)
    again = load(tmp_path / "model")
    examples = task.examples(documents)[0]
    expected = made.probabilities(examples)
    assert expected.tobytes() == again.probabilities(examples).tobytes()
    assert expected.sum(axis=1) == pytest.approx(np.ones(len(examples)), abs=1e-6)
    assert again.evaluate(documents) == made.evaluate(documents)


def test_what_is_found_points_at_its_mentions_with_its_score(extractor: Extractor, documents: list[Document]) -> None:
    examples, _ = extractor.task.examples(documents)
    best = extractor.probabilities(examples)
    found = [extractor.extract(document) for document in documents]
    relations = [(i, relation) for i, document in enumerate(found) for relation in document.relations]
    wanted = [(e.document, row) for e, row in zip(examples, best, strict=True) if row.argmax()]
    assert 0 < len(wanted) == len(relations)
    for (i, relation), (j, row) in zip(relations, wanted, strict=True):
        assert i == j
        assert relation.type == extractor.task.labels[int(row.argmax())]
        assert float(relation.attributes["score"]) == pytest.approx(float(row.max()), abs=1e-4)
        head, tail = (found[i].mentions[m] for m in relation.mentions)
        assert (relation.head, relation.tail) == (head.id, tail.id)
        assert (head.type, tail.type) in extractor.task.pairs
        assert found[i].surface(head) in documents[i].text


def test_what_relations_the_input_held_changes_nothing(extractor: Extractor, documents: list[Document]) -> None:
    for document in documents[:12]:
        bare = replace(document, relations=())
        strange = replace(document, relations=(Relation("never heard of", "T1", "T2", (0, 1)),))
        assert extractor.extract(document) == extractor.extract(bare) == extractor.extract(strange)


def test_a_threshold_leaves_out_what_scores_below_it(extractor: Extractor, documents: list[Document]) -> None:
    scores = [float(r.attributes["score"]) for d in documents for r in extractor.extract(d).relations]
    middle = sorted(scores)[len(scores) // 2]
    kept = [r for d in documents for r in extractor.extract(d, threshold=middle + 1e-4).relations]
    assert 0 < len(kept) == sum(score > middle + 1e-4 for score in scores) < len(scores)


def test_a_document_without_pairs_comes_back_without_relations(extractor: Extractor) -> None:
    document = sentence("d", ["Only ", ("pain", "problem"), " ."], {})
    assert extractor.extract(document) == document
    with pytest.raises(DataError, match="no example"):
        extractor.evaluate([document])


def test_mentions_of_no_entity_can_be_related(extractor: Extractor, documents: list[Document]) -> None:
    """What a tagger found has mentions and no entities."""
    for document in documents:
        bare = replace(document, entities=(), relations=())
        found = extractor.extract(bare)
        assert [r.mentions for r in found.relations] == [r.mentions for r in extractor.extract(document).relations]


@pytest.mark.parametrize("name", ["grandrounds.json", "model.safetensors"])
def test_a_folder_without_a_part_is_named_with_what_it_lacks(extractor: Extractor, name: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", extractor.task, extractor.encoder, extractor.model)
    (tmp_path / "model" / name).unlink()
    with pytest.raises(GrandRoundsError, match=f"is not a saved model: it has no {name}"):
        grandrounds.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["grandrounds.json", "model.safetensors", "encoder.json", "tokenizer.json"])
def test_a_model_cut_short_is_damaged_not_a_traceback(extractor: Extractor, name: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", extractor.task, extractor.encoder, extractor.model)
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(GrandRoundsError, match="is damaged; train or copy it again"):
        grandrounds.load(tmp_path / "model")


def test_weights_of_another_shape_are_damaged_not_a_traceback(
    extractor: Extractor, encoder: Encoder, tmp_path: Path
) -> None:
    save_model(tmp_path / "model", extractor.task, encoder, extractor.model)
    about = tmp_path / "model" / "grandrounds.json"
    about.write_text(about.read_text().replace('"TeRP",', ""))
    with pytest.raises(GrandRoundsError, match="is damaged"):
        grandrounds.load(tmp_path / "model")
