"""Real numbers as whole ones, so that masks cancel to the last bit and a sum does not depend on its order.

A site with the weight k of 1024 sends y = round(clip(x, -R, R) 2^f k/1024) modulo 2^32. For n sites, f = 31 - b - r
where R = 2^r and n < 2^b.

No sum overflows: |y| <= R 2^f = 2^(31 - b), since rounding does not leave an interval whose ends are whole numbers. So
|sum y| <= n 2^(31 - b) <= (2^b - 1) 2^(31 - b) < 2^31, and a sum read as a signed word of 32 bits is the true one.

The error of the mean sum(y) / (2^f sum(k)/1024) against sum(k x) / sum(k) is at most n/2 roundings of 2^-f, over the
weights' sum: `rounding`. A weight is off by 2^-11 of the largest at most, or by 2^-10 where it is raised to 1/1024.

Where whole sites are private, a site sends round(s 2^f k/1024) + z: s is what it was sent, and z is its update, cut to
the largest norm and rounded towards zero, so that no rounding makes it longer. R then has room for noise, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from grandrounds.errors import ConfigError
from grandrounds.federation.secure_payloads import MOST_SITES

RANGE = 32
"""Values beyond +-32 are clipped and counted; weights of encoders, log-probabilities and gradients are within."""
WEIGHT_STEPS = 1024
CHUNK = 1 << 18
"""Numbers that are encoded at once: in float64 all of them would take twice a model's memory."""
Words = NDArray[np.uint32]


@dataclass(frozen=True)
class FixedPoint:
    """How the values of an attempt with so many sites are written."""

    sites: int
    tail: float = 0.0
    """Of noise that each site adds to its values."""

    def __post_init__(self) -> None:
        if not 1 <= self.sites < MOST_SITES:
            raise ValueError(f"a secure sum is over 1 to {MOST_SITES - 1} sites")
        if self.bits < 0:
            raise ConfigError(
                f"privacy.noise times privacy.clip is too much for the 32 bits of a secure sum over {self.sites} "
                "sites: lower privacy.clip"
            )

    @property
    def bits(self) -> int:
        """f: bits after the point."""
        return 31 - self.sites.bit_length() - ceil(log2(RANGE + self.tail))

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

    def encode_update(
        self, sent: NDArray[np.float32], values: NDArray[np.float32], weight: int, clip: float
    ) -> tuple[Words, int]:
        """The same for values whose difference to those sent is no longer than `clip`, to the last bit; what is counted
        is of those sent, since a site's own values would tell of it."""
        words, outside = self.encode(sent, weight)
        scale = 2.0**self.bits * weight / WEIGHT_STEPS
        parts = [slice(start, start + CHUNK) for start in range(0, len(values), CHUNK)]
        norm = sqrt(sum(float(np.square(_change(sent[part], values[part])).sum()) for part in parts))
        factor = scale * (1.0 if norm <= clip else clip / norm)
        for part in parts:
            words[part] += np.trunc(_change(sent[part], values[part]) * factor).astype(np.int32).view(np.uint32)
        return words, outside

    def decode(self, total: Words) -> NDArray[np.int64]:
        """The true sum of what sites encoded."""
        return total.view(np.int32).astype(np.int64)

    def mean(self, total: Words, weights: Collection[int]) -> NDArray[np.float32]:
        scale = 2.0**self.bits * sum(weights) / WEIGHT_STEPS
        mean: NDArray[np.float32] = (total.view(np.int32) / scale).astype(np.float32)
        return mean

    def possible(self, total: Words, sites: int) -> bool:
        """Whether these sites' values can have that sum; what is left of a mask can't, but by chance."""
        largest = sites << (31 - self.sites.bit_length())
        found = total.view(np.int32)
        return not len(found) or bool(-largest <= int(found.min()) and int(found.max()) <= largest)

    def rounding(self, weights: Collection[int]) -> float:
        """How far a mean can be from that of the numbers before they were rounded, at most."""
        each = 1.5 if self.tail else 0.5
        return len(weights) * each * WEIGHT_STEPS / (2.0**self.bits * sum(weights))

    @property
    def most_clipped(self) -> int:
        """What a site counts at most, so that the sum of counts does not overflow either."""
        return (1 << (31 - self.sites.bit_length())) - 1


def _change(sent: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float64]:
    before, after = (np.clip(some.astype(np.float64), -RANGE, RANGE) for some in (sent, values))
    change: NDArray[np.float64] = after - before
    return change


def whole_weights(weights: Mapping[str, float]) -> dict[str, int]:
    """As fractions of the largest, in 10 bits: 1 to 1024."""
    largest = max(weights.values())
    return {site: max(1, round(WEIGHT_STEPS * value / largest)) for site, value in weights.items()}
