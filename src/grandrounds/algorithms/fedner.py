"""FedNER (Ge et al., 2020, Algorithm 1): bottom layers learn together from gradients, top layers never leave a site.

|N_i| = |S_i| / sum_j |S_j| N   shares        Eq. 2   mean, by examples
theta_s <- the server's optimizer             theta_p <- each site's own, kept there

It is SGD across sites: a mini-batch at each of them, one gradient, one step. A round here is some of these iterations,
so that scores and checkpoints come after a while and not after every step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from grandrounds import (
    Algorithm,
    Cohort,
    Done,
    Gradients,
    Parameters,
    Scores,
    Server,
    Site,
    TensorState,
    algorithm,
    mean,
    on_site,
)
from grandrounds.errors import ConfigError, unknown
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.rows import Rows, sparse_gradients
from grandrounds.tasks.task import Counts

SHARED, PRIVATE, OPTIMIZER = "shared optimizer", "private layers", "private optimizer"


@algorithm("fedner")
class FedNER(Algorithm):
    personal: ClassVar[bool] = True
    private: tuple[str, ...] | str | None = None
    """Parts of the model that stay at a site, by module name, or the name of a split that all taggers have; by default
    the task's: of a tagger, LSTM and CRF."""
    batch: Annotated[int, Field(ge=1)] = 64
    """N: sentences of an iteration, of all sites together; instead of training.batch_size."""
    iterations: Annotated[int, Field(ge=1)] = 50
    """Of a round."""
    private_embeddings: bool | None = None
    """Whether embeddings stay at a site, too; by default where [privacy] is set. Noise would reach every row of a
    table, and rows without noise show which words a batch has."""

    def fitted(self, private: Mapping[str, Sequence[str]]) -> Algorithm:
        if isinstance(self.private, tuple):
            return self
        split = self.private or "default"
        if not private:
            raise ConfigError("algorithm.private: this task has no default; list the parts of its model to keep")
        if split not in private:
            known = unknown("split of this task's model", split, private)
            raise ConfigError(f"algorithm.private: {known}; or name parts in a list")
        return replace(self, private=tuple(private[split]))

    def protected(self) -> Algorithm:
        return self if self.private_embeddings is not None else replace(self, private_embeddings=True)

    def not_averaged(self) -> str:
        return ""

    def shared(self, name: str) -> bool:
        if self.private_embeddings and {"embeddings", "words"} & set(name.split(".")):
            return False
        return not any(name == part or name.startswith(f"{part}.") for part in self.private or ())

    def labels_may_differ(self) -> bool:
        return bool(self.private)

    def check(self, parameters: Collection[str]) -> None:
        modules = {name[:i] for name in parameters for i, sign in enumerate(f"{name}.") if sign == "."}
        for part in self.private or ():
            if part not in modules:
                tops = {module.partition(".")[0] for module in modules}
                raise ConfigError(f"algorithm.private: {unknown('part of the model', part, tops)}")
        if not any(self.shared(name) for name in parameters):
            raise ConfigError(
                "algorithm.private names all of the model"
                + (" but the embeddings, which privacy keeps at a site" if self.private_embeddings else "")
                + ": nothing is learnt together; take local_only"
            )

    def exchanges(self) -> int:
        return self.iterations

    def unaccounted(self, unit: Unit) -> str:
        return "rows of embeddings leave as they are, and with them the words of a batch" if unit == "site" else ""

    def start(self, server: Server, cohort: Cohort) -> None:
        server.state[SHARED] = server.optimizer(self._parameters(server.model, shared=True))

    def round(self, server: Server, cohort: Cohort) -> None:
        optimizer = cast(torch.optim.Optimizer, server.state[SHARED])
        server.reset_rates(optimizer)
        sizes = shares({site.site: site.counts["examples"] for site in cohort.sites}, self.batch)
        tables: Mapping[str, tuple[Tensor, Rows]] = {}
        for iteration in range(self.iterations):
            shared = self._shared(server)
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
        self._put_together(site, shared)
        own = list(self._parameters(site.model, shared=False))
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
            site.keep(PRIVATE, TensorState(**Parameters.of(site.model, self._private).values))
        return gradients

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        asked = everyone.ask(self.score, self._shared(server), split)
        return {reply.site.site: reply.payload.values for reply in asked}

    @on_site
    def score(self, site: Site, shared: Parameters, split: str) -> Scores:
        self._put_together(site, shared)
        return Scores(site.counts(split))

    def finish(self, server: Server, everyone: Cohort) -> None:
        everyone.ask(self.save, self._shared(server))

    @on_site
    def save(self, site: Site, shared: Parameters) -> Done:
        self._put_together(site, shared)
        site.save()
        return Done()

    def _put_together(self, site: Site, shared: Parameters) -> None:
        """The shared layers and the site's own; before its first step, those that it started with."""
        own = TensorState()
        site.recall(PRIVATE, own)
        site.load(replace(shared, values={**shared.values, **own}))

    def _shared(self, server: Server) -> Parameters:
        return Parameters.of(server.model, self.shared, server.start)

    def _private(self, name: str) -> bool:
        return not self.shared(name)

    def _parameters(self, model: nn.Module, shared: bool) -> list[nn.Parameter]:
        return [p for name, p in model.named_parameters() if self.shared(name) == shared and p.requires_grad]


def shares(sizes: Mapping[str, int], batch: int) -> dict[str, int]:
    """N_i, rounded, and one at least."""
    total = sum(sizes.values())
    return {site: max(1, round(batch * size / total)) for site, size in sizes.items()}
