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
    LabelCounts,
    Parameters,
    Payload,
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
    "Kept",
    "LabelCounts",
    "Learner",
    "Parameters",
    "Payload",
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
