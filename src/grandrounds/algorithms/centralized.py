"""Centralised training: one simulated site holds the data of all. The bound that federations are compared with."""

from __future__ import annotations

from typing import ClassVar

from grandrounds import algorithm
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.robust import Aggregate


@algorithm("centralized")
class Centralized(FedAvg):
    pooled: ClassVar[bool] = True

    def unaccounted(self, unit: Unit) -> str:
        return "there is one site only, and no other that could hide it" if unit == "site" else ""

    def not_averaged(self) -> str:
        return "it has one site only, and the sum of one is its upload"

    def not_robust(self, rule: Aggregate) -> str:
        return "it has one site only, and nobody to compare it with"
