"""Adaptive federated optimization (Reddi et al., ICLR 2021, Algorithm 2), and server momentum (Hsu et al., 2019).

The sites' mean change is a gradient for an optimizer at the server, which remembers earlier rounds:

Delta = sum_k n_k (x_k - x) / sum_k n_k          m <- beta1 m + (1 - beta1) Delta
adagrad   v <- v + Delta^2
adam      v <- beta2 v + (1 - beta2) Delta^2
yogi      v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)
all three x <- x + step m / (sqrt(v) + tau),  v = tau^2 at first
momentum  m <- beta1 m + Delta,               x <- x + step m        (FedAvgM)
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from grandrounds import Cohort, Parameters, Server, algorithm, mean
from grandrounds.algorithms.fedavg import FedAvg

FIRST, SECOND = "first moments", "second moments"
Rule = Literal["momentum", "adagrad", "adam", "yogi"]


@algorithm("fedopt")
class FedOpt(FedAvg):
    rule: Rule = "adam"
    """The server's optimizer: FedAvgM, FedAdagrad, FedAdam or FedYogi."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The server's learning rate, eta; by default 1 for momentum and 0.001 for the others, which move each weight by
    about as much in a round."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """How adaptive: the smaller, the more alike are the steps of all weights."""

    def merge(self, server: Server, cohort: Cohort) -> Parameters:
        merged = mean(cohort.ask(self.train, Parameters.of(server.model)))
        first, second = server.tensors(FIRST), server.tensors(SECOND)
        moved = {}
        for name, x in Parameters.of(server.model).values.items():
            change = merged.values[name].to(x.device) - x
            m = first.get(name, torch.zeros_like(x)).to(x.device)
            first[name] = self.beta1 * m + (change if self.rule == "momentum" else (1 - self.beta1) * change)
            if self.rule == "momentum":
                moved[name] = x + self._rate * first[name]
                continue
            v = second.get(name, torch.full_like(x, self.tau**2)).to(x.device)
            second[name] = squared(self.rule, v, change, self.beta2)
            moved[name] = x + self._rate * first[name] / (second[name].sqrt() + self.tau)
        return Parameters(moved)

    @property
    def _rate(self) -> float:
        return self.step or (1.0 if self.rule == "momentum" else 1e-3)


def squared(rule: Rule, v: Tensor, change: Tensor, beta2: float) -> Tensor:
    """The second moments after a change."""
    square = change**2
    if rule == "adagrad":
        return v + square
    if rule == "yogi":
        return v - (1 - beta2) * square * (v - square).sign()
    return beta2 * v + (1 - beta2) * square
