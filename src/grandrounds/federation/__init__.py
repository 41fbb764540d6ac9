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
from grandrounds.federation.payloads import Done, Parameters, Payload, Predictions, Scores

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Cohort",
    "Done",
    "Learner",
    "Parameters",
    "Payload",
    "Predictions",
    "Registration",
    "Reply",
    "Scores",
    "Server",
    "Site",
    "algorithm",
    "mean",
    "on_site",
]
