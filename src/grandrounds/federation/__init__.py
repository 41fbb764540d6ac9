"""The federation: what algorithms see, what travels between server and sites, and where sites run."""

from __future__ import annotations

from grandrounds.federation.aggregate import mean
from grandrounds.federation.contract import (
    ALGORITHMS,
    Algorithm,
    Cohort,
    Registration,
    Reply,
    algorithm,
    on_site,
)
from grandrounds.federation.learner import Learner, Server, Site
from grandrounds.federation.payloads import (
    BagScores,
    Done,
    Gradients,
    LabelCounts,
    Parameters,
    Payload,
    PredictedLabels,
    Predictions,
    Scores,
    Selection,
)
from grandrounds.federation.state import Kept

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "BagScores",
    "Cohort",
    "Done",
    "Gradients",
    "Kept",
    "LabelCounts",
    "Learner",
    "Parameters",
    "Payload",
    "PredictedLabels",
    "Predictions",
    "Registration",
    "Reply",
    "Scores",
    "Selection",
    "Server",
    "Site",
    "algorithm",
    "mean",
    "on_site",
]
