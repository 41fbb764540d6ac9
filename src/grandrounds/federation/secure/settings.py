"""What the coordinator and all sites agree on about secure sums: it is part of the terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex

from grandrounds.errors import ConfigError
from grandrounds.federation.contract import Kinds, Registration
from grandrounds.federation.payloads import Gradients, Parameters, Payload, Predictions, Tensors
from grandrounds.federation.secure.fixed_point import FixedPoint, whole_weights
from grandrounds.federation.secure.noise import SharedNoise
from grandrounds.federation.shares import weights

AVERAGED: tuple[type[Payload], ...] = (Parameters, Gradients, Predictions, Tensors)
"""Kinds that a mean is made of: they leave a site masked."""
MASKED = "masked"
"""The phase in which the algorithm's method runs."""
LEAST_SITES = 2
"""Of one site, the sum is its upload."""


@dataclass(frozen=True)
class SecureSettings:
    weight_by: str
    largest_share: float
    share: float = 0.5
    """More than this share of the sites that began an attempt must be there at its end."""
    noise: SharedNoise | None = None
    """That the sites add together, where whole sites are private."""

    def threshold(self, sites: int) -> int:
        """How many shares open a secret, and how many sites a sum is of at least."""
        return max(int(self.share * sites + 1e-9) + 1, LEAST_SITES)

    def numbers(self, sites: int) -> FixedPoint:
        """How values are written in an attempt with so many sites."""
        return FixedPoint(sites, 0.0 if self.noise is None else self.noise.tail(self.threshold(sites)))

    def sentence(self, sites: int, simulated: bool) -> str:
        """What people hear of it before round 1."""
        keys = (
            "keys are derived from the seed, as a simulation repeats"
            if simulated
            else "keys come from the system's randomness, so masked bytes differ from run to run and the model does not"
        )
        return f"uploads are masked: the coordinator sees the mean of {self.threshold(sites)} to {sites} sites; {keys}"

    def weights(self, registered: Mapping[str, int]) -> dict[str, int]:
        """Each site computes all of them from what the sites signed, so the coordinator can't make one count alone."""
        sites = [Registration(site, {self.weight_by: value}, (), {}) for site, value in registered.items()]
        return whole_weights(weights(sites, self.weight_by, self.largest_share))


def masked_kinds(kinds: Kinds) -> bool:
    """Whether what a method gives leaves masked."""
    declared = kinds if isinstance(kinds, tuple) else (kinds,)
    averaged = [kind in AVERAGED for kind in declared]
    if any(averaged) and not all(averaged):
        names = ", ".join(kind.kind for kind in declared)
        raise ConfigError(f"federation.secure masks a reply wholly or not at all, and this one is of {names}")
    return all(averaged)


def fresh_attempt(round: int, exchange: int) -> str:
    """The name of an attempt between hosts."""
    return token_hex(8)


def repeatable_attempt(run: str, round: int, exchange: int) -> str:
    """The same in a simulation, whose runs repeat."""
    return sha256(f"{run} {round} {exchange}".encode()).hexdigest()[:16]
