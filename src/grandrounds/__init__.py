"""Grand Rounds: federated information extraction from medical text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load", "run"]

if TYPE_CHECKING:
    from grandrounds.experiment.api import run
    from grandrounds.tasks.saved import load


def __getattr__(name: str) -> Any:
    """Imported when used: `import grandrounds` alone does not wait for torch."""
    if name == "load":
        from grandrounds.tasks.saved import load

        return load
    if name == "run":
        from grandrounds.experiment.api import run

        return run
    raise AttributeError(f"module 'grandrounds' has no attribute '{name}'")
