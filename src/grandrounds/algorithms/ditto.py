"""Ditto (Li et al., ICML 2021, Algorithm 1): federated averaging, and at each site a model of its own held near it.

h_k(v) = F_k(v) + lambda/2 ||v - w||^2        w   the server's weights, which are learnt as by `fedavg`
                                              v_k the site's own, never sent
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from grandrounds import Cohort, Done, Parameters, Scores, Server, Site, algorithm, on_site
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.algorithms.fedprox import distance
from grandrounds.federation.privacy.settings import Unit
from grandrounds.tasks.task import Counts

OWN, OPTIMIZER = "own model", "own optimizer"


@algorithm("ditto")
class Ditto(FedAvg):
    personal: ClassVar[bool] = True

    pull: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """lambda: how strongly a site's own model is held near the server's; 0 is training alone."""

    def unaccounted(self, unit: Unit) -> str:
        return "" if unit == "site" else "sites train two models a round, and the budget is planned for one"

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        self._take(site, parameters)
        task, server = site.spec.task, parameters.values

        def held(model: nn.Module, batch: Any) -> Tensor:
            return task.loss(model, batch) + self.pull / 2 * distance(model, server)

        optimizer, keeps = site.optimizer(), site.training.optimizer_state == "keep"
        if keeps and site.recall(OPTIMIZER, optimizer):  # the other one's moments are of the server's model
            site.reset_rates(optimizer)
        site.train(loss=held, optimizer=optimizer)
        if keeps:
            site.keep(OPTIMIZER, optimizer)
        site.calibrate()
        site.keep(OWN, site.model)
        return super().train(site, parameters)

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        asked = everyone.ask(self.score, Parameters.of(server.model), split)
        return {reply.site.site: reply.payload.values for reply in asked}

    @on_site
    def score(self, site: Site, parameters: Parameters, split: str) -> Scores:
        self._take(site, parameters)
        return Scores(site.counts(split))

    def finish(self, server: Server, everyone: Cohort) -> None:
        everyone.ask(self.save, Parameters.of(server.model))

    @on_site
    def save(self, site: Site, parameters: Parameters) -> Done:
        self._take(site, parameters)
        site.save()
        return Done()

    def _take(self, site: Site, parameters: Parameters) -> None:
        """The site's own model, or the server's where the site was never asked."""
        if not site.recall(OWN, site.model):
            site.load(parameters)
            site.calibrate()
