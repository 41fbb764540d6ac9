"""Noise that sites share (Kairouz, Liu and Steinke, ICML 2021): each adds a part to its words before they are masked,
so that nobody sees a sum without noise.

A sum is of t sites or more (the threshold). Each part has the variance S^2 / (t - 1), so whatever sites stay, the parts
of all but one of them add up to the stated deviation S = noise clip, or more: a site that knows its own part gains
nothing by it. What is more than needed stays in the sum.

Parts are discrete Gaussians of whole numbers. Their sum differs from one discrete Gaussian, and that from a Gaussian
rounded at random (Peikert, CRYPTO 2010, Theorem 3.1), by less than 1e-18 over a hundred million numbers, if each has a
deviation of `LEAST` or more, and the sum a variance of `ROUNDING`^2 more than the Gaussian. Rounding is of what has
noise already. So epsilon is that of Gaussian noise with the stated deviation, as in the plain sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from grandrounds.federation.privacy.discrete import LEAST

ROUNDING = 2.0
TAIL = 12.0
"""Deviations for which words have room; a larger draw (in 10^32) wraps around, which harms the sum, not the promise."""


@dataclass(frozen=True)
class SharedNoise:
    noise: float
    """The deviation of the sum's noise, as a multiple of `clip`."""
    clip: float
    """The largest norm of a site's update."""

    def tail(self, threshold: int) -> float:
        """How far a site's part can move a value."""
        return TAIL * self.noise * self.clip / sqrt(threshold - 1)

    def part(self, bits: int, threshold: int) -> float:
        """The deviation of a site's part, in units of 2^-bits."""
        stated = self.noise * self.clip * 2.0**bits
        return max(sqrt((stated**2 + ROUNDING**2) / (threshold - 1)), LEAST)

    def excess(self, bits: int, threshold: int, stayed: int) -> float:
        """The deviation of the noise in a sum of so many sites, as a multiple of what is stated."""
        return self.part(bits, threshold) * sqrt(stayed) / (self.noise * self.clip * 2.0**bits)
