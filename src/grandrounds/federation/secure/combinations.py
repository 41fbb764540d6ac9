"""What goes together with secure aggregation, and why not where it does not."""

from __future__ import annotations

from dataclasses import dataclass

from grandrounds.federation.payloads import Compression
from grandrounds.federation.robust import Aggregate
from grandrounds.federation.secure.settings import LEAST_SITES


@dataclass(frozen=True)
class Combination:
    algorithm: str
    not_averaged: str = ""
    """What the algorithm says: why the server must see single replies; empty: all of them are averaged."""
    compression: Compression = "fp32"
    aggregate: Aggregate = "mean"
    sites: int = LEAST_SITES
    """That a round asks."""


def refusal(wanted: Combination) -> str:
    """Why it is refused, as a sentence for the author of the config; empty: it is allowed."""
    if wanted.not_averaged:
        return f"federation.secure hides single uploads, and '{wanted.algorithm}' is refused: {wanted.not_averaged}"
    if wanted.aggregate == "norm_bound":
        return (
            "federation.aggregate = 'norm_bound' needs the norm of each site's update, and under federation.secure "
            "nobody sees single updates: leave one of them out"
        )
    if wanted.aggregate != "mean":
        return (
            f"federation.aggregate = '{wanted.aggregate}' compares single updates, and under federation.secure nobody "
            "sees them: leave one of them out"
        )
    if wanted.compression != "fp32":
        return (
            f"federation.compression = '{wanted.compression}' has no effect under federation.secure: masked numbers "
            "have 32 bits; leave it out"
        )
    if wanted.sites < LEAST_SITES:
        return (
            f"federation.secure sums the uploads of {LEAST_SITES} sites or more, and a round asks {wanted.sites}: the "
            "sum of one would be its upload"
        )
    return ""
