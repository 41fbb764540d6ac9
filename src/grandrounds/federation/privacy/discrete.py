"""Gaussian noise of whole numbers: for what is counted, and for sums of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

import numpy as np
from numpy.typing import NDArray

Uniform = Callable[[int], NDArray[np.float64]]
"""So many numbers between 0 and 1, never 0."""
LEAST = 4.0
"""A deviation from which on whole numbers tell no more than real ones would."""
CHUNK = 1 << 17


def discrete_gaussian(count: int, deviation: float, uniform: Uniform) -> NDArray[np.int64]:
    """Whole numbers x, each with a chance in proportion to exp(-x^2 / (2 deviation^2)).

    Canonne, Kamath and Steinke, NeurIPS 2020, Algorithm 3, in float64: proposals from a discrete Laplace distribution,
    each kept with a chance that makes up for the difference."""
    scale, drawn, filled = floor(deviation) + 1, np.empty(count, dtype=np.int64), 0
    while filled < count:
        size = min(CHUNK, (count - filled) * 3 // 2 + 64)
        up, down = (np.floor(-scale * np.log(uniform(size))) for _ in range(2))
        proposed = up - down
        away = (np.abs(proposed) - deviation**2 / scale) / deviation
        kept = proposed[uniform(size) < np.exp(-(away**2) / 2)][: count - filled]
        drawn[filled : filled + len(kept)] = kept
        filled += len(kept)
    return drawn


def of(rng: np.random.Generator) -> Uniform:
    """A generator's numbers."""
    return lambda count: 1.0 - rng.random(count)
