"""Where a site's secrets come from: the system's randomness, or in a simulation the seed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from os import urandom

from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure.shamir import PRIME

Randomness = Callable[[Place, str, str], bytes]
"""32 bytes for a purpose of a site's in an attempt."""


def from_the_system(place: Place, site: str, purpose: str) -> bytes:
    """For real runs: nobody can repeat it."""
    return urandom(32)


def from_the_seed(seed: int) -> Randomness:
    """For simulations, which repeat to the bit and hide nothing from anybody."""

    def drawn(place: Place, site: str, purpose: str) -> bytes:
        return sha256(place.info("simulated", str(seed), site, purpose)).digest()

    return drawn


def below_the_prime(randomness: Randomness, place: Place, site: str, purpose: str) -> bytes:
    """A number that can be shared; that both draws are too large has a chance of 2^-496."""
    drawn = randomness(place, site, purpose)
    return drawn if int.from_bytes(drawn, "big") < PRIME else randomness(place, site, f"{purpose} again")
