"""Figures of attacks, against values worked out by hand."""

from __future__ import annotations

from itertools import permutations
from math import log2

import numpy as np
import pytest

from grandrounds.metrics.leakage import exposure, membership, words_found


def test_words_are_the_rows_that_changed_most() -> None:
    change = np.array([0.1, 3.0, 0.0, 2.0, 0.2], np.float32)
    found = words_found(change, np.array([True, True, False, True, False]))
    assert (found.right, found.chance, found.present) == (pytest.approx(2 / 3), 0.6, 3)


def test_a_change_that_is_the_same_everywhere_tells_nothing() -> None:
    present = np.arange(2000) < 200
    found = words_found(np.ones(2000, np.float32), present)
    assert found.right == pytest.approx(found.chance, abs=0.06)


def test_one_percent_of_the_others_may_be_taken_for_members() -> None:
    others = np.arange(200.0)  # 198 and 199 may be: what is above 197 counts
    found = membership(np.array([197.0, 198.0, 250.0, 3.0]), others)
    assert found.found == 0.5
    below = np.array([197.5, 198.5, 200, 3.5]) / 200
    assert found.auc == pytest.approx(below.mean())
    assert (found.low, found.high) == (pytest.approx(0.1500, abs=1e-4), pytest.approx(0.8500, abs=1e-4))  # Wilson's


def test_a_score_that_knows_nothing_has_an_area_of_one_half() -> None:
    found = membership(np.zeros(50), np.zeros(300))
    assert (found.auc, found.found, found.low) == (0.5, 0.0, 0.0)


def test_exposure_is_the_bits_that_a_canary_is_ahead() -> None:
    others = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert exposure(np.array([9.0]), others).bits == 3.0  # before all seven, of eight places
    assert exposure(np.array([9.0]), others).most == 3.0
    assert exposure(np.array([6.5]), others).bits == 2.0  # second
    assert exposure(np.array([0.0]), others).bits == 0.0  # last


def test_guessing_is_the_mean_over_all_orders() -> None:
    places = [order.index(0) + 1 for order in permutations(range(4))]
    assert exposure(np.zeros(1), np.ones(3)).chance == pytest.approx(np.mean([log2(4) - log2(p) for p in places]))
