"""FedAvg as one writes it in an afternoon, the rival of the federation tax: the same model, batches, optimiser and
steps, and the sum of weights that no FedAvg can do without; no checks, no log, no way back.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.federation.seeds import derive, generator
from grandrounds.federation.training import make_optimizer
from grandrounds.simulation.prepare import Simulation
from grandrounds.tasks.batching import training_batches


class BareFedAvg:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.training = simulation, simulation.spec.training
        self.model = copy.deepcopy(simulation.model)
        self.sizes = {name: len(site.splits["train"]) for name, site in simulation.sites.items()}

    def prepare(self, round: int) -> None:
        """Not timed: the weights that the round starts from, and every batch of it, made beforehand."""
        self.round = round
        self.shared = {name: value.clone() for name, value in self.simulation.model.state_dict().items()}
        self.total = {name: torch.zeros_like(value) for name, value in self.shared.items()}
        self.batches = {name: self._batches(name) for name in self.sizes}

    def seed(self, site: str) -> None:
        """Not timed: the dropout that the federation draws, so that the results can be compared."""
        torch.manual_seed(derive(*self._purpose(site), "dropout", 1))

    def train(self, site: str) -> None:
        """Timed: a site's part of the round."""
        model = self.model
        model.load_state_dict(self.shared)
        optimizer = make_optimizer(self.training, model.named_parameters(), self.training.learning_rate)
        model.train()
        for batch in self.batches[site]:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), batch.labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), self.training.clip_norm)
            optimizer.step()
        share = self.sizes[site] / sum(self.sizes.values())
        for name, value in model.state_dict().items():
            self.total[name].add_(value, alpha=share)

    def average(self) -> None:
        """Timed: the end of the round."""
        self.model.load_state_dict(self.total)

    def distance(self, weights: Mapping[str, Tensor]) -> float:
        """The largest difference from these weights: next to nothing, if both did the same work."""
        return max(float((weights[name] - value).abs().max()) for name, value in self.total.items())

    def _batches(self, site: str) -> list[Any]:
        split, batches = self.simulation.sites[site].splits["train"], []
        for epoch in range(self.training.epochs):
            order = generator(*self._purpose(site), "order", 1, epoch)
            for rows in training_batches(split.lengths, self.training.batch_size, order):
                batches.append(split.features.batch(split.rows[rows]))
        return batches

    def _purpose(self, site: str) -> tuple[str | int, ...]:
        """How the federation names the random draws of a site's first exchange."""
        return (self.simulation.spec.seed, site, self.round, 1)
