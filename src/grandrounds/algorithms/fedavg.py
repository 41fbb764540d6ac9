"""Federated averaging (McMahan et al., AISTATS 2017, Algorithm 1): sites train, the server averages by size."""

from __future__ import annotations

from typing import ClassVar

from grandrounds import Algorithm, Cohort, Parameters, Server, Site, algorithm, mean, on_site
from grandrounds.federation.privacy.settings import Unit


@algorithm("fedavg")
class FedAvg(Algorithm):
    trains_server: ClassVar[bool] = True
    server_epochs: ClassVar[int | None] = 0

    def unaccounted(self, unit: Unit) -> str:
        return ""

    def not_averaged(self) -> str:
        return ""

    def round(self, server: Server, cohort: Cohort) -> None:
        server.load(self.merge(server, cohort))
        if server.training.epochs:
            server.train("public")

    def merge(self, server: Server, cohort: Cohort) -> Parameters:
        return mean(cohort.ask(self.train, Parameters.of(server.model)))

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        site.train()
        return Parameters.of(site.model)
