"""Attentive aggregation (Ji et al., IJCNN 2019): per tensor, sites farther from the global weights weigh more.

    alpha_k = softmax_k(|| w - w_k ||)            w <- w - step * sum_k alpha_k (w - w_k)

The softmax runs online over the replies, so memory does not grow with the number of sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from grandrounds import Cohort, Parameters, Reply, Server, algorithm
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.robust import Aggregate


@algorithm("fedatt")
class FedAtt(FedAvg):
    step: float = 1.0
    """The paper's epsilon: 1.2 there, 1 in later work."""
    norm: Literal["frobenius", "spectral"] = "frobenius"
    """Spectral, for matrices, in the paper."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on the new weights; 0.001 in the paper, for privacy."""

    def unaccounted(self, unit: Unit) -> str:
        return "a site's weight depends on its update, so no share of it is known" if unit == "site" else ""

    def not_averaged(self) -> str:
        return "it weighs each site by the distance of its weights, so it must see them"

    def not_robust(self, rule: Aggregate) -> str:
        return "it weighs each site by the distance of its weights, and takes no mean"

    def merge(self, server: Server, cohort: Cohort) -> Parameters:
        weights = Parameters.of(server.model)
        pull = attentive_pull(weights.values, cohort.ask(self.train, weights), self.norm)
        rng = server.seeded("noise")
        moved = {
            name: weights.values[name] - self.step * towards + self._draw(towards, rng)
            for name, towards in pull.items()
        }
        return Parameters(moved)

    def _draw(self, like: Tensor, rng: torch.Generator) -> Tensor:
        """On the CPU, so that every device gets the same."""
        return (self.noise * torch.randn(like.shape, generator=rng)).to(like.device)


def attentive_pull(
    weights: Mapping[str, Tensor], replies: Iterable[Reply[Parameters]], norm: str = "frobenius"
) -> dict[str, Tensor]:
    """sum_k alpha_k (w - w_k) for each floating-point tensor, one reply at a time."""
    pull: dict[str, Tensor] = {}
    highest, mass = dict[str, Tensor](), dict[str, Tensor]()
    for reply in replies:
        for name, local in reply.payload.values.items():
            if not local.is_floating_point():
                continue  # counters are not weights
            difference = weights[name] - local.to(weights[name].device)
            distance = distance_of(difference, norm)
            if name not in pull:
                pull[name], highest[name], mass[name] = difference, distance, torch.ones(())
                continue
            top = torch.maximum(highest[name], distance)
            old, new = torch.exp(highest[name] - top), torch.exp(distance - top)
            pull[name].mul_(old).add_(difference * new)
            mass[name], highest[name] = mass[name] * old + new, top
    return {name: total / mass[name] for name, total in pull.items()}


def distance_of(difference: Tensor, norm: str) -> Tensor:
    if norm == "spectral" and difference.ndim == 2:
        spectral: Tensor = torch.linalg.matrix_norm(difference, ord=2)
        return spectral
    frobenius: Tensor = torch.linalg.vector_norm(difference)
    return frobenius
