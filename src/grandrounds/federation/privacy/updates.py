"""Privacy of whole sites (McMahan et al., ICLR 2018): a site cuts its update to a largest norm, and the server adds
noise to the mean. So the guarantee is against whoever sees the model, not against the server.

    u_k min(1, C / |u_k|)  at the site        mean + N(0, (noise C max_k w_k / sum_k w_k)^2)  at the server
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import TypeVar

import numpy as np
from torch.nn import functional as F

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.payloads import Done, Packed, Parameters, Payload, PredictedLabels, Predictions
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.gradients import gaussian
from grandrounds.federation.robust import norm_of, shrink

P = TypeVar("P", bound=Payload)


def clipped(leaving: Payload | Packed, received: Sequence[object], clip: float) -> Payload | Packed:
    """What may leave of it. Votes need no clip: a site has one for each row."""
    if isinstance(leaving, PredictedLabels | Done):
        return leaving
    sent = next((part for part in received if isinstance(part, Parameters)), None)
    if not isinstance(leaving, Parameters) or sent is None or not leaving.values.keys() <= sent.values.keys():
        raise RefusalError("this site lets only updates of weights that it was sent leave, and votes (privacy)")
    starts = {name: sent.values[name] for name, value in leaving.values.items() if value.is_floating_point()}
    changes = {name: leaving.values[name].cpu().double() - start.cpu().double() for name, start in starts.items()}
    norm = norm_of(changes.values())
    factor = shrink(norm, clip) if isfinite(norm) else 0.0
    unchanged = {name: sent.values[name] for name in leaving.values}  # counters are as they were sent
    if factor == 1:
        return replace(leaving, values={**unchanged, **{name: leaving.values[name] for name in starts}})
    moved = {
        name: (start.cpu().double() + factor * changes[name]).to(start.dtype) if factor else start
        for name, start in starts.items()
    }
    return replace(leaving, values={**unchanged, **moved})


@dataclass(frozen=True)
class SiteNoise:
    """What the server adds to a mean of updates, or of votes."""

    noise: float
    clip: float
    rng: np.random.Generator

    def add(self, mean: P, largest: float) -> P:
        """`largest` is the largest share that one site has in the mean. Of votes only the winners stay (PATE: Papernot
        et al., ICLR 2018): a site changes each row's counts by one vote at most, all rows together by the root of their
        number."""
        if isinstance(mean, Done):
            return mean
        if isinstance(mean, Parameters) and not mean.rows:
            deviation = self.noise * self.clip * largest
            noisy = {
                name: value + gaussian(value, deviation, self.rng) if value.is_floating_point() else value
                for name, value in mean.values.items()
            }
            return replace(mean, values=noisy)
        if isinstance(mean, Predictions) and mean.form == "probabilities":
            rows, classes = mean.values.shape
            counts = mean.values + gaussian(mean.values, self.noise * sqrt(rows) * largest, self.rng)
            return replace(mean, values=F.one_hot(counts.argmax(dim=1), classes).to(mean.values.dtype))
        raise GrandRoundsError(f"there is no noise for a mean of '{mean.kind}' (privacy.unit = 'site')")
