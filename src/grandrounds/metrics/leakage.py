"""How much an attack found out: words that a site has, examples that it trained on, examples that were planted there.

Each figure comes with what guessing would give, so that "nothing" can be told from "little".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from grandrounds.metrics.ranking import ranking_order

FALSE_POSITIVES = 0.01
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Words:
    """The rows of an embedding, ranked by how much an upload changed them."""

    right: float
    """Of the first rows, as many as the site has words: the share that it has."""
    chance: float
    present: int
    """Words that the site has."""


@dataclass(frozen=True)
class Membership:
    """Scores of examples that were trained on and of others, a higher one meaning "it was"."""

    auc: float
    """0.5 is guessing."""
    found: float
    """The share of members above a score that 1% of the others are above."""
    low: float
    high: float
    """Its 95% interval (Wilson's)."""
    members: int
    others: int


@dataclass(frozen=True)
class Exposure:
    """Canaries that were planted, ranked among as many that were not (Carlini et al., 2019), in bits."""

    bits: float
    chance: float
    most: float
    """Of a canary that comes before all that were not planted."""
    planted: int


def words_found(change: NDArray[np.float32], present: NDArray[np.bool_]) -> Words:
    """`change` and `present` have a value for each row of the vocabulary."""
    held = int(present.sum())
    first = ranking_order(change)[:held]
    return Words(float(present[first].mean()) if held else 0.0, held / len(present), held)


def membership(members: Numbers, others: Numbers) -> Membership:
    limit = np.sort(others)[::-1][floor(FALSE_POSITIVES * len(others))]
    found = float((members > limit).mean())
    low, high = _wilson(found, len(members))
    above = (members[:, None] > others).mean() + (members[:, None] == others).mean() / 2
    return Membership(float(above), found, low, high, len(members), len(others))


def exposure(planted: Numbers, others: Numbers) -> Exposure:
    places = len(others) + 1
    ahead = (others > planted[:, None]).sum(axis=1) + (others == planted[:, None]).sum(axis=1) / 2
    guessing = log2(places) - float(np.log2(np.arange(1, places + 1)).mean())
    return Exposure(float((log2(places) - np.log2(ahead + 1)).mean()), guessing, log2(places), len(planted))


def _wilson(share: float, of: int) -> tuple[float, float]:
    z = 1.96
    middle, spread = share + z * z / (2 * of), z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * spread) / (1 + z * z / of) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
