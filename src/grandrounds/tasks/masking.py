"""BERT's masks (Devlin et al., NAACL 2019, Section 3.1), drawn by keys instead of by a generator.

Of a row's word pieces 15% are to be found again: 80% of these become [MASK], 10% a random piece, 10% stay. What is
drawn for a place is a hash of the row's key and the place: the same in any batch, in any order, in any process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def hashed(values: Keys) -> Keys:
    """splitmix64 (Steele, Lea, Flood, OOPSLA 2014): 64 bits that look random from 64 that count."""
    with np.errstate(over="ignore"):
        z = values + _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def uniform(keys: Keys, purpose: int, draws: int) -> NDArray[np.float64]:
    """[keys, draws]: numbers from 0 to below 1."""
    with np.errstate(over="ignore"):
        base = hashed(keys ^ hashed(np.full(1, purpose, dtype=np.uint64)))
        each = hashed(base[:, None] + np.arange(draws, dtype=np.uint64) * _GOLDEN)
    return (each >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Masking:
    share: float
    most: int
    """Masked places in a row."""
    whole_words: bool
    mask: int
    vocabulary: int
    """How many pieces a random one is drawn from: all."""
    to_mask: float = 0.8
    to_random: float = 0.1


class Masked(NamedTuple):
    ids: NDArray[np.int64]
    chosen: NDArray[np.bool_]
    """[rows, length]: the places to be found again."""


CHOICE, FATE, PIECE = range(3)


def mask_rows(
    ids: NDArray[np.int64], maskable: NDArray[np.bool_], begins: NDArray[np.bool_], keys: Keys, how: Masking
) -> Masked:
    """[rows, length] with some places masked; `begins` are the first pieces of words."""
    length = ids.shape[1]
    draws = uniform(keys, CHOICE, length)
    counts = maskable.sum(axis=1)
    wanted = np.minimum(np.clip(np.floor(how.share * counts + 0.5), 1, how.most), counts).astype(np.int64)
    if how.whole_words:
        chosen = _whole_words(draws, maskable, begins, wanted)
    else:
        ranks = np.where(maskable, draws, 2.0).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        chosen = ranks < wanted[:, None]
    fate = uniform(keys, FATE, length)
    piece = (uniform(keys, PIECE, length) * how.vocabulary).astype(np.int64)
    out = np.where(chosen & (fate < how.to_mask), how.mask, ids)
    random = chosen & (fate >= how.to_mask) & (fate < how.to_mask + how.to_random)
    return Masked(np.where(random, piece, out), chosen)


def _whole_words(
    draws: NDArray[np.float64], maskable: NDArray[np.bool_], begins: NDArray[np.bool_], wanted: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Words in random order, each if it still fits, until there are enough pieces."""
    chosen = np.zeros_like(maskable)
    for row in range(len(draws)):
        places = np.flatnonzero(maskable[row])
        cuts = np.flatnonzero(begins[row, places])
        words = [word for word in np.split(places, cuts[cuts > 0]) if len(word)]
        words.sort(key=lambda word: draws[row, word[0]])
        room = int(wanted[row])
        for word in words:
            if len(word) <= room:
                chosen[row, word] = True
                room -= len(word)
        if words and not chosen[row].any():
            chosen[row, words[0]] = True  # a row of long words has something to find, too
    return chosen
