"""The server's public set alone, without any site: what a third party could do by itself (FedED, section 4.5)."""

from __future__ import annotations

from grandrounds.federation import Algorithm, Cohort, Server, algorithm


@algorithm("validation_only")
class ValidationOnly(Algorithm):
    def shared(self, name: str) -> bool:
        return False

    def needs_public(self) -> bool:
        return True

    def round(self, server: Server, cohort: Cohort) -> None:
        server.train("public")
