"""Document-level relation extraction: pairs and their answers, losses, thresholds, scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import grandrounds
from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.pairs import NOT_INCLUDE, list_pairs
from grandrounds.errors import ConfigError, DataError
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.batching import infer, predict_outputs
from grandrounds.tasks.document_re import (
    NO_PAIR,
    OUTSIDE,
    DocumentRE,
    DocumentREOptions,
    adaptive_threshold_loss,
    binary_cross_entropy,
)
from tests.conftest import DOCUMENT_RE, TinyConfig
from tests.tasks.documents import document

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bert(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")), DocumentRE.markers)


def task_of(*documents: Document, **options: object) -> DocumentRE:
    return DocumentRE.of(DocumentREOptions(block=16, **options), documents)


def test_an_example_is_a_document_with_every_pair_of_related_types() -> None:
    task = task_of(document())
    (example,), notes = task.examples([document()])
    assert task.relations == ("causes", "eases")
    assert example.pairs == (("aspirin", "pain"), ("aspirin", "fever"), ("insulin", "pain"), ("insulin", "fever"))
    assert [sorted(held) for held in example.gold] == [[1], [], [], [0]]
    assert (example.label, notes) == ("causes", {})


def test_a_pair_may_have_several_relations_and_every_order_of_docred_is_asked() -> None:
    source = replace(
        document(), relations=(Relation("eases", "aspirin", "pain"), Relation("causes", "aspirin", "pain"))
    )
    task = task_of(source, pairs="docred")
    (example,), _ = task.examples([source])
    assert len(example.pairs) == 12
    assert sorted(example.gold[example.pairs.index(("aspirin", "pain"))]) == [0, 1]
    assert not example.gold[example.pairs.index(("pain", "aspirin"))]


def test_hypernyms_are_no_pair_and_what_is_left_out_is_counted() -> None:
    source = replace(document(), attributes={NOT_INCLUDE: list_pairs([("aspirin", "fever"), ("insulin", "fever")])})
    task = task_of(document())
    (example,), notes = task.examples([source])
    assert example.pairs == (("aspirin", "pain"), ("insulin", "pain"))
    assert notes == {OUTSIDE: 1}
    nothing = Document("n", "no pain .", (Span(0, 9),), (Mention(3, 7, "problem", "T1"),))
    assert task.examples([nothing]) == ([], {NO_PAIR: 1})


def test_unknown_relations_and_corpora_without_any_are_refused() -> None:
    with pytest.raises(DataError, match="relation type 'causes' is not in the label set"):
        task_of(document(), labels=["eases"]).examples([document()])
    with pytest.raises(DataError, match="the corpora hold no relation"):
        task_of(replace(document(), relations=()))
    with pytest.raises(ConfigError, match="can't be a relation type"):
        task_of(document(), labels=["None"])


def test_a_schema_makes_the_same_task_again() -> None:
    for pairs in ("related", "docred", "chr", [("drug", "problem")]):
        task = task_of(document(), pairs=pairs)
        again = DocumentRE.restore(json.loads(json.dumps(task.schema())))
        assert again.examples([document()]) == task.examples([document()])
        assert (again.options, again.relations, again.asked) == (task.options, task.relations, task.asked)


def test_a_question_carries_no_answer_and_asks_the_same() -> None:
    task = task_of(document())
    (example,), _ = task.examples([document()])
    question = json.loads(json.dumps(task.question(example)))
    assert "eases" not in json.dumps(question)
    asked = task.from_question(question)
    assert (asked.source.text, asked.pairs) == (example.source.text, example.pairs)
    assert not any(asked.gold)
    with pytest.raises(DataError, match="is not one of document_re"):
        task.from_question({"text": "no"})


def test_labels_are_counted_by_pair(bert: Encoder) -> None:
    task = task_of(document())
    examples, _ = task.examples([document(), document()])
    features = task.features(examples, bert)
    assert task.labels == ("None", "causes", "eases")
    assert task.label_counts(features, np.array([0, 1])).tolist() == [4, 2, 2]


def test_the_loss_is_eq_11_a_sum_over_relations_and_a_mean_over_pairs() -> None:
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(size=(6, 3)), (rng.random((6, 3)) < 0.4).astype(float)
    p = 1 / (1 + np.exp(-logits))
    expected = np.mean(-np.sum(labels * np.log(p) + (1 - labels) * np.log(1 - p), axis=1))
    assert binary_cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels)).item() == pytest.approx(expected)


def test_the_adaptive_loss_ranks_what_holds_above_the_threshold_and_the_rest_below() -> None:
    rng = np.random.default_rng(5)
    logits, labels = rng.normal(size=(5, 4)), (rng.random((5, 3)) < 0.5).astype(float)
    labels[0] = 0
    terms = []
    for row, held in zip(logits, labels, strict=True):
        positive, negative = np.flatnonzero(held) + 1, np.flatnonzero(held == 0) + 1
        above = np.exp(row[[0, *positive]]).sum()
        below = np.exp(row[[0, *negative]]).sum()
        terms.append(-sum(np.log(np.exp(row[r]) / above) for r in positive) - np.log(np.exp(row[0]) / below))
    x = torch.from_numpy(logits).requires_grad_()
    found = adaptive_threshold_loss(x, torch.from_numpy(labels))
    assert found.item() == pytest.approx(np.mean(terms))
    found.backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def prepared(bert: Encoder, **options: object) -> tuple[DocumentRE, nn.Module, object, np.ndarray]:
    task = task_of(document(), **options)
    texts = ("aspirin eased the pain .", "insulin showed fever despite aspirin .")
    examples, _ = task.examples([document(), *(document("x", text) for text in texts)])
    torch.manual_seed(4)
    return task, task.model(bert).eval(), task.features(examples, bert), np.arange(len(examples))


def test_the_threshold_is_chosen_on_validation_and_stays_with_the_model(bert: Encoder) -> None:
    task, model, features, rows = prepared(bert)
    raw = predict_outputs(task, model, features, rows, CPU)
    calibrated = task.calibrate(model, raw, features, rows)
    threshold = model.state_dict()["threshold"].item()
    assert threshold != 0
    np.testing.assert_allclose(calibrated, raw - threshold, atol=1e-7)
    np.testing.assert_allclose(predict_outputs(task, model, features, rows, CPU), raw - threshold, atol=1e-7)

    def f1(t: float) -> float:
        return task.score(task.counts(raw - t, features, rows))["f1"]

    tried = np.concatenate([raw.ravel() - 1e-4, raw.ravel() + 1e-4])
    assert f1(threshold) == max(f1(t) for t in tried)
    assert f1(threshold) > f1(0.0) or f1(0.0) == max(f1(t) for t in tried)
    again = task.calibrate(model, calibrated, features, rows)
    np.testing.assert_allclose(again, calibrated, atol=1e-6)


@pytest.mark.parametrize("threshold", ["half", "adaptive"])
def test_other_thresholds_ask_no_validation(bert: Encoder, threshold: str) -> None:
    task, model, features, rows = prepared(bert, threshold=threshold)
    logits = predict_outputs(task, model, features, rows, CPU)
    assert logits.shape == (7, 2)
    assert task.calibrate(model, logits, features, rows) is logits
    assert model.state_dict()["threshold"].item() == 0
    raw = infer(lambda net, batch: net(batch).logits, model, features, rows, CPU).values.numpy()
    np.testing.assert_allclose(logits, raw[:, 1:] - raw[:, :1] if threshold == "adaptive" else raw, atol=1e-6)


def test_answers_come_in_the_order_of_rows_whatever_the_batches(bert: Encoder) -> None:
    task, model, features, rows = prepared(bert)
    found = infer(task.outputs, model, features, rows[::-1].copy(), CPU)
    one_by_one = [task.outputs(model, features.batch([row])).detach() for row in rows[::-1]]
    np.testing.assert_allclose(found.values.numpy(), torch.cat(one_by_one).numpy(), atol=1e-6)
    np.testing.assert_allclose(
        found.at(torch.tensor([2, 0])).numpy(), torch.cat([one_by_one[2], one_by_one[0]]).numpy(), atol=1e-6
    )


def test_pairs_are_within_a_sentence_or_across(bert: Encoder) -> None:
    _, _, features, _ = prepared(bert)
    # aspirin is with pain in the first sentence and with fever in the second; insulin and pain are never together.
    assert features.within(np.array([0])).tolist() == [True, True, False, True]


def test_facts_of_the_training_data_are_known_by_name(bert: Encoder) -> None:
    task = task_of(document())
    train = document("train", "aspirin eased the pain .")
    test = replace(
        document("test"),
        relations=(Relation("eases", "aspirin", "pain"), Relation("eases", "insulin", "fever")),
    )
    examples, _ = task.examples([test])
    assert task.features(examples, bert).seen(np.array([0])) is None
    (known,) = task.mark_known(examples, [train])
    assert known.seen is not None
    assert [sorted(held) for held in known.seen] == [[1], [], [], []]
    features = task.features([known], bert)
    logits = np.full((4, 2), -1.0, dtype=np.float32)
    logits[0, 1] = logits[3, 1] = logits[1, 0] = 1  # aspirin eases pain, insulin eases fever; a wrong one
    score = task.score(task.counts(logits, features, np.array([0])))
    # Right 2, wrong 1, missed 0; one right answer was in training: precision 1 of 2, recall 2 of 2.
    assert score["f1"] == pytest.approx(2 * (2 / 3) / (2 / 3 + 1))
    assert score["ign_f1"] == pytest.approx(2 * 0.5 / 1.5)


def new(type: str, head: str, tail: str, novelty: str = "") -> Relation:
    return Relation(type, head, tail, attributes={"novelty": novelty} if novelty else {})


def test_an_attribute_of_relations_is_part_of_the_answer_and_types_are_scored_beside_it(bert: Encoder) -> None:
    stated = (new("eases", "aspirin", "pain", "Novel"), new("eases", "insulin", "fever", "No"))
    source = replace(document(), relations=(*stated, new("causes", "insulin", "pain")))
    task = task_of(source, attribute="novelty")
    assert task.relations == ("causes", "eases/No", "eases/Novel")
    examples, _ = task.examples([source])
    (example,) = task.mark_known(examples, [source])
    assert [sorted(held) for held in example.gold] == [[2], [], [0], [1]] == [sorted(held) for held in example.seen]
    logits = np.full((4, 3), -1.0, dtype=np.float32)
    logits[0, 1] = logits[3, 1] = logits[1, 0] = 1  # aspirin eases pain, which is not new; the second is right
    score = task.score(task.counts(logits, task.features([example], bert), np.array([0])))
    # With novelty 1 right, 2 wrong, 2 missed; by type 2 right, 1 wrong, 1 missed.
    assert score["f1"] == pytest.approx(2 / 6)
    assert score["f1_types"] == pytest.approx(4 / 6)
    said = task.annotate(source, [example], 1 / (1 + np.exp(-logits)), 0.5).relations
    assert [(r.type, r.head, r.attributes.get("novelty")) for r in said] == [
        ("eases", "aspirin", "No"),
        ("causes", "aspirin", None),
        ("eases", "insulin", "No"),
    ]
    assert DocumentRE.restore(json.loads(json.dumps(task.schema()))).examples([source]) == task.examples([source])


def test_without_an_attribute_types_are_not_scored_apart_and_a_slash_parts_nothing(bert: Encoder) -> None:
    source = replace(document(), relations=(new("is/a", "aspirin", "pain", "Novel"),))
    task = task_of(source)
    (example,), _ = task.examples([source])
    logits = np.ones((4, 1), dtype=np.float32)
    assert "f1_types" not in task.score(task.counts(logits, task.features([example], bert), np.array([0])))
    assert {r.type for r in task.annotate(source, [example], logits, 0.5).relations} == {"is/a"}
    with pytest.raises(DataError, match=r"rename it with data\.map_labels"):
        task_of(source, attribute="novelty")


def test_a_run_scores_the_same_after_loading_and_extracts_by_its_threshold(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = tiny_config(task=DOCUMENT_RE, **{"federation.rounds": 4, "training.learning_rate": 5e-3})
    result = grandrounds.run(content, out=tmp_path / "run")
    extractor = grandrounds.load(tmp_path / "run" / "model")
    from grandrounds.data.formats import read

    documents = read([Path(content["data"]["test"])], "json").documents
    score, _ = extractor.evaluate(documents)
    for name in ("f1", "precision", "recall", "f1_within", "n"):
        assert score[name] == pytest.approx(getattr(result.test, name), abs=1e-9)
    assert "ign_f1" in result.test.further()
    assert extractor.relaters[0].model.state_dict()["threshold"].item() != 0
    found = [extractor.extract(one) for one in documents]
    predicted = {(i, r.type, r.head, r.tail) for i, one in enumerate(found) for r in one.relations}
    gold = {(i, r.type, r.head, r.tail) for i, one in enumerate(documents) for r in one.relations}
    assert predicted
    assert score["precision"] == pytest.approx(len(predicted & gold) / len(predicted))


def test_what_a_tagger_found_without_entities_is_asked_too(bert: Encoder) -> None:
    task = task_of(document())
    tagged = replace(document(), entities=(), relations=())
    (example,), _ = task.examples([tagged])
    assert len(example.pairs) == 3 * 3  # three drug mentions by three problem mentions
    assert {entity.mentions for entity in example.source.entities} == {(i,) for i in range(6)}


def test_an_entity_named_by_one_mention_twice_counts_it_once(bert: Encoder) -> None:
    source = document()
    doubled = replace(
        source, entities=(Entity("aspirin", "drug", (0, 0, 1)), *(e for e in source.entities if e.id != "aspirin"))
    )
    task = task_of(source)
    examples, _ = task.examples([source, doubled])
    features = task.features(examples, bert)
    assert features.rows[0].entities == features.rows[1].entities


def test_a_document_counts_for_the_label_of_each_of_its_pairs() -> None:
    task = task_of(document())
    (example,), _ = task.examples([document()])
    assert sorted(task.answers(example)) == ["None", "None", "causes", "eases"]


def test_types_that_nobody_shows_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"name them in task\.pairs"):
        task_of(replace(document(), relations=()), labels=["eases"])
    assert task_of(replace(document(), relations=()), labels=["eases"], pairs="docred").relations == ("eases",)


def test_what_nobody_asks_about_is_missed(bert: Encoder) -> None:
    task = task_of(document())
    source = replace(document(), attributes={NOT_INCLUDE: list_pairs([("insulin", "fever")])})
    examples, _ = task.examples([source])
    features, rows = task.features(examples, bert), np.array([0])
    logits = np.where(features.gold(rows), 1.0, -1.0).astype(np.float32)
    score = task.score(task.counts(logits, features, rows))
    assert (score["precision"], score["recall"]) == (1.0, 0.5)
    assert score["per_class"]["causes"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}


def test_where_order_does_not_matter_a_relation_is_asked_and_known_in_either() -> None:
    source = replace(document(), relations=(Relation("eases", "pain", "aspirin"), Relation("eases", "aspirin", "pain")))
    named = {"drug": "ChemMet", "problem": "ChemMet"}
    chemicals = replace(
        source,
        mentions=tuple(replace(m, type=named[m.type]) for m in source.mentions),
        entities=tuple(replace(e, type="ChemMet") for e in source.entities),
    )
    task = task_of(chemicals, pairs="chr")
    (example,), notes = task.examples([chemicals])
    assert notes == {}
    assert [pair for pair, held in zip(example.pairs, example.gold, strict=True) if held] == [("aspirin", "pain")]
    backwards = replace(chemicals, relations=(Relation("eases", "pain", "aspirin"),))
    (known,) = task.mark_known([example], [backwards])
    assert known.seen == tuple(frozenset({0}) if held else frozenset() for held in example.gold)


def test_training_facts_of_other_types_are_none_of_its_business() -> None:
    task = task_of(document(), labels=["eases"], pairs=[("drug", "problem")])
    source = replace(document(), relations=(Relation("eases", "aspirin", "pain"), Relation("joins", "pain", "fever")))
    examples, notes = task.examples([source])
    assert notes == {}
    (known,) = task.mark_known(examples, [source])
    assert known.seen == known.gold


def test_a_relation_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="names a relation twice"):
        task_of(document(), labels=["eases", "eases"])
