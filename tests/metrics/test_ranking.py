"""Held-out ranking against scikit-learn, and ten facts ranked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import auc

from grandrounds.metrics.ranking import TOP, ranking_curve, thinned


def test_ten_answers_ranked_by_hand() -> None:
    # Right answers at places 1, 2, 4 and 7 of ten; four facts in all.
    right = [1, 1, 0, 1, 0, 0, 1, 0, 0, 0]
    scores = np.linspace(1, 0.1, 10, dtype=np.float32).reshape(5, 2)
    curve = ranking_curve(np.array(right, dtype=bool).reshape(5, 2), scores)
    np.testing.assert_allclose(curve.recall, [0.25, 0.5, 0.5, 0.75, 0.75, 0.75, 1, 1, 1, 1])
    precision = [1, 1, 2 / 3, 3 / 4, 3 / 5, 3 / 6, 4 / 7, 4 / 8, 4 / 9, 4 / 10]
    np.testing.assert_allclose(curve.precision, precision)
    # Trapezoids where recall grows: 1 to 1, 2/3 to 3/4, 1/2 to 4/7, each a quarter wide.
    assert curve.auc == pytest.approx(0.25 * (1 + (2 / 3 + 3 / 4) / 2 + (1 / 2 + 4 / 7) / 2))
    assert [curve.precision_at(n) for n in (1, 3, 5, 10, 100)] == pytest.approx([1, 2 / 3, 0.6, 0.4, 0.4])


@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_scikit_learns_of_the_same_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold, scores = rng.random((700, 5)) < 0.1, rng.random((700, 5)).astype(np.float32)
    curve = ranking_curve(gold, scores)
    assert curve.auc == pytest.approx(auc(curve.recall, curve.precision), abs=1e-12)
    assert curve.auc_top == pytest.approx(auc(curve.recall[:TOP], curve.precision[:TOP]), abs=1e-12)
    assert curve.auc_top < curve.auc


def test_who_can_tell_no_answer_from_another_gets_chance_in_whatever_order_the_file_is() -> None:
    gold = np.zeros((1000, 5), dtype=bool)
    gold[:200, 0] = True  # related pairs first
    for order in (gold, gold[::-1]):
        assert ranking_curve(order, np.ones(gold.shape, dtype=np.float32)).auc == pytest.approx(0.04, abs=0.01)
    again = [ranking_curve(gold, np.ones(gold.shape, dtype=np.float32)).precision for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_a_thinned_curve_ends_where_recall_is_full() -> None:
    rng = np.random.default_rng(1)
    gold = np.zeros((5000, 1), dtype=bool)
    gold[:40] = True
    curve = ranking_curve(gold, rng.random((5000, 1)).astype(np.float32))
    drawn = thinned(curve, 50)
    assert len(drawn["recall"]) == len(drawn["precision"]) <= 50
    assert drawn["recall"][-1] == 1


def test_of_a_long_curve_half_is_kept_for_its_first_answers() -> None:
    gold, scores = np.ones((1, 1_000_000), dtype=bool), np.linspace(1, 0, 1_000_000, dtype=np.float32)
    drawn = thinned(ranking_curve(gold, scores[None]), 300)
    assert sum(recall <= TOP / 1_000_000 for recall in drawn["recall"]) == 150
    assert (len(drawn["recall"]), drawn["recall"][-1]) == (300, 1)
