"""Federated averaging (McMahan et al., AISTATS 2017, Algorithm 1): sites train, the server averages by size."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from grandrounds.federation import Algorithm, Cohort, Parameters, Server, Site, algorithm, mean, on_site


@algorithm("fedavg")
class FedAvg(Algorithm):
    server_epochs: Annotated[int, Field(ge=0)] = 0
    """Epochs of the server on its public set's labels after each average; 0 in the paper."""

    def needs_public(self) -> bool:
        return self.server_epochs > 0

    def round(self, server: Server, cohort: Cohort) -> None:
        server.load(self.merge(server, cohort))
        if self.server_epochs:
            server.train("public", epochs=self.server_epochs)

    def merge(self, server: Server, cohort: Cohort) -> Parameters:
        return mean(cohort.ask(self.train, Parameters.of(server.model)))

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        site.train()
        return Parameters.of(site.model)
