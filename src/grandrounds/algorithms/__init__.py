"""One file an algorithm; importing this package registers them all."""

from grandrounds.algorithms import (
    centralized,
    fedatt,
    fedavg,
    feded,
    fedlcc,
    fedprox,
    lazy_mil,
    local_only,
    moon,
    validation_only,
)

__all__ = [
    "centralized",
    "fedatt",
    "fedavg",
    "feded",
    "fedlcc",
    "fedprox",
    "lazy_mil",
    "local_only",
    "moon",
    "validation_only",
]
