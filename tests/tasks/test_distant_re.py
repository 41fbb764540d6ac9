"""Sentences with one pair each, their bags, and what a test makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.pair_sentence import End, pair_document
from grandrounds.data.synthetic.bags import synthesize_bags
from grandrounds.errors import ConfigError, DataError
from grandrounds.federation.learner import Split
from grandrounds.metrics.significance import scorer
from grandrounds.models.encoder import Encoder
from grandrounds.simulation.prepare import prepare
from grandrounds.tasks.distant_re import NOT_ONE_PAIR, UNSEEN, DistantRE, DistantREOptions
from grandrounds.tasks.sentence_re import SentenceRE, SentenceREOptions
from tests.conftest import DISTANT_RE, TinyConfig, corpus


def stated(text: str, head: str, tail: str, relation: str = "NA", ids: tuple[str, str] = ("D1", "G1")) -> Document:
    spans = [Span(text.index(name), text.index(name) + len(name)) for name in (head, tail)]
    return pair_document("d", text, End(spans[0], "drug", ids[0]), End(spans[1], "gene", ids[1]), relation)


def task(**options: Any) -> DistantRE:
    return DistantRE(DistantREOptions(**options), ("binds", "blocks"), [("drug", "gene")])


@pytest.fixture(scope="module")
def words() -> Encoder:
    return Encoder.find("words", public=["aspirin binds cox in cells , and cox is bound by aspirin today ."] * 2)


def test_a_fact_is_its_pair_and_relation_in_their_direction() -> None:
    one, other = (
        stated("cox is bound by aspirin", "aspirin", "cox", "binds"),
        stated("aspirin and cox", "aspirin", "cox"),
    )
    (first, second), notes = task().examples([one, other])
    assert first.fact == ("D1", "binds", "G1")
    assert second.fact == ("D1", "None", "G1")
    assert (first.text[slice(*first.head)], first.text[slice(*first.tail)]) == ("aspirin", "cox")
    assert notes == {}


def test_a_thing_related_to_itself_is_a_pair_too() -> None:
    text = "cox binds another cox"
    itself = pair_document("d", text, End(Span(0, 3), "gene", "G1"), End(Span(18, 21), "gene", "G1"), "binds")
    (example,), _ = task().examples([itself])
    assert (example.pair, example.head, example.tail) == (("G1", "G1"), Span(0, 3), Span(18, 21))
    (unrelated,), _ = task().examples([replace(itself, relations=())])
    assert (unrelated.pair, unrelated.mentions) == (("G1", "G1"), (0, 1))


def test_documents_that_are_not_one_pair_are_counted_and_left_out() -> None:
    text = "aspirin , heparin and cox"
    mentions = tuple(Mention(text.index(n), text.index(n) + len(n), "drug", n) for n in ("aspirin", "heparin", "cox"))
    entities = tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(mentions))
    several = Document("d", text, (Span(0, len(text)),), mentions, entities, ())
    examples, notes = task().examples([several, stated("aspirin binds cox", "aspirin", "cox", "binds")])
    assert (len(examples), notes) == (1, {NOT_ONE_PAIR: 1})


def test_a_relation_that_the_label_set_lacks_is_counted_and_can_not_be_trained_on(words: Encoder) -> None:
    made = task()
    examples, notes = made.examples([stated("aspirin eats cox", "aspirin", "cox", "eats")])
    assert notes == {UNSEEN: 1}
    features = made.features(examples, words)
    with pytest.raises(DataError, match=r"'eats' of the training data is not in the label set \(binds, blocks\)"):
        made.bags(features, np.arange(1))
    assert made.label_counts(features, np.arange(1)).tolist() == [0, 0, 0]


def test_facts_of_unseen_relations_are_missed(words: Encoder) -> None:
    made = task(precision_at=[1])
    given = [
        stated("aspirin binds cox", "aspirin", "cox", "binds"),
        stated("aspirin eats cox", "aspirin", "cox", "eats"),
        stated("aspirin really eats cox", "aspirin", "cox", "eats"),
        stated("aspirin and cox", "aspirin", "cox", "owns", ("D2", "G2")),
    ]
    features = made.features(made.examples(given)[0], words)
    p = logits_of([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.3, 0.1, 0.6]])
    score = made.score(made.counts(p, features, np.arange(4)))
    # Three facts, of which one can be said; 0.8 (right) and 0.6 are.
    assert (score["n"], score["facts"], score["recall"], score["precision"]) == (2, 3, pytest.approx(1 / 3), 0.5)
    assert score["curve"]["recall"] == pytest.approx([1 / 3])
    assert set(score["per_class"]) == {"binds", "blocks"}
    outcomes = made.outcomes(p, features, np.arange(4), np.arange(4))
    assert outcomes.columns["missed"].tolist() == [1, 1]
    every_pair_once = np.ones((1, len(outcomes)), dtype=np.int64)
    assert scorer(outcomes)(every_pair_once).tolist() == pytest.approx([score["auc"]])


def test_scores_are_told_by_relation(words: Encoder) -> None:
    made = task(precision_at=[1])
    given = [
        stated("aspirin binds cox", "aspirin", "cox", "binds"),
        stated("aspirin and cox", "aspirin", "cox", "NA", ("D2", "G2")),
        stated("aspirin blocks cox", "aspirin", "cox", "blocks", ("D3", "G3")),
    ]
    features = made.features(made.examples(given)[0], words)
    p = logits_of([[0.1, 0.8, 0.1], [0.3, 0.6, 0.1], [0.5, 0.2, 0.3]])
    score = made.score(made.counts(p, features, np.arange(3)))
    assert score["per_class"] == {
        "binds": {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1},
        "blocks": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
    }
    assert "sentence_f1" not in score  # nobody knows


def test_sentences_are_scored_where_it_is_known_which_state_their_relation(words: Encoder) -> None:
    made = task(precision_at=[1])
    said = [("binds", "yes"), ("binds", "no"), ("binds", "no"), ("blocks", "yes"), ("NA", "no")]
    given = [
        replace(stated("aspirin binds cox", "aspirin", "cox", r, (f"D{i}", "G")), attributes={"true": true})
        for i, (r, true) in enumerate(said)
    ]
    features = made.features(made.examples(given)[0], words)
    p = logits_of([[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]])
    score = made.score(made.counts(p, features, np.arange(5)))
    # Two of its own relation are taken to state it, one does; of two that do, one is found.
    assert (score["sentence_precision"], score["sentence_recall"], score["sentence_f1"]) == (0.5, 0.5, 0.5)


def test_shares_of_train_tear_no_pair_apart_and_sites_do(tmp_path: Path) -> None:
    content = {
        "task": DISTANT_RE,
        "data": {
            "format": "synthetic-bags",
            "public": 0.1,
            "validation": 0.2,
            "test": 0.2,
            "options": {"facts": 40, "unrelated": 40},
        },
        "partition": {"scheme": "iid", "sites": 3},
        "model": {"encoder": "words"},
    }
    ready = prepare(make_config(content), tmp_path, tmp_path)

    def pairs(split: Split) -> set[int]:
        return set(split.features.pairs[split.rows].tolist())  # type: ignore[attr-defined]

    sites = [pairs(site_data.splits["train"]) for site_data in ready.sites.values()]
    served = {part: pairs(split) for part, split in ready.splits.items()}
    assert {part: len(held) for part, held in served.items()} == {"public": 8, "validation": 16, "test": 16}
    assert sum(map(len, served.values())) + len(set.union(*sites)) == 80
    assert len(set.union(*sites)) < sum(map(len, sites))


def test_a_pair_is_a_unit_of_distant_re_alone() -> None:
    documents = [
        stated("aspirin and cox", "aspirin", "cox"),
        stated("cox , aspirin", "cox", "aspirin", ids=("G1", "D1")),
    ]
    examples, _ = task().examples(documents)
    assert [unit.examples for unit in task().units(examples, documents, "example")] == [(0,), (1,)]
    assert [unit.examples for unit in task().units(examples, documents, "pair")] == [(0, 1)]
    with pytest.raises(ConfigError, match="'pair' is for distant_re"):
        SentenceRE.of(SentenceREOptions(), corpus()).unit_key(0, examples[0], [], "pair")


def test_precision_is_of_at_least_one_answer() -> None:
    with pytest.raises(ConfigError, match=r"task\.precision_at\.1: input should be greater than or equal to 1"):
        make_config({"task": {"name": "distant_re", "precision_at": [5, 0]}})


def test_words_stand_without_marks_and_positions_say_where_the_pair_is(words: Encoder) -> None:
    made = task()
    (example,), _ = made.examples([stated("cox is bound by aspirin today", "aspirin", "cox", "binds")])
    features = made.features([example], words)
    row = features.batch([0])
    assert words.tokenizer.convert_ids_to_tokens(row.input_ids[0]) == ["cox", "is", "bound", "by", "aspirin", "today"]
    assert row.spans[0].tolist() == [4, 5, 0, 1]


def test_a_long_sentence_gives_up_what_is_far_from_the_pair(words: Encoder) -> None:
    made = task(max_length=16)
    text = "in " * 40 + "aspirin " + "binds " * 30 + "cox" + " today" * 40
    (example,), _ = made.examples([stated(text, "aspirin", "cox", "binds")])
    row = made.features([example], words).batch([0])
    kept = words.tokenizer.convert_ids_to_tokens(row.input_ids[0])
    assert len(kept) == 16
    assert (kept[row.spans[0, 0]], kept[row.spans[0, 2]]) == ("aspirin", "cox")


def test_rows_that_follow_one_another_and_are_of_one_fact_are_a_bag(words: Encoder) -> None:
    made = task()
    given = [
        stated("aspirin binds cox", "aspirin", "cox", "binds"),
        stated("cox is bound by aspirin", "aspirin", "cox", "binds"),
        stated("aspirin and cox", "aspirin", "cox"),
        stated("aspirin binds cox", "aspirin", "cox", "binds", ("D2", "G1")),
    ]
    features = made.features(made.examples(given)[0], words)
    assert [bag.tolist() for bag in made.bags(features, np.arange(4))] == [[0, 1], [2], [3]]
    batch = features.batch([0, 1, 2, 3])
    assert (batch.bag.tolist(), batch.labels.tolist()) == ([0, 0, 1, 2], [1, 0, 1])
    named = {fact: rows.tolist() for fact, rows in made.facts(features, np.arange(4))}
    assert named == {("D1", "binds", "G1"): [0, 1], ("D1", "None", "G1"): [2], ("D2", "binds", "G1"): [3]}


def logits_of(p: list[list[float]]) -> np.ndarray:
    return np.log(np.array(p, dtype=np.float32))


def test_a_test_ranks_all_relations_of_all_pairs(words: Encoder) -> None:
    """Two pairs; the first is related in two ways, and its sentences stand apart."""
    made = task(precision_at=[1, 2, 3])
    given = [
        stated("aspirin binds cox", "aspirin", "cox", "binds"),
        stated("aspirin and cox", "aspirin", "cox", "NA", ("D2", "G2")),
        stated("aspirin blocks cox", "aspirin", "cox", "blocks"),
    ]
    features = made.features(made.examples(given)[0], words)
    p = [[0.1, 0.8, 0.1], [0.3, 0.1, 0.6], [0.5, 0.2, 0.3]]  # None, binds, blocks
    counts = made.counts(logits_of(p), features, np.arange(3))
    # ONE: the first pair has binds 0.8 and blocks 0.3, the second binds 0.1 and blocks 0.6.
    score = made.score(counts)
    assert [score[f"p@{n}"] for n in (1, 2, 3)] == pytest.approx([1, 1 / 2, 2 / 3])
    assert score["curve"] == {"recall": [0.5, 0.5, 1.0], "precision": pytest.approx([1, 1 / 2, 2 / 3])}
    assert score["auc"] == pytest.approx(0.5 * (1 / 2 + 2 / 3) / 2)
    assert (score["n"], score["facts"], score["baseline_auc"]) == (2, 2, 0.5)
    # 0.8 and 0.6 are said; one of them is right, of two facts.
    assert (score["precision"], score["recall"], score["f1"]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("bag", ["one", "ave", "att", "att_ra"])
def test_scores_of_a_test_are_those_of_the_network(bag: str, words: Encoder) -> None:
    """For each method: [bags, classes] from sentences' logits alone equals the rule computed from their vectors."""
    made = task(bag=bag, dropout=0.0)
    given = [
        stated("aspirin binds cox", "aspirin", "cox", "binds"),
        stated("cox is bound by aspirin today", "aspirin", "cox", "binds"),
        stated("aspirin and cox in cells", "aspirin", "cox", "NA", ("D2", "G2")),
    ]
    features = made.features(made.examples(given)[0], words)
    torch.manual_seed(1)
    model: Any = made.model(words).eval()
    batch = features.batch([0, 1, 2])
    with torch.no_grad():
        found = made.bag_scores(made.outputs(model, batch), batch.bag).numpy()
        x = model.represent(batch).double().numpy()
    weight, bias = (model.head.weight.detach().double().numpy(), model.head.bias.detach().double().numpy())
    queries = weight * (model.diagonal.detach().double().numpy() if bag == "att" else 1)
    for number, rows in enumerate(([0, 1], [2])):
        own = x[rows]
        if bag == "one":
            expected = softmax(own @ weight.T + bias).max(axis=0)
        elif bag == "ave":
            expected = softmax((own.mean(axis=0) @ weight.T + bias)[None])[0]
        else:
            expected = np.zeros(3)
            views = np.stack([softmax((own @ queries[r])[None])[0] @ own for r in range(3)])  # [queries, width]
            if bag == "att":
                expected = np.array([softmax((views[r] @ weight.T + bias)[None])[0, r] for r in range(3)])
            else:
                expected = softmax(np.array([[views[r] @ weight[r] + bias[r] for r in range(3)]]))[0]
        np.testing.assert_allclose(found[number], expected, atol=1e-6)


def softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("head", "encoder"), [("cnn", "words"), ("pcnn", None), ("entity_pair", None)])
def test_what_reads_a_sentence_can_be_exchanged(
    head: str, encoder: str | None, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """Convolutions over words or over a transformer's states, or the transformer's own two entities."""
    model = {"model.encoder": encoder} if encoder else {}
    content = tiny_config(task={**DISTANT_RE, "head": head}, algorithm={"name": "lazy_mil"}, **model)
    result = grandrounds.run(content, out=tmp_path / "run")
    assert result.test.auc > result.test.baseline_auc
    loaded = grandrounds.load(tmp_path / "run" / "model").relaters[0]
    assert type(loaded.model).__name__ == {"cnn": "CNN", "pcnn": "PCNN", "entity_pair": "EntityPair"}[head]


def test_a_model_reads_text_that_was_not_labelled(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(task=DISTANT_RE, **{"training.epochs": 6, "training.learning_rate": 5e-3})
    grandrounds.run(content, out=tmp_path / "run")
    model = grandrounds.load(tmp_path / "run" / "model")
    one, other = corpus(2)
    shift = len(one.text) + 1
    moved = tuple(
        replace(m, start=m.start + shift, end=m.end + shift, id=f"U{i}") for i, m in enumerate(other.mentions)
    )
    text = f"{one.text} {other.text}"
    mentions = one.mentions + moved
    whole = Document(
        "both",
        text,
        (Span(0, len(one.text)), Span(shift, len(text))),
        mentions,
        tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(mentions)),
        (Relation("TrIP", "T1", "T2"),),
    )
    found = model.extract(whole)
    assert [(r.type, r.mentions) for r in found.relations] == [("TrIP", (0, 1)), ("TeRP", (2, 3))]
    assert all(0 < float(r.attributes["score"]) <= 1 for r in found.relations)
    assert model.extract(one).relations[0].type == "TrIP"


def test_generated_bags_are_what_they_say() -> None:
    made = synthesize_bags(facts=60, unrelated=40, size=8, true=30, test=10, seed=3)
    assert made == synthesize_bags(facts=60, unrelated=40, size=8, true=30, test=10, seed=3)
    assert made != synthesize_bags(facts=60, unrelated=40, size=8, true=30, test=10, seed=4)
    bags: dict[tuple[str, str], list[Document]] = {}
    for document in made.train:
        names = [document.text[slice(m.start, m.end)] for m in document.mentions]
        assert all(name.isalnum() for name in names)
        assert "{" not in document.text
        bags.setdefault((document.entities[0].id, document.entities[1].id), []).append(document)
    related = [bag for bag in bags.values() if bag[0].relations]
    assert (len(related), len(bags)) == (60, 100)
    assert np.mean([len(bag) for bag in related]) == pytest.approx(8, abs=0.7)
    reported = [[document.attributes["true"] == "yes" for document in bag] for bag in related]
    assert all(any(bag) for bag in reported)
    assert np.mean([say for bag in reported for say in bag]) == pytest.approx(0.31, abs=0.05)
    assert not {d.entities[0].id for d in made.train} & {d.entities[0].id for d in made.test}
    with pytest.raises(DataError, match="at least 1"):
        synthesize_bags(true=0)
