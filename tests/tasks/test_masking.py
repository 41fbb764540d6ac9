"""BERT's masks: their shares, and that a row's own key decides them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from grandrounds.tasks.masking import Masked, Masking, hashed, mask_rows, uniform

HOW = Masking(share=0.15, most=20, whole_words=False, mask=4, vocabulary=1000)
ROWS, LENGTH = 800, 128


def rows() -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.uint64]]:
    """100,800 pieces between [CLS] and [SEP], every third of which goes on with a word."""
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 1000, (ROWS, LENGTH))
    maskable = np.ones((ROWS, LENGTH), dtype=np.bool_)
    maskable[:, [0, -1]] = False
    begins = draw.random((ROWS, LENGTH)) > 1 / 3
    begins[:, 1] = True
    return ids, maskable, begins, hashed(np.arange(ROWS, dtype=np.uint64))


def shares(masked: Masked, ids: NDArray[np.int64], maskable: NDArray[np.bool_]) -> tuple[float, ...]:
    chosen = masked.chosen
    masks = (masked.ids == HOW.mask)[chosen].mean()
    kept = (masked.ids == ids)[chosen].mean()
    return 100 * chosen.sum() / maskable.sum(), 100 * masks, 100 * (1 - masks - kept), 100 * kept


@pytest.mark.parametrize("whole_words", [False, True])
def test_shares_are_those_of_the_paper_within_half_a_point(whole_words: bool) -> None:
    ids, maskable, begins, keys = rows()
    ten = [
        mask_rows(ids, maskable, begins, hashed(keys ^ np.uint64(epoch)), replace(HOW, whole_words=whole_words))
        for epoch in range(10)
    ]
    found = np.mean([shares(masked, ids, maskable) for masked in ten], axis=0)
    assert found == pytest.approx([15, 80, 10, 10], abs=0.5)  # 15,000 masks an epoch have a deviation of 0.3 points
    assert shares(ten[0], ids, maskable)[0] == pytest.approx(15, abs=0.5)
    for masked in ten:
        assert not (masked.chosen & ~maskable).any()
        assert (masked.ids == ids)[~masked.chosen].all()
        assert masked.chosen.sum(axis=1).max() <= HOW.most


def test_random_pieces_come_from_the_whole_vocabulary_and_places_from_the_whole_row() -> None:
    ids, maskable, begins, keys = rows()
    masked = mask_rows(ids, maskable, begins, keys, replace(HOW, to_mask=0.0, to_random=1.0))
    drawn = masked.ids[masked.chosen]
    assert (drawn.min(), drawn.max()) == (0, 999)
    assert np.bincount(drawn // 100) == pytest.approx(np.full(10, len(drawn) / 10), rel=0.1)
    assert masked.chosen[:, 1:-1].sum(axis=0) == pytest.approx(np.full(126, 0.15 * ROWS), rel=0.4)


def test_whole_words_are_masked_whole() -> None:
    ids, maskable, begins, keys = rows()
    chosen = mask_rows(ids, maskable, begins, keys, replace(HOW, whole_words=True)).chosen
    goes_on = ~begins[:, 1:] & maskable[:, 1:] & maskable[:, :-1]
    assert (chosen[:, 1:] == chosen[:, :-1])[goes_on].all()


def test_a_row_of_one_long_word_has_something_to_find() -> None:
    begins = np.zeros((1, 8), dtype=np.bool_)
    begins[0, 1] = True
    maskable = np.array([[False, *[True] * 6, False]])
    how = replace(HOW, whole_words=True)
    assert mask_rows(np.full((1, 8), 9), maskable, begins, hashed(np.zeros(1, np.uint64)), how).chosen.sum() == 6


def test_at_most_so_many_are_masked_and_at_least_one() -> None:
    ids, maskable, begins, keys = rows()
    assert (mask_rows(ids, maskable, begins, keys, replace(HOW, most=7)).chosen.sum(axis=1) == 7).all()
    maskable[:, 3:] = False
    assert (mask_rows(ids, maskable, begins, keys, HOW).chosen.sum(axis=1) == 1).all()


def test_a_rows_masks_hang_on_its_key_alone() -> None:
    ids, maskable, begins, keys = rows()
    whole = mask_rows(ids, maskable, begins, keys, HOW)
    some = np.array([700, 3, 41])
    part = mask_rows(ids[some], maskable[some], begins[some], keys[some], HOW)
    assert (part.ids == whole.ids[some]).all()
    other = mask_rows(ids, maskable, begins, hashed(keys), HOW)
    assert (other.chosen != whole.chosen).mean() == pytest.approx(2 * 0.15 * 0.85, abs=0.02)


def test_padding_changes_no_mask() -> None:
    ids, maskable, begins, keys = rows()
    nine = ((0, 0), (0, 9))
    masked = mask_rows(np.pad(ids, nine), np.pad(maskable, nine), np.pad(begins, nine), keys, HOW)
    assert (masked.ids[:, :LENGTH] == mask_rows(ids, maskable, begins, keys, HOW).ids).all()


def test_hashes_are_splitmix64() -> None:
    """The first numbers of the published generator from the seed 1234567, whose state goes on by the golden ratio."""
    golden = 0x9E3779B97F4A7C15
    states = [np.uint64((1234567 + i * golden) % 2**64) for i in range(3)]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert hashed(np.array(states, dtype=np.uint64)).tolist() == expected


def test_draws_are_uniform_and_of_their_purpose() -> None:
    keys = hashed(np.arange(300, dtype=np.uint64))
    one, other = uniform(keys, 1, 100), uniform(keys, 2, 100)
    assert np.histogram(one, 10, (0, 1))[0] == pytest.approx(np.full(10, 3000), rel=0.08)
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(one[:, 0], one[:, 1])[0, 1]) < 0.15
