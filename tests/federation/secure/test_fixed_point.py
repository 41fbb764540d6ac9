"""No sum of words overflows, and the mean is as near to that of floats as is said."""

from __future__ import annotations

import numpy as np
import pytest

from grandrounds.federation.secure.fixed_point import RANGE, WEIGHT_STEPS, FixedPoint, whole_weights


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5, 7, 8, 15, 16, 100, 1023, 65535])
@pytest.mark.parametrize("value", [RANGE, -RANGE, 1e30, -np.inf])
def test_the_largest_values_of_all_sites_do_not_overflow(sites: int, value: float) -> None:
    numbers = FixedPoint(sites)
    words, clipped = numbers.encode(np.array([value], dtype=np.float32), WEIGHT_STEPS)
    one = int(words.view(np.int32)[0])
    assert one == int(np.sign(value)) * RANGE * 2**numbers.bits
    true = sites * one
    assert -(2**31) < true < 2**31
    total = np.array([true % 2**32], dtype=np.uint32)
    assert numbers.decode(total)[0] == true
    assert numbers.mean(total, [WEIGHT_STEPS] * sites)[0] == np.sign(value) * RANGE
    assert clipped == (abs(value) > RANGE)
    assert numbers.possible(total, sites)
    assert sites * numbers.most_clipped < 2**31


def test_one_more_bit_would_overflow() -> None:
    """The bound is tight where the number of sites is a power of two less one."""
    for sites in (1, 3, 7, 15):
        assert 2 * sites * RANGE * 2 ** FixedPoint(sites).bits >= 2**31


def test_the_mean_is_that_of_floats_within_the_stated_rounding() -> None:
    rng = np.random.default_rng(1)
    for sites in (2, 5, 10):
        weights = rng.integers(1, WEIGHT_STEPS + 1, sites)
        values = rng.normal(0, 2, (sites, 20000)).astype(np.float32)
        numbers = FixedPoint(sites)
        total = np.zeros(20000, dtype=np.uint32)
        for row, weight in zip(values, weights, strict=True):
            words, clipped = numbers.encode(row, int(weight))
            assert clipped == 0
            total += words
        expected = (values.astype(np.float64) * weights[:, None]).sum(0) / weights.sum()
        error = np.abs(numbers.mean(total, weights.tolist()) - expected)
        bound = numbers.rounding(weights.tolist())
        assert error.max() <= bound + 2**-23 * np.abs(expected).max()  # a float32 has 24 bits
        assert bound / 100 < error.max()
        assert bound < 1e-5


def test_weights_are_fractions_of_the_largest_in_ten_bits() -> None:
    assert whole_weights({"a": 1000, "b": 500, "c": 333, "d": 0.001}) == {"a": 1024, "b": 512, "c": 341, "d": 1}
    assert whole_weights({"a": 1, "b": 1}) == {"a": 1024, "b": 1024}


def test_values_beyond_the_range_are_clipped_and_counted() -> None:
    words, clipped = FixedPoint(3).encode(np.array([0, 31.5, 33, -40, 32.00001], dtype=np.float32), 1024)
    assert clipped == 3
    assert FixedPoint(3).mean(words, [1024]).tolist() == [0, 31.5, 32, -32, 32]


def test_what_is_left_of_a_mask_is_no_possible_sum() -> None:
    random = np.random.default_rng(1).integers(0, 2**32, 1000, dtype=np.uint32)
    assert not FixedPoint(5).possible(random, 5)
    assert FixedPoint(5).possible(np.zeros(3, dtype=np.uint32), 1)
