"""Relation F1 is scikit-learn's, and counts may be summed over sites."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from grandrounds.metrics.relation_f1 import (
    best_threshold,
    macro_f1,
    pair_counts,
    pair_score,
    precision_recall_f1,
    relation_counts,
    relation_score,
)

LABELS = ("None", "PIP", "TeRP", "TrAP")


def random_labels(seed: int, size: int = 200, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, classes, size)
    predicted = np.where(rng.random(size) < 0.6, gold, rng.integers(0, classes, size))
    return gold, predicted


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_scikit_learns_over_all_labels(seed: int, classes: int) -> None:
    gold, predicted = random_labels(seed, classes=classes)
    found = macro_f1(relation_counts(gold, predicted, LABELS[:classes]), LABELS[:classes])
    assert found == pytest.approx(f1_score(gold, predicted, average="macro"), abs=1e-12)


def test_a_class_that_nobody_names_has_a_macro_f1_of_zero() -> None:
    gold = np.array([0, 0, 1, 1])
    assert macro_f1(relation_counts(gold, gold * 0, LABELS), LABELS) == pytest.approx((2 / 3) / 4)


@pytest.mark.parametrize("seed", range(5))
def test_micro_scores_are_scikit_learns_over_all_labels_but_none(seed: int) -> None:
    gold, predicted = random_labels(seed)
    score = relation_score(relation_counts(gold, predicted, LABELS), LABELS)
    precision, recall, f1, _ = precision_recall_fscore_support(
        gold, predicted, labels=[1, 2, 3], average="micro", zero_division=0
    )
    assert (score["precision"], score["recall"], score["f1"]) == pytest.approx((precision, recall, f1), abs=1e-12)
    assert score["accuracy"] == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    assert score["n"] == 200


@pytest.mark.parametrize("seed", range(5))
def test_scores_by_class_are_scikit_learns(seed: int) -> None:
    gold, predicted = random_labels(seed)
    per_class = relation_score(relation_counts(gold, predicted, LABELS), LABELS)["per_class"]
    expected = precision_recall_fscore_support(gold, predicted, labels=[1, 2, 3], zero_division=0)
    for c, label in enumerate(LABELS[1:]):
        found = [per_class[label][name] for name in ("precision", "recall", "f1", "support")]
        assert found == pytest.approx([float(column[c]) for column in expected], abs=1e-12)
    assert list(per_class) == ["PIP", "TeRP", "TrAP"]


def test_with_one_relation_it_is_the_positive_class_f1() -> None:
    gold, predicted = random_labels(9, classes=2)
    score = relation_score(relation_counts(gold, predicted, ("None", "related")), ("None", "related"))
    expected = precision_recall_fscore_support(gold, predicted, pos_label=1, average="binary")
    assert score["f1"] == pytest.approx(expected[2], abs=1e-12)


def test_counts_are_those_of_a_confusion_matrix_by_hand() -> None:
    gold, predicted = np.array([0, 0, 1, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 0, 2, 2])
    counts = relation_counts(gold, predicted, ("None", "A", "B"))
    assert counts == {"n": 7, "right": 4, "tp/A": 1, "fp/A": 1, "fn/A": 2, "tp/B": 2, "fp/B": 1, "fn/B": 0}


def test_the_sum_of_two_sites_counts_is_the_count_of_their_joined_rows() -> None:
    one, other = random_labels(1, 70), random_labels(2, 131)
    joined = relation_counts(*(np.concatenate(pair) for pair in zip(one, other, strict=True)), LABELS)
    parts = [relation_counts(gold, predicted, LABELS) for gold, predicted in (one, other)]
    assert {name: parts[0][name] + parts[1][name] for name in parts[0]} == joined


def test_answering_yes_everywhere_has_f1_0_6896_on_gads_test_set() -> None:
    gold, labels = np.array([1] * 281 + [0] * (534 - 281)), ("None", "related")
    score = relation_score(relation_counts(gold, np.zeros(534, dtype=np.int64), labels), labels)
    assert score["baseline_f1"] == pytest.approx(2 * 281 / (534 + 281), abs=1e-12)
    assert round(score["baseline_f1"], 4) == 0.6896
    assert score["baseline"] == "all 'related'"
    assert (score["precision"], score["recall"], score["f1"]) == (0, 0, 0)


def test_the_baseline_answers_the_commonest_relation_and_misses_the_others() -> None:
    gold = np.array([0] * 10 + [1] * 3 + [2] * 7)
    score = relation_score(relation_counts(gold, gold, ("None", "A", "B")), ("None", "A", "B"))
    everywhere = np.full(20, 2)
    expected = precision_recall_fscore_support(gold, everywhere, labels=[1, 2], average="micro")
    assert score["baseline"] == "all 'B'"
    assert score["baseline_f1"] == pytest.approx(expected[2], abs=1e-12)
    assert score["f1"] == 1


def test_nothing_found_and_nothing_there_is_zero_not_an_error() -> None:
    assert precision_recall_f1(0, 0, 0) == {"precision": 0, "recall": 0, "f1": 0}
    empty = np.array([], dtype=np.int64)
    score = relation_score(relation_counts(empty, empty, LABELS), LABELS)
    assert (score["f1"], score["accuracy"], score["n"], score["baseline_f1"]) == (0, 0, 0, 0)


def many(seed: int, pairs: int = 80, relations: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((pairs, relations)) < 0.3, rng.random((pairs, relations)) < 0.4, rng.random(pairs) < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_with_several_relations_a_pair_scores_are_scikit_learns_multi_label_ones(seed: int) -> None:
    gold, predicted, within = many(seed)
    score = pair_score(pair_counts(gold, predicted, ("a", "b", "c"), within), ("a", "b", "c"))
    precision, recall, f1, _ = precision_recall_fscore_support(gold, predicted, average="micro")
    assert (score["precision"], score["recall"], score["f1"]) == pytest.approx((precision, recall, f1), abs=1e-12)
    assert score["accuracy"] == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    for name, held in (("f1_within", within), ("f1_across", ~within)):
        expected = precision_recall_fscore_support(gold[held], predicted[held], average="micro")[2]
        assert score[name] == pytest.approx(expected, abs=1e-12)
    assert "ign_f1" not in score


def test_ign_f1_leaves_out_of_precision_what_training_gave_away() -> None:
    # Six answers: four right, of which three stand in the training data; five facts in all.
    gold = np.array([[1], [1], [1], [1], [1], [0], [0]], dtype=bool)
    predicted = np.array([[1], [1], [1], [1], [0], [1], [1]], dtype=bool)
    seen = np.array([[1], [1], [1], [0], [1], [1], [0]], dtype=bool)
    score = pair_score(pair_counts(gold, predicted, ("r",), np.ones(7, dtype=bool), seen), ("r",))
    precision, recall = (4 - 3) / (6 - 3), 4 / 5
    assert score["ign_f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert score["f1"] == pytest.approx(2 * 4 / 11)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_threshold_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold, logits = rng.random((40, 2)) < 0.3, rng.normal(size=(40, 2)).round(1).astype(np.float32)

    def f1(threshold: float) -> float:
        return float(precision_recall_fscore_support(gold, logits > threshold, average="micro", zero_division=0)[2])

    found = best_threshold(gold, logits)
    assert f1(found) == pytest.approx(max(f1(t) for t in np.arange(-4, 4, 0.05)))
    assert not np.any(logits == np.float32(found)), "an answer stands on the threshold"


def test_where_nothing_is_to_be_found_the_threshold_is_a_half() -> None:
    assert best_threshold(np.zeros((3, 1), dtype=bool), np.ones((3, 1), dtype=np.float32)) == 0
    assert best_threshold(np.ones((1, 1), dtype=bool), np.full((1, 1), 2.0, dtype=np.float32)) == 1.5
