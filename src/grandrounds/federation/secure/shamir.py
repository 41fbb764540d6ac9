"""Shamir's secret sharing (CACM 1979): a secret is the value at 0 of a random polynomial of degree t - 1, a share its
value at another place. Any t shares give the secret; fewer say nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

PRIME = 2**256 - 189
"""The largest prime of 256 bits: a share has 32 bytes, as a key has. A secret must be below it."""


def split(secret: int, threshold: int, places: Sequence[int], draw: Callable[[int], int]) -> dict[int, int]:
    """A share for each place; `draw(i)` is the i-th coefficient, uniform below the prime."""
    if not 0 <= secret < PRIME or not 1 <= threshold <= len(places) or len({*places, 0}) != len(places) + 1:
        raise ValueError("a secret below the prime is shared between different places from 1 on, at least t of them")
    coefficients = [secret, *(draw(i) for i in range(1, threshold))]
    return {place: _value(coefficients, place) for place in places}


def combine(shares: Mapping[int, int]) -> int:
    """The secret of at least t shares by place: Lagrange's interpolation at 0."""
    secret = 0
    for place, share in shares.items():
        numerator, denominator = 1, 1
        for other in shares:
            if other != place:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - place) % PRIME
        secret += share * numerator * pow(denominator, -1, PRIME)
    return secret % PRIME


def _value(coefficients: Sequence[int], place: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % PRIME
    return value
