"""FedNER (Ge et al., 2020, Algorithm 1): bottom layers learn together from gradients, top layers never leave a site.

|N_i| = |S_i| / sum_j |S_j| N   shares        Eq. 2   mean, by examples
theta_s <- the server's optimizer             theta_p <- each site's own, kept there

It is SGD across sites: a mini-batch at each of them, one gradient, one step. A round here is some of these iterations,
so that scores and checkpoints come after a while and not after every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import Tensor

from grandrounds import Cohort, Gradients, Parameters, Server, Site, algorithm, mean, on_site
from grandrounds.algorithms.private_layers import PrivateLayers
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.rows import Rows, sparse_gradients

SHARED, OPTIMIZER = "shared optimizer", "private optimizer"


@algorithm("fedner")
class FedNER(PrivateLayers):
    batch: Annotated[int, Field(ge=1)] = 64
    """N: sentences of an iteration, of all sites together; instead of training.batch_size."""
    iterations: Annotated[int, Field(ge=1)] = 50
    """Of a round."""

    def not_averaged(self) -> str:
        return ""

    def exchanges(self) -> int:
        return self.iterations

    def unaccounted(self, unit: Unit) -> str:
        return "rows of embeddings leave as they are, and with them the words of a batch" if unit == "site" else ""

    def start(self, server: Server, cohort: Cohort) -> None:
        server.state[SHARED] = server.optimizer(self.trained(server.model, shared=True))

    def round(self, server: Server, cohort: Cohort) -> None:
        optimizer = cast(torch.optim.Optimizer, server.state[SHARED])
        server.reset_rates(optimizer)
        sizes = shares({site.site: site.counts["examples"] for site in cohort.sites}, self.batch)
        tables: Mapping[str, tuple[Tensor, Rows]] = {}
        for iteration in range(self.iterations):
            shared = self.shared_weights(server)
            asked = {site: (shared, size) for site, size in sizes.items()}
            gradient = mean(cohort.ask_each(self.learn, asked))  # Eq. 2
            tables = {
                name: (rows.whole(server.model.get_parameter(name), tables.get(name)), rows)
                for name, rows in gradient.rows.items()
            }
            for name, parameter in server.model.named_parameters():
                parameter.grad = tables[name][0] if name in tables else gradient.values.get(name)
            server.step(optimizer, (iteration + 1) / self.iterations)

    @on_site
    def learn(self, site: Site, shared: Parameters, size: int) -> Gradients:
        """PlatformUpdate of Algorithm 1. Which mini-batch it is follows from the exchange, whoever asks."""
        iteration = site.exchange - 1
        self.put_together(site, shared)
        own = self.trained(site.model, shared=False)
        optimizer = site.optimizer(own) if own else None
        if optimizer is not None:
            site.recall(OPTIMIZER, optimizer)
            site.reset_rates(optimizer)
        with sparse_gradients(site.model, self.shared):
            site.backward(site.minibatch(size, (site.round - 1) * self.iterations + iteration, self.batch), 0)
        gradients = Gradients.of(site.model, self.shared)
        if optimizer is not None:
            site.step(optimizer, (iteration + 1) / self.iterations)
            site.keep(OPTIMIZER, optimizer)
            self.keep_private(site)
        return gradients


def shares(sizes: Mapping[str, int], batch: int) -> dict[str, int]:
    """N_i, rounded, and one at least."""
    total = sum(sizes.values())
    return {site: max(1, round(batch * size / total)) for site, size in sizes.items()}
