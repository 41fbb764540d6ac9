"""How the replies of a round become one value where a few sites may be wrong or hostile.

median, trimmed     Yin et al., ICML 2018, Definitions 1 and 2: entry by entry
krum                Blanchard et al., NeurIPS 2017, Multi-Krum: the mean of the replies nearest to their neighbours
norm_bound          Sun et al., 2019: the weighted mean of updates that are cut to a largest norm

Median, trimmed mean and Krum count every site alike: how many examples a site has is only its own word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor

Aggregate = Literal["mean", "norm_bound", "median", "trimmed", "krum"]


@dataclass(frozen=True)
class Rule:
    """The federation's rule, with its options."""

    aggregate: Aggregate = "mean"
    byzantine: float = 0.2
    """The share of replies that is assumed to be wrong."""
    krum_keep: int | None = None
    """How many replies Krum averages; None: all but the share above."""
    norm_bound: float | None = None
    """The largest norm of an update; None: norm_multiple times the median of the norms that came."""
    norm_multiple: float = 1.0
    outlier: float = 10.0
    """An update of more than so many times the median norm is an outlier."""

    def bound(self, norms: Sequence[float]) -> float:
        """What updates with these norms are cut to."""
        return self.norm_multiple * lower_median(norms) if self.norm_bound is None else self.norm_bound

    def outliers(self, norms: Mapping[str, float]) -> dict[str, float]:
        """Sites with an update far larger than the median, and how many times as large. Of one or two sites, nobody
        knows which is wrong."""
        middle = lower_median(list(norms.values()))
        if len(norms) < 3 or not middle:
            return {}
        return {site: norm / middle for site, norm in norms.items() if norm > self.outlier * middle}


@dataclass(frozen=True)
class Aggregation:
    """A rule, and who hears what norm each site's update had."""

    rule: Rule = field(default_factory=Rule)
    report: Callable[[Mapping[str, float]], None] = lambda norms: None
    noised: Callable[[Any, float], Any] = lambda mean, largest: mean
    """What a mean becomes in which one site has this share at most: it gets noise where whole sites are private."""


def left_out(share: float, replies: int) -> int:
    """Replies to leave out at each end; at least one or two stay."""
    return min(int(share * replies + 1e-9), (replies - 1) // 2)


def trimmed_mean(stacked: Tensor, share: float) -> Tensor:
    """[replies, ...] -> [...]: of each entry's values the share is left out at both ends; 0.5 is the median."""
    out = left_out(share, len(stacked))
    return stacked.sort(dim=0).values[out : len(stacked) - out].mean(dim=0)


def byzantine(share: float, replies: int) -> int:
    """f of Krum, which needs n >= 2 f + 3."""
    return max(0, min(int(share * replies + 1e-9), (replies - 3) // 2))


def krum_chosen(distances: Tensor, wrong: int, keep: int | None = None) -> list[int]:
    """Which replies to average, from their squared distances [n, n]: those whose n - f - 2 nearest neighbours are
    nearest. Equal scores go by the order of the sites."""
    replies = len(distances)
    apart = distances.clone().fill_diagonal_(inf).sort(dim=1).values
    scores = apart[:, : max(min(replies - wrong - 2, replies - 1), 0)].sum(dim=1)
    nearest = scores.argsort(stable=True)[: max(1, min(keep or replies - wrong, replies))]
    return sorted(nearest.tolist())


def squared_distances(stacked: Tensor) -> Tensor:
    """[replies, entries] -> [replies, replies]. Differences to the median stay small for replies that are near each
    other, however far away some other reply is; float64 holds the square of any float32."""
    x = stacked.double() - trimmed_mean(stacked.double(), 0.5)
    products = x @ x.T
    squares = products.diagonal()
    return (squares[:, None] + squares[None, :] - 2 * products).clamp(min=0)


def lower_median(values: Sequence[float]) -> float:
    """The middle value; of an even number the smaller of both, so that one of two can't raise it."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def shrink(norm: float, bound: float) -> float:
    """min(1, bound / norm)"""
    return 1.0 if norm <= bound else bound / norm


def norm_of(values: Iterable[Tensor]) -> float:
    """The Euclidean norm of all of them together, in float64: a float32's square may overflow."""
    total = sum(torch.linalg.vector_norm(value, dtype=torch.float64).item() ** 2 for value in values)
    return float(total**0.5)
