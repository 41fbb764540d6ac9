"""Whether one arm is better than another, by a paired bootstrap over seeds and units (Efron and Tibshirani, 1993).

Each draw takes seeds with replacement and, for all of them, the same units with replacement: an arm is its runs, one a
seed, all tested on the same units, so both are random at once. Arms that were tested on the same units get the same
draws of them. The score is computed anew on each draw (micro-F1 from summed counts, AUC from the ranking with repeats,
the loss from summed nats), as the mean over seeds, and of models of sites as the mean over sites. With one seed the
interval is that of the test set alone: it says nothing about another training run. Where an arm's runs disagree on many
units, intervals are too wide rather than too narrow (Owen, 2007); with two or three seeds, seeds are underrated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grandrounds.metrics.outcomes import Outcomes
from grandrounds.metrics.ranking import area, ranking_order

Floats = NDArray[np.float64]
Weights = NDArray[np.int64]
"""[draws, units]: how often each unit was drawn."""
Run = Mapping[str, Outcomes]
"""By learner: the server, or each site that has a model of its own."""
DRAWS, AUC_DRAWS = 10_000, 1_000
LEVEL = 0.95
AT_ONCE = 4_000_000
"""Numbers that are drawn together."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95% interval, by percentiles."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Estimate):
    p: float
    """Two-sided: twice the share of draws on the rarer side of zero."""

    @property
    def shown(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Resampled:
    """The scores of an arm: measured, and on each draw."""

    value: float
    draws: Floats

    def estimate(self) -> Estimate:
        return Estimate(self.value, *_interval(self.draws))

    def over(self, other: Resampled) -> Difference:
        """How much more this arm scores than the other one."""
        differences = self.draws - other.draws
        rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        p = min(1.0, 2 * (rarer + 1) / (len(differences) + 1))
        return Difference(self.value - other.value, *_interval(differences), p)


def resample(arms: Mapping[str, Sequence[Run]], draws: int = DRAWS, seed: int = 0) -> dict[str, Resampled]:
    """Of each arm, whose runs are in the order of their seeds; the same draws for all arms."""
    scorers = {
        (name, i, learner): (outcomes.digest, len(outcomes), scorer(outcomes))
        for name, runs in arms.items()
        for i, run in enumerate(runs)
        for learner, outcomes in run.items()
    }
    if any(outcomes.kind == "auc" for runs in arms.values() for run in runs for outcomes in run.values()):
        draws = min(draws, AUC_DRAWS)
    found: dict[tuple[str, int, str], list[Floats]] = {key: [] for key in scorers}
    for digest, units in {(digest, units) for digest, units, _ in scorers.values()}:
        alike = {key: score for key, (own, count, score) in scorers.items() if (own, count) == (digest, units)}
        for weights in _weights(units, draws, [seed, int(digest[:15], 16)]):
            for key, score in alike.items():
                found[key].append(score(weights))
    return {name: _over_seeds(name, runs, found, draws, seed) for name, runs in arms.items()}


def _over_seeds(
    name: str,
    runs: Sequence[Run],
    found: Mapping[tuple[str, int, str], Sequence[Floats]],
    draws: int,
    seed: int,
) -> Resampled:
    measured = [
        float(np.mean([scorer(o)(np.ones((1, len(o)), dtype=np.int64))[0] for o in run.values()])) for run in runs
    ]
    scores = np.stack(
        [np.mean([np.concatenate(found[name, i, who]) for who in run], axis=0) for i, run in enumerate(runs)], axis=1
    )
    chosen = np.random.default_rng([seed, len(runs)]).integers(len(runs), size=(draws, len(runs)))
    return Resampled(float(np.mean(measured)), np.take_along_axis(scores, chosen, axis=1).mean(axis=1))


def scorer(outcomes: Outcomes) -> Callable[[Weights], Floats]:
    """From weights of units to the scores with them, [draws]."""
    columns = outcomes.columns
    if outcomes.kind == "auc":
        return _ranker(columns["gold"].astype(bool), columns["scores"], columns.get("missed"))
    names = ("nats", "masked") if outcomes.kind == "loss" else ("tp", "fp", "fn")
    counts = np.stack([columns[name] for name in names], axis=1).astype(np.float64)

    def score(weights: Weights) -> Floats:
        sums = (weights @ counts).T
        if outcomes.kind == "loss":
            return _ratio(sums[0], sums[1])
        tp, fp, fn = sums
        return _ratio(2 * tp, 2 * tp + fp + fn)

    return score


def _ranker(
    gold: NDArray[np.bool_], scores: NDArray[np.float32], missed: NDArray[np.int64] | None
) -> Callable[[Weights], Floats]:
    """The area under precision over recall, where a pair that is drawn twice has each of its answers twice."""
    unsaid = np.zeros(len(gold), dtype=np.int64) if missed is None else missed
    order = ranking_order(scores)
    right = gold.ravel()[order]
    last = int(np.flatnonzero(right)[-1]) + 1 if right.any() else 0  # what comes after adds no area
    right, pair = right[:last], order[:last] // gold.shape[1]

    def auc(weights: NDArray[np.int64]) -> float:
        found = np.repeat(right, weights[pair]).cumsum()
        facts = (found[-1] if len(found) else 0) + weights @ unsaid
        return area(found / facts, found / np.arange(1, len(found) + 1)) if facts else 0.0

    return lambda weights: np.array([auc(one) for one in weights])


def _weights(units: int, draws: int, seed: Sequence[int]) -> Iterator[Weights]:
    """Some draws at a time."""
    random, some = np.random.default_rng(seed), max(1, AT_ONCE // units)
    for first in range(0, draws, some):
        size = min(some, draws - first)
        drawn = random.integers(units, size=(size, units)) + units * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)


def _interval(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
