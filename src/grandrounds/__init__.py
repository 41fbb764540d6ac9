"""Grand Rounds: federated information extraction from medical text.

    import grandrounds

    result = grandrounds.run("experiments/synthetic.toml", out="runs/first")
    nlp = grandrounds.load("runs/ner/model", "runs/first/model")
    print(nlp("He was started on metoprolol for hypertension.").relations)

An algorithm of one's own is written with `Algorithm`, `algorithm` and `on_site`; see docs/how-to/algorithm.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from grandrounds.data.documents import Document as Document
    from grandrounds.data.formats import read as read
    from grandrounds.federation.aggregate import mean as mean
    from grandrounds.federation.contract import Algorithm as Algorithm
    from grandrounds.federation.contract import Cohort as Cohort
    from grandrounds.federation.contract import Registration as Registration
    from grandrounds.federation.contract import Reply as Reply
    from grandrounds.federation.contract import algorithm as algorithm
    from grandrounds.federation.contract import on_site as on_site
    from grandrounds.federation.learner import Learner as Learner
    from grandrounds.federation.learner import Server as Server
    from grandrounds.federation.learner import Site as Site
    from grandrounds.federation.payloads import Adapters as Adapters
    from grandrounds.federation.payloads import BagScores as BagScores
    from grandrounds.federation.payloads import Done as Done
    from grandrounds.federation.payloads import Gradients as Gradients
    from grandrounds.federation.payloads import LabelCounts as LabelCounts
    from grandrounds.federation.payloads import Parameters as Parameters
    from grandrounds.federation.payloads import Payload as Payload
    from grandrounds.federation.payloads import PredictedLabels as PredictedLabels
    from grandrounds.federation.payloads import Predictions as Predictions
    from grandrounds.federation.payloads import Scores as Scores
    from grandrounds.federation.payloads import Selection as Selection
    from grandrounds.federation.payloads import Tensors as Tensors
    from grandrounds.federation.state import TensorState as TensorState
    from grandrounds.pipeline.load import load as load
    from grandrounds.pipeline.load import save as save
    from grandrounds.reports.compare import compare as compare
    from grandrounds.simulation.run import run as run

PUBLIC = {
    "data.documents": ("Document",),
    "data.formats": ("read",),
    "simulation.run": ("run",),
    "reports.compare": ("compare",),
    "federation.aggregate": ("mean",),
    "federation.contract": ("Algorithm", "Cohort", "Registration", "Reply", "algorithm", "on_site"),
    "federation.learner": ("Learner", "Server", "Site"),
    "federation.payloads": (
        *("Adapters", "BagScores", "Done", "Gradients", "LabelCounts", "Parameters", "Payload"),
        *("PredictedLabels", "Predictions", "Scores", "Selection", "Tensors"),
    ),
    "federation.state": ("TensorState",),
    "pipeline.load": ("load", "save"),
}
"""The public names, by the module that each is imported from when it is first used: `import grandrounds` is quick."""
_PLACES = {name: f"grandrounds.{module}" for module, names in PUBLIC.items() for name in names}
__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'grandrounds' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
