"""The task joint: what windows hold, what is learnt of them and what is not, and what is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.errors import ConfigError, DataError
from grandrounds.models.encoder import Encoder
from grandrounds.models.joint import JointModel
from grandrounds.tasks.abilities import IMPOSSIBLE
from grandrounds.tasks.joint import ACROSS, BARRED, OTHER_RELATIONS, SECOND, Joint, JointOptions
from grandrounds.tasks.joint_decoding import FEWEST, FLOOR, MOST
from grandrounds.tasks.joint_pairs import pairs_to_learn
from grandrounds.tasks.joint_scoring import annotation_of
from grandrounds.tasks.saved import Extractor, load, save_model
from tests.conftest import corpus, sentence
from tests.tasks.documents import document, long_document
from tests.tasks.extractors import small_joint, taught_joint


@pytest.fixture(scope="module")
def plain(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")))


def made(documents: list[Document] | None = None, **options: Any) -> Joint:
    return small_joint(documents or corpus(), **options)


# Labels, constraints, windows


def test_constraints_are_read_off_the_corpora_and_saved(plain: Encoder, tmp_path: Path) -> None:
    task = made()
    assert task.labels == ("None", "problem", "test", "treatment", "TeRP", "TrIP")
    assert task.triples == {("treatment", "TrIP", "problem"), ("test", "TeRP", "problem")}
    assert task.pair_types() == {("treatment", "problem"), ("test", "problem")}
    named = [tuple(task.labels[i] for i in (h, 3 + r, t)) for h, r, t in np.argwhere(task.constraints.allowed).tolist()]
    assert set(named) == task.triples
    save_model(tmp_path / "model", task, plain, task.model(plain))
    back = load(tmp_path / "model").task
    assert isinstance(back, Joint)
    assert (back.schema(), back.concepts) == (task.schema(), False)
    assert made([document()]).concepts
    assert made(ordered=False).constraints.allowed[1, 2, 3]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"constraints": [("drug", "TrIP", "problem")]}, "knows no relation 'TrIP' from 'drug' to 'problem'"),
        ({"constraints": [("test", "eases", "problem")]}, "knows no relation 'eases'"),
        ({"labels": ["problem", "treatment", *map(str, range(400))]}, "402 entity types and 2 relations are too many"),
        ({"labels": ["TrIP", "problem"]}, "'TrIP' is a type of mentions and of relations"),
        ({"relations": ["None"]}, "can't be a relation type"),
        ({"labels": ["test", "treatment"]}, "no document shows which types of entities are related"),
    ],
)
def test_what_can_t_be_a_label_set_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(**options)


def test_without_relations_only_entities_can_be_learnt() -> None:
    bare = [replace(one, relations=()) for one in corpus(8)]
    with pytest.raises(DataError, match="joint needs relations to learn from"):
        made(bare)
    assert made(bare, annotated=["entities"]).labels == ("None", "problem", "test", "treatment")


def test_a_window_has_its_mentions_and_what_relates_them() -> None:
    task = made([document()])
    examples, warnings = task.examples([document()])
    assert [one.gold for one in examples] == [
        ((0, 1, "drug"), (3, 4, "problem")),
        ((0, 1, "drug"), (2, 3, "drug"), (4, 5, "problem")),
        ((1, 2, "problem"),),
    ]
    assert [one.before for one in examples] == [0, 5, 12]
    facts = [[(fact.number, fact.type, fact.head, fact.tail) for fact in one.facts] for one in examples]
    aspirin, pain = ((0, 1, "drug"),), ((3, 4, "problem"),)
    assert facts[0] == [(0, "eases", aspirin, pain)]
    assert facts[1] == [(0, "eases", ((2, 3, "drug"),), ()), (1, "causes", ((0, 1, "drug"),), ((4, 5, "problem"),))]
    assert facts[2] == [(0, "eases", (), ((1, 2, "problem"),))]
    assert warnings == {}
    (whole,) = made([document()], sentences=3).examples([document()])[0]
    assert len(whole.words) == 17
    assert [fact.head for fact in whole.facts] == [((0, 1, "drug"), (7, 8, "drug")), ((5, 6, "drug"),)]


def test_what_can_t_be_found_is_counted() -> None:
    far = [replace(long_document(2), relations=(Relation("eases", "insulin", "pain"),))]
    assert made(far, sentences=2).examples(far)[1] == {}
    assert made(far).examples(far)[1] == {ACROSS: 1}
    barred = made(constraints=[("test", "TeRP", "problem")], relations=["TeRP", "TrIP"])
    assert barred.examples(corpus(8))[1] == {BARRED: 2}
    some = made(relations=["TeRP"])
    assert some.examples(corpus(8))[1] == {OTHER_RELATIONS: 2}
    twice = corpus(1)[0]
    twice = replace(twice, relations=(*twice.relations, replace(twice.relations[0], type="TeRP")))
    assert made([twice]).examples([twice])[1] == {SECOND: 1}
    with pytest.raises(DataError, match="'TrIP' is not in the label set"):
        made([one for one in corpus() if not any(r.type == "TrIP" for r in one.relations)]).examples(corpus(8))


def test_words_are_no_transformer_s(plain: Encoder) -> None:
    words = Encoder.find("words", public=[one.text for one in corpus()])
    with pytest.raises(ConfigError, match="the task joint reads a transformer"):
        made().model(words)


def test_a_question_is_the_text_with_its_mentions_marked(plain: Encoder) -> None:
    task = made()
    example = task.examples(corpus(1))[0][0]
    asked = task.from_question(json.loads(json.dumps(task.question(example))))
    assert (asked.text, asked.words, asked.gold, asked.facts) == (example.text, example.words, (), ())
    assert asked.marked == tuple(sorted(span[:2] for span in example.gold)) != ()
    assert task.loss(untrained(task, plain), task.features([asked], plain).batch([0])).item() == 0
    assert task.without_label(example).marked == example.marked
    assert task.loss(untrained(task, plain), task.features([task.without_label(example)], plain).batch([0])).item() == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mentions": None}, "not one of joint; has the server another task"),
        ({"mentions": [[0]]}, "not one of joint"),
        ({"mentions": [[1, 2], [0, 1]]}, "in order, each once"),
        ({"mentions": [[0, 1], [0, 1]]}, "in order, each once"),
        ({"mentions": [[first, first + 1] for first in range(MOST + 1)]}, f"at most {MOST} mentions"),
        ({"mentions": [[0, 10**9]]}, "outside of its words"),
        ({"mentions": [[2, 1]]}, "outside of its words"),
    ],
)
def test_a_question_that_none_can_be_is_refused(change: dict[str, Any], problem: str) -> None:
    task = made()
    question = task.question(task.examples(corpus(1))[0][0])
    with pytest.raises(DataError, match=problem):
        task.from_question({**question, **change})


@pytest.mark.parametrize("ordered", [True, False])
def test_it_asks_about_every_span_and_every_pair_of_marked_ones(plain: Encoder, ordered: bool) -> None:
    documents = [*corpus(5), document()]
    types, relations = ["problem", "test", "treatment", "drug"], ["TeRP", "TrIP", "eases", "causes"]
    task = made(documents, ordered=ordered, labels=types, relations=relations[:3], concepts=False)
    examples = [task.from_question(task.question(one)) for one in task.examples(documents)[0]]
    features, model = task.features(examples, plain), untrained(task, plain)
    rows = np.array([6, 0, 3, 5])
    batch = features.batch(rows)
    states = model.states(batch)
    scores, expected = log_softmax(model.spans(states)), []
    for place, row in enumerate(rows.tolist()):
        words, marked = len(examples[row].words), examples[row].marked
        spans = [(i, n) for i in range(words) for n in range(task.options.span_words) if i + n < words]
        answers = [scores[place, i, n] for i, n in spans]
        for head in marked:
            for tail in marked:
                if head < tail or (ordered and head != tail):
                    pair = torch.tensor([[place, *head, *tail]])
                    answers.append(log_softmax(model.relations(model.relations.represent(states, pair)))[0])
        assert task.questions(features, np.array([row])).tolist() == [len(answers)]
        expected += answers
    logits, loss = task.respond(model, batch)
    assert loss.item() == 0
    assert logits.shape == (len(expected), task.classes()) == (len(expected), 5)
    for found, answer in zip(log_softmax(logits), expected, strict=True):
        np.testing.assert_allclose(found[: len(answer)], answer, atol=1e-5)
        assert np.exp(found[len(answer) :]).sum() == 0  # no relation of a span, no fourth type of a pair


def test_what_is_no_answer_stays_none_in_the_precision_of_a_gpu(plain: Encoder) -> None:
    documents = corpus(6)
    task = made(documents)
    batch, model = batches(task, plain, documents), untrained(task, plain)
    exact = task.respond(model, batch).logits == IMPOSSIBLE
    with torch.autocast("cpu", torch.bfloat16):
        rounded = task.respond(model, batch).logits == IMPOSSIBLE
    assert exact.any()
    assert rounded.equal(exact)


def test_the_loss_of_a_response_is_the_task_s(plain: Encoder) -> None:
    documents = corpus(6)
    task = made(documents)
    batch, model = batches(task, plain, documents), untrained(task, plain)
    assert task.respond(model, batch).loss.item() == task.loss(model, batch).item() > 0


# Losses


def batches(task: Joint, encoder: Encoder, documents: list[Document]) -> Any:
    examples = task.examples(documents)[0]
    return task.features(examples, encoder).batch(range(len(examples)))


def log_softmax(scores: torch.Tensor) -> np.ndarray:
    values = scores.detach().double().numpy()
    values = values - values.max(axis=-1, keepdims=True)
    found: np.ndarray = values - np.log(np.exp(values).sum(axis=-1, keepdims=True))
    return found


def expected_loss(task: Joint, model: JointModel, batch: Any, documents: list[Document]) -> tuple[float, float]:
    """Of spans and of pairs, window by window and pair by pair, from the documents."""
    examples = task.examples(documents)[0]
    states = model.states(batch)
    scores, (spans, pairs) = log_softmax(model.spans(states)), (0.0, 0.0)
    for row, example in enumerate(examples):
        types = {span[:2]: task.types.index(span[2]) + 1 for span in example.gold}
        guessed = dict(types)
        for first in range(len(example.words)):
            for past in range(first + 1, min(first + task.options.span_words, len(example.words)) + 1):
                log_p = scores[row, first, past - first - 1]
                spans -= log_p[types.get((first, past), 0)]
                if np.exp(log_p[1:].max()) >= FLOOR:
                    guessed.setdefault((first, past), 1 + int(log_p[1:].argmax()))
        assert len(guessed) <= FEWEST  # else only the likeliest are taken
        related = {(fact.head[0][:2], fact.tail[0][:2]): task.relations.index(fact.type) + 1 for fact in example.facts}
        for head, head_type in guessed.items():
            for tail, tail_type in guessed.items():
                joinable = {(task.types.index(h) + 1, task.types.index(t) + 1) for h, t in task.pair_types()}
                if head == tail or (head_type, tail_type) not in joinable:
                    continue
                pair = torch.tensor([[row, *head, *tail]])
                log_p = log_softmax(model.relations(model.relations.represent(states, pair)))[0]
                pairs -= log_p[related.get((head, tail), 0)]
    return spans / len(examples), pairs / len(examples)


def untrained(task: Joint, encoder: Encoder, seed: int = 0) -> JointModel:
    torch.manual_seed(seed)
    model = task.model(encoder).eval()
    assert isinstance(model, JointModel)
    with torch.no_grad():
        model.spans.of_length[:, 0] -= 2.9  # so that some spans are taken for mentions that are none
    return model


def test_the_loss_is_that_of_every_span_and_of_every_pair(plain: Encoder) -> None:
    documents = corpus(6)
    task = made(documents)
    batch, model = batches(task, plain, documents), untrained(task, plain)
    of_spans, of_pairs = expected_loss(task, model, batch, documents)
    reading = task.read(model, batch)
    asked = task.pair_types()
    gold = sum((h.type, t.type) in asked for one in documents for h in one.mentions for t in one.mentions)
    assert len(reading.labels) > gold  # spans that are no mentions are in it, too
    assert task.grade(reading, batch).item() == pytest.approx(of_spans + of_pairs, rel=1e-4)
    assert of_pairs > 0.1


def parts(model: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}


def test_what_is_not_annotated_makes_no_loss(plain: Encoder) -> None:
    documents = corpus(6)
    everything = made(documents)
    model = untrained(everything, plain)
    of_spans, _ = expected_loss(everything, model, batches(everything, plain, documents), documents)

    entities = everything.annotated_as(JointOptions(annotated=["entities"]))
    loss = entities.loss(model, batches(entities, plain, documents))
    loss.backward()
    assert loss.item() == pytest.approx(of_spans, rel=1e-5)
    assert parts(model) == {"encoder", "spans"}
    assert all(p.grad is None for p in model.relations.parameters())  # so that an optimiser leaves it alone

    model.zero_grad(set_to_none=True)
    relations = everything.annotated_as(JointOptions(annotated=["relations"]))
    batch = batches(relations, plain, documents)
    reading = relations.read(model, batch)
    gold = {(tuple(m[1:3]), m[0]) for m in batch.mentions.tolist()}
    pairs, _ = pairs_to_learn(reading.spans, batch, relations.constraints)
    assert all((tuple(p[1:3]), p[0]) in gold and (tuple(p[3:5]), p[0]) in gold for p in pairs.tolist())
    expected = -log_softmax(reading.logits)[range(len(reading.labels)), reading.labels.numpy()].sum() / len(documents)
    loss = relations.grade(reading, batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert parts(model) == {"encoder", "relations"}
    assert all(p.grad is None for p in model.spans.parameters())


def test_windows_of_both_kinds_are_each_of_their_own_loss(plain: Encoder) -> None:
    documents = corpus(4)
    task = made(documents)
    model, features = untrained(task, plain), None
    examples = task.examples(documents)[0]
    some, others = JointOptions(annotated=["entities"]), JointOptions(annotated=["relations"])
    mixed = [task.as_annotated(one, some if i < 2 else others) for i, one in enumerate(examples)]
    features = task.features(mixed, plain)
    whole = task.loss(model, features.batch(range(4))).item()
    apart = [task.loss(model, features.batch(rows)).item() for rows in ([0, 1], [2, 3])]
    assert whole == pytest.approx(sum(apart), rel=1e-5)


def test_a_batch_with_nothing_to_learn_can_be_stepped_over(plain: Encoder) -> None:
    nothing = [sentence("d", ["The ", ("ct scan", "test"), " was refused ."], {})]
    task = made().annotated_as(JointOptions(annotated=["relations"]))
    model = task.model(plain)
    loss = task.loss(model, batches(task, plain, nothing))
    loss.backward()
    assert loss.item() == 0


# What is found


@pytest.fixture(scope="module")
def trained(plain: Encoder) -> Extractor:
    return taught_joint(plain, corpus(60))


def test_mentions_and_relations_are_learnt_and_found(trained: Extractor) -> None:
    score, warnings = trained.evaluate(corpus(24, "t"))
    assert warnings == {}
    assert min(score["f1"], score["entity_f1"]) > 0.95
    assert set(score["per_class"]) == {"TeRP", "TrIP", "problem", "test", "treatment"}
    found = trained.extract(Document("x", "The heparin eased the pain . No fever was seen before aspirin ."))
    assert [(found.surface(m), m.type) for m in found.mentions] == [
        ("heparin", "treatment"),
        ("pain", "problem"),
        ("fever", "problem"),
        ("aspirin", "treatment"),
    ]
    (relation,) = found.relations
    assert (relation.type, relation.mentions) == ("TrIP", (0, 1))
    assert found.entity(relation.head).mentions == (0,)
    assert 0.25 <= float(relation.attributes["score"]) <= 1


def test_the_score_of_windows_is_that_of_documents(trained: Extractor) -> None:
    from grandrounds.metrics.end_to_end import relation_counts

    gold = corpus(24, "t")
    gold[3] = sentence("m", ["The ", ("mri", "test"), " eased the ", ("pain", "problem"), " ."], {(0, 1): "TeRP"})
    found = trained.extract_all(gold)[0]
    counts, _ = trained.count(gold)
    assert isinstance(trained.task, Joint)
    whole = relation_counts([annotation_of(d) for d in gold], [annotation_of(d) for d in found], trained.task.relations)
    assert {name: counts[name] for name in whole} == whole


def test_a_threshold_leaves_out_what_scores_lower_and_the_relations_of_it(trained: Extractor) -> None:
    text = Document("x", "The heparin eased the pain .")
    whole = trained.extract(text)
    scores = sorted(float(m.attributes["score"]) for m in whole.mentions)
    assert len(whole.relations) == 1
    cut = trained.extract(text, threshold=scores[0] + 1e-4)
    assert len(cut.mentions) < len(whole.mentions)
    assert not cut.relations


def test_where_relations_join_concepts_each_pair_counts_once(plain: Encoder) -> None:
    documents = [_by_concept(one) for one in corpus(60)]
    model = taught_joint(plain, documents, sentences=2)
    assert isinstance(model.task, Joint)
    assert model.task.concepts
    twice = _by_concept(_again(corpus(1)[0]))
    counts, _ = model.count([twice])
    assert (counts["tp/TrIP"], counts["fp/TrIP"], counts["fn/TrIP"]) == (1, 0, 0)
    assert len(model.extract(twice).relations) > 1  # of mentions


def _by_concept(one: Document) -> Document:
    """Its relations join entities, of all mentions of one name."""
    names: dict[str, list[int]] = {}
    for i, mention in enumerate(one.mentions):
        names.setdefault(one.surface(mention), []).append(i)
    entities = tuple(Entity(name, one.mentions[held[0]].type, tuple(held)) for name, held in names.items())
    stated = [(r.type, *(one.surface(one.mentions[m]) for m in r.mentions or ())) for r in one.relations]
    return replace(one, entities=entities, relations=tuple(Relation(*each) for each in dict.fromkeys(stated)))


def _again(one: Document) -> Document:
    """The document twice, one copy after the other."""
    shift = len(one.text) + 1
    mentions = [replace(m, id=f"{m.id}b", start=m.start + shift, end=m.end + shift) for m in one.mentions]
    spans = (*one.sentences, *(Span(a + shift, b + shift) for a, b in one.sentences))
    return replace(one, text=f"{one.text} {one.text}", sentences=spans, mentions=(*one.mentions, *mentions))


def test_of_unannotated_parts_nothing_is_counted(trained: Extractor) -> None:
    gold = corpus(8, "t")
    assert isinstance(trained.task, Joint)
    for part, other in (("entities", "relations"), ("relations", "entities")):
        task = trained.task.annotated_as(JointOptions(annotated=[part]))
        counts, _ = replace(trained, task=task).count(gold)
        numbers = {"entities": counts["entity n"], "relations": counts["n"]}
        assert numbers == {part: 8, other: 0}
        assert task.score(counts)["n"] == numbers["relations"]


def test_each_word_has_an_answer(plain: Encoder) -> None:
    task = made()
    batch = batches(task, plain, corpus(3))
    outputs = task.outputs(untrained(task, plain), batch)
    assert outputs.shape == (int(batch.lengths.sum()), 12)


def test_sentences_without_a_candidate_are_read(plain: Encoder) -> None:
    bare = Document("d", "nothing", (Span(0, 7),), (Mention(0, 7, "problem", "T1"),))
    task = made()
    model = task.model(plain).eval()
    assert isinstance(model, JointModel)
    with torch.no_grad():
        model.spans.of_length[:, 0] += 50
    assert not task.outputs(model, batches(task, plain, [bare, bare])).any()
