"""Entropies, divergences and distances of heads against loops, SciPy and a case worked by hand."""

from __future__ import annotations

import tracemalloc
from math import isnan, log

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon, pdist, squareform
from scipy.stats import entropy, spearmanr
from sklearn.manifold import smacof

from grandrounds.metrics import attention
from grandrounds.metrics.attention import (
    HeadSums,
    distance,
    divergences,
    entropies,
    in_the_plane,
    spearman,
    turned_onto,
)


def looks(*shape: int, seed: int = 0, zeros: bool = True) -> torch.Tensor:
    """Rows that sum to one, some with zeros, as attention has where a softmax underflows."""
    rng = np.random.default_rng(seed)
    raw = rng.gamma(0.3, size=shape)
    if zeros:
        raw[rng.random(shape) < 0.2] = 0
        raw[..., 0] += 1e-3
    return torch.from_numpy(raw / raw.sum(axis=-1, keepdims=True))


def js(p: np.ndarray, q: np.ndarray) -> float:
    """The definition, entry by entry."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += (a * log(a / m) if a else 0) / 2 + (b * log(b / m) if b else 0) / 2
    return total


def test_entropy_is_scipys_of_the_smoothed_rows() -> None:
    given = looks(2, 3, 7, 7)
    smooth = 0.9999 * given.numpy() + 0.0001 / 7
    np.testing.assert_allclose(entropies(given), entropy(smooth, axis=-1).mean(axis=-1), rtol=1e-12)


@pytest.mark.parametrize("block", [1, 100, 2**18])
def test_divergence_is_that_of_a_loop_and_of_scipy_squared(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", block)
    given = looks(5, 6, 6)
    rows = given.numpy()
    found = divergences(given)
    for i in range(5):
        for j in range(5):
            loop = np.mean([js(rows[i, t], rows[j, t]) for t in range(6)])
            peer = np.mean([np.nan_to_num(jensenshannon(rows[i, t], rows[j, t])) ** 2 for t in range(6)])
            assert found[i, j] == pytest.approx(loop, abs=1e-14)
            assert found[i, j] == pytest.approx(peer, abs=1e-9)


def test_two_heads_by_hand() -> None:
    """From the first token one head looks at one token, the other at the other; from the second both at both."""
    sums = HeadSums()
    sums.add(torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]], [[[0.0, 1.0], [0.5, 0.5]]]], dtype=torch.float64))
    result = sums.result()
    near = -(0.99995 * log(0.99995) + 0.00005 * log(0.00005))
    np.testing.assert_allclose(result.entropy, [[(near + log(2)) / 2]] * 2)
    np.testing.assert_allclose(result.divergence, np.array([[0, 1], [1, 0]]) * log(2) / 2)
    np.testing.assert_allclose(result.divergence_sum, np.array([[0, 1], [1, 0]]) * log(2))


def test_documents_count_alike_on_average_and_by_their_tokens_in_the_sum() -> None:
    short, long = looks(2, 2, 3, 3), looks(2, 2, 9, 9, seed=1)
    sums = HeadSums()
    sums.add(short)
    sums.add(long)
    both, a, b = sums.result(), divergences(short.reshape(4, 3, 3)), divergences(long.reshape(4, 9, 9))
    np.testing.assert_allclose(both.divergence, (a + b) / 2)
    np.testing.assert_allclose(both.divergence_sum, 3 * a + 9 * b)
    np.testing.assert_allclose(both.entropy, (entropies(short) + entropies(long)) / 2)
    np.testing.assert_allclose(both.entropy_by_layer, both.entropy.mean(axis=1))
    assert (both.documents, both.tokens) == (2, 12)


def test_single_precision_is_near_enough() -> None:
    given = looks(12, 64, 64)
    np.testing.assert_allclose(divergences(given.float()), divergences(given), atol=2e-7)


def test_what_is_held_does_not_grow_with_the_number_of_documents() -> None:
    def peak(documents: int) -> int:
        sums, given = HeadSums(), looks(4, 4, 16, 16)
        sums.add(given)
        tracemalloc.start()
        for _ in range(documents):
            sums.add(given.clone())
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(40) < 1.1 * peak(10)


def test_correlation_of_ranks_is_scipys_with_ties_too() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 5, (3, 4)).astype(float), rng.integers(0, 5, (3, 4)).astype(float)
    assert spearman(a, b) == pytest.approx(spearmanr(a.ravel(), b.ravel()).statistic, abs=1e-14)
    assert spearman(a, a**3) == pytest.approx(1)
    assert isnan(spearman(a, np.ones((3, 4))))


def test_distance_is_the_mean_absolute_difference() -> None:
    assert distance(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 0.5], [0.5, 0.0]])) == 0.25


def test_points_of_a_plane_are_found_again() -> None:
    flat = squareform(pdist(np.random.default_rng(4).normal(size=(9, 2))))
    np.testing.assert_allclose(squareform(pdist(in_the_plane(flat))), flat, atol=1e-6)


def test_the_picture_is_as_good_as_scikit_learns_best_of_several() -> None:
    given = divergences(looks(24, 8, 8))
    ours = in_the_plane(given)
    stress = ((squareform(pdist(ours)) - given) ** 2).sum() / 2
    _, best = smacof(given, n_components=2, n_init=8, max_iter=1000, random_state=0, normalized_stress=False)
    assert stress <= 1.1 * best
    np.testing.assert_array_equal(ours, in_the_plane(given))


def test_a_picture_that_was_turned_and_mirrored_is_laid_back() -> None:
    points = np.random.default_rng(5).normal(size=(7, 2))
    points -= points.mean(axis=0)
    turned = points @ np.array([[0.6, 0.8], [0.8, -0.6]]) + 3
    np.testing.assert_allclose(turned_onto(turned, points), points, atol=1e-12)


def test_one_head_is_a_point() -> None:
    assert in_the_plane(np.zeros((1, 1))).tolist() == [[0, 0]]
