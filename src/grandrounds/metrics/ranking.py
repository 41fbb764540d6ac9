"""Held-out evaluation of distant supervision (Mintz et al., 2009): all answers to bags and relations, best first.

Precision and recall after each answer give a curve; its area (trapezoids between the points, none added at recall 0),
the same of its first 2,000 points, and the precision of the first N answers are what papers print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOP = 2000
DECIDED = 0.5
"""From which score on an answer counts as given, in precision, recall and F1; a ranking has no such point."""


@dataclass(frozen=True)
class Curve:
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    @property
    def auc(self) -> float:
        return area(self.recall, self.precision)

    @property
    def auc_top(self) -> float:
        return area(self.recall[:TOP], self.precision[:TOP])

    def precision_at(self, n: int) -> float:
        """Of the first n answers; where there are fewer, of those."""
        return float(self.precision[min(n, len(self.precision)) - 1])


def ranking_curve(gold: NDArray[np.bool_], scores: NDArray[np.float32], missed: int = 0) -> Curve:
    """From [bags, relations]; `missed` are facts that no answer can be."""
    right = gold.ravel()[ranking_order(scores)].cumsum()
    facts = max(int(gold.sum()) + missed, 1)
    return Curve(right / np.arange(1, len(right) + 1), right / facts)


def ranking_order(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """The places of the answers, the most confident first. Equal scores come in a random order, always the same: in the
    order of the file, which often has related pairs first, a model that scores all alike would be above chance."""
    drawn = np.random.default_rng(0).permutation(scores.size)
    order: NDArray[np.int64] = drawn[np.argsort(-scores.ravel()[drawn], kind="stable")]
    return order


def area(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float(np.trapezoid(y, x)) if len(x) > 1 else 0.0


def thinned(curve: Curve, points: int = 300) -> dict[str, Sequence[float]]:
    """A curve for a picture: so many points, half of them evenly along the first 2,000 answers, which some papers
    draw alone, and half along the others that still raise recall."""
    last = int(np.searchsorted(curve.recall, curve.recall[-1])) + 1
    first = min(last, TOP)
    some = min(points, last) if last <= TOP else points // 2
    places = [np.linspace(0, first - 1, some), np.linspace(first - 1, last - 1, min(points, last) - some + 1)]
    chosen = np.unique(np.concatenate(places).astype(int))
    return {"recall": curve.recall[chosen].tolist(), "precision": curve.precision[chosen].tolist()}
