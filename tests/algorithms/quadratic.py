"""A federation small enough to solve by hand: site k's loss is a quadratic, whose minimum is its own.

    F_k(w) = 1/2 sum_i a_ki (w_i - b_ki)^2

The best weights for all are known, sum_k a_k b_k / sum_k a_k, and so is where FedAvg stops when sites take many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from grandrounds import Algorithm, Cohort, Parameters, Registration, Reply
from grandrounds.federation.state import TensorState, copy_into


class Weights(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))
        self.own = nn.Parameter(torch.zeros(size))
        """Of the loss, too, where a split makes it private: F_k(w + own)."""


class QuadraticSite:
    def __init__(self, name: str, a: np.ndarray, b: np.ndarray, steps: int, rate: float, private: bool) -> None:
        self.who, self.steps, self.rate, self.private = name, steps, rate, private
        self.a, self.b = torch.tensor(a, dtype=torch.float32), torch.tensor(b, dtype=torch.float32)
        self.model, self.kept = Weights(len(a)), dict[str, dict[str, Tensor]]()
        self.spec = SimpleNamespace(task=SimpleNamespace(loss=lambda model, batch: self.loss(model)))
        self.training = SimpleNamespace(
            optimizer="sgd", optimizer_state="renew", needs_end=False, clip_norm=0.0, weight_decay=0.0
        )

    def loss(self, model: Any) -> Tensor:
        w = model.w + model.own if self.private else model.w
        return (self.a * (w - self.b) ** 2).sum() / 2

    def load(self, parameters: Parameters) -> None:
        copy_into(self.model, parameters.values)

    def train(
        self,
        loss: Callable[[nn.Module, Any], Tensor] | None = None,
        before_step: Callable[[nn.Module], None] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Any:
        optimizer = optimizer or self.optimizer()
        for _ in range(self.steps):
            self.model.zero_grad()
            (self.loss(self.model) if loss is None else loss(self.model, None)).backward()
            if before_step is not None:
                before_step(self.model)
            optimizer.step()
        return SimpleNamespace(steps=self.steps)

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=self.rate)

    def calibrate(self) -> None: ...

    def keep(self, name: str, what: Any) -> None:
        self.kept[name] = {key: value.detach().clone() for key, value in what.state_dict().items()}

    def recall(self, name: str, into: Any) -> bool:
        if name in self.kept:
            into.load_state_dict(self.kept[name])
        return name in self.kept


class QuadraticServer:
    def __init__(self, size: int) -> None:
        self.model, self.state = Weights(size), dict[str, TensorState]()
        self.training, self.start = SimpleNamespace(epochs=0), None

    def load(self, parameters: Parameters) -> None:
        copy_into(self.model, parameters.values)

    def tensors(self, name: str) -> TensorState:
        return self.state.setdefault(name, TensorState())


class Quadratics(Cohort):
    """Sites with these curvatures and minima, [sites, weights]."""

    def __init__(
        self,
        a: Sequence[Any],
        b: Sequence[Any],
        steps: int = 10,
        rate: float = 0.1,
        private: bool = False,
        sizes: Sequence[int] | None = None,
    ) -> None:
        self.a, self.b = (np.array(values, dtype=np.float64) for values in (a, b))
        names = [f"site-{k}" for k in range(len(self.a))]
        self.members = {
            name: QuadraticSite(name, *values, steps, rate, private)
            for name, *values in zip(names, self.a, self.b, strict=True)
        }
        counts = sizes or [1] * len(names)
        self.sites = [Registration(name, {"examples": n}, (), {}) for name, n in zip(names, counts, strict=True)]
        self.registered = len(names)

    def ask_each(self, method: Any, messages: Mapping[str, tuple[Any, ...]]) -> Iterator[Reply[Any]]:
        for site in self.sites:
            weight = float(site.counts["examples"])
            yield Reply(site, method(self.members[site.site], *messages[site.site]), weight)

    @property
    def best(self) -> np.ndarray:
        """Of the mean of all losses."""
        found: np.ndarray = (self.a * self.b).sum(axis=0) / self.a.sum(axis=0)
        return found

    def path(self, algorithm: Algorithm, rounds: int, asked: Sequence[Sequence[int]] | None = None) -> list[np.ndarray]:
        """The server's weights after each round; `asked` are the sites of each, by default all."""
        server: Any = QuadraticServer(self.a.shape[1])
        algorithm.start(server, self)
        found, everyone = [], list(self.sites)
        for round in range(rounds):
            self.sites = everyone if asked is None else [everyone[k] for k in asked[round]]
            algorithm.round(server, self)
            found.append(server.model.w.detach().numpy().astype(np.float64).copy())
        return found
