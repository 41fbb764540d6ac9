"""Real numbers as whole ones, so that masks cancel to the last bit and a sum does not depend on its order.

A site with the weight k of 1024 sends y = round(clip(x, -R, R) 2^f k/1024) modulo 2^32. For n sites, f = 31 - b - r
where R = 2^r and n < 2^b.

No sum overflows: |y| <= R 2^f = 2^(31 - b), since rounding does not leave an interval whose ends are whole numbers. So
|sum y| <= n 2^(31 - b) <= (2^b - 1) 2^(31 - b) < 2^31, and a sum read as a signed word of 32 bits is the true one.

The error of the mean sum(y) / (2^f sum(k)/1024) against sum(k x) / sum(k) is at most n/2 roundings of 2^-f, over the
weights' sum: `rounding`. A weight is off by 2^-11 of the largest at most, or by 2^-10 where it is raised to 1/1024.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grandrounds.federation.secure_payloads import MOST_SITES

RANGE_BITS = 5
RANGE = 2**RANGE_BITS
"""Values beyond +-32 are clipped and counted; weights of encoders, log-probabilities and gradients are within."""
WEIGHT_STEPS = 1024
CHUNK = 1 << 18
"""Numbers that are encoded at once: in float64 all of them would take twice a model's memory."""
Words = NDArray[np.uint32]


@dataclass(frozen=True)
class FixedPoint:
    """How the values of an attempt with so many sites are written."""

    sites: int

    def __post_init__(self) -> None:
        if not 1 <= self.sites < MOST_SITES:
            raise ValueError(f"a secure sum is over 1 to {MOST_SITES - 1} sites")

    @property
    def bits(self) -> int:
        """f: bits after the point."""
        return 31 - self.sites.bit_length() - RANGE_BITS

    def encode(self, values: NDArray[np.float32], weight: int) -> tuple[Words, int]:
        """The weighted values as words, and how many of them were clipped."""
        if not 1 <= weight <= WEIGHT_STEPS:
            raise ValueError(f"a weight is 1 to {WEIGHT_STEPS}")
        words, outside, scale = np.empty(len(values), dtype=np.int32), 0, 2.0**self.bits * weight / WEIGHT_STEPS
        for start in range(0, len(values), CHUNK):
            exact = values[start : start + CHUNK].astype(np.float64)  # in float32 the product would be rounded, too
            outside += int(np.count_nonzero(np.abs(exact) > RANGE))
            np.clip(exact, -RANGE, RANGE, out=exact)
            exact *= scale
            words[start : start + CHUNK] = np.rint(exact, out=exact)
        return words.view(np.uint32), outside

    def decode(self, total: Words) -> NDArray[np.int64]:
        """The true sum of what sites encoded."""
        return total.view(np.int32).astype(np.int64)

    def mean(self, total: Words, weights: Collection[int]) -> NDArray[np.float32]:
        scale = 2.0**self.bits * sum(weights) / WEIGHT_STEPS
        mean: NDArray[np.float32] = (total.view(np.int32) / scale).astype(np.float32)
        return mean

    def possible(self, total: Words, sites: int) -> bool:
        """Whether these sites' values can have that sum; what is left of a mask can't, but by chance."""
        largest = sites * (RANGE << self.bits)
        found = total.view(np.int32)
        return not len(found) or bool(-largest <= int(found.min()) and int(found.max()) <= largest)

    def rounding(self, weights: Collection[int]) -> float:
        """How far a mean can be from that of the numbers before they were rounded, at most."""
        return len(weights) / 2 * WEIGHT_STEPS / (2.0**self.bits * sum(weights))

    @property
    def most_clipped(self) -> int:
        """What a site counts at most, so that the sum of counts does not overflow either."""
        return (1 << (31 - self.sites.bit_length())) - 1


def whole_weights(weights: Mapping[str, float]) -> dict[str, int]:
    """As fractions of the largest, in 10 bits: 1 to 1024."""
    largest = max(weights.values())
    return {site: max(1, round(WEIGHT_STEPS * value / largest)) for site, value in weights.items()}
