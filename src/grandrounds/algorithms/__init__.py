"""One file an algorithm; importing this package registers them all."""

from grandrounds.algorithms import centralized, fedatt, fedavg, feded, fedprox, local_only, validation_only

__all__ = ["centralized", "fedatt", "fedavg", "feded", "fedprox", "local_only", "validation_only"]
