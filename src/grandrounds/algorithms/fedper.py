"""FedPer (Arivazhagan et al., 2019): base layers are averaged, personalization layers stay at each site.

It shares what FedNER shares, but sites train for epochs between averages, where FedNER sends a gradient a mini-batch:
tens of exchanges instead of hundreds.
"""

from __future__ import annotations

from grandrounds import Cohort, Parameters, Server, Site, algorithm, mean, on_site
from grandrounds.algorithms.private_layers import PrivateLayers
from grandrounds.federation.privacy.settings import Unit


@algorithm("fedper")
class FedPer(PrivateLayers):
    def not_averaged(self) -> str:
        return ""

    def unaccounted(self, unit: Unit) -> str:
        return ""

    def round(self, server: Server, cohort: Cohort) -> None:
        server.load(mean(cohort.ask(self.train, self.shared_weights(server))))

    @on_site
    def train(self, site: Site, shared: Parameters) -> Parameters:
        self.put_together(site, shared)
        site.train()
        self.keep_private(site)
        return Parameters.of(site.model, self.shared)
