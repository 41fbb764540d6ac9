"""The server's public set alone, without any site: what a third party could do by itself (FedED, section 4.5)."""

from __future__ import annotations

from typing import ClassVar

from grandrounds import Algorithm, Cohort, Server, algorithm
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.robust import Aggregate


@algorithm("validation_only")
class ValidationOnly(Algorithm):
    trains_server: ClassVar[bool] = True

    def shared(self, name: str) -> bool:
        return False

    def unaccounted(self, unit: Unit) -> str:
        return "no site is asked for anything, so there is nothing to hide"

    def not_averaged(self) -> str:
        return "no site is asked for anything, so there is nothing to mask"

    def not_robust(self, rule: Aggregate) -> str:
        return "no site is asked for anything, so there is nothing to compare"

    def round(self, server: Server, cohort: Cohort) -> None:
        server.train("public")
