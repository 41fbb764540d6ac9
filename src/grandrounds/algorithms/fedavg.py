"""Federated averaging (McMahan et al., AISTATS 2017, Algorithm 1): sites train, the server averages by size."""

from __future__ import annotations

from grandrounds.federation import Algorithm, Cohort, Parameters, Server, Site, algorithm, mean, on_site


@algorithm("fedavg")
class FedAvg(Algorithm):
    def round(self, server: Server, cohort: Cohort) -> None:
        server.load(mean(cohort.ask(self.train, Parameters.of(server.model))))

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        site.train()
        return Parameters.of(site.model)
