"""A score as tasks give it, and the one figure that it is judged by."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from grandrounds.metrics.ranking import DECIDED, TOP

DECIDED_TOLD = f"answers of at least {DECIDED:g}"
"""What precision, recall and F1 are of, where answers are ranked."""


LOSS = "loss"


class ClassScore(BaseModel):
    model_config = ConfigDict(frozen=True)

    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    support: int = 0


class Headline(NamedTuple):
    """The loss of a language model, AUC where answers are ranked, else F1."""

    word: str
    value: float | None
    std: float | None
    """Over learners, where there are several."""
    trivial: float | None
    """What it takes no model to reach."""
    answer: str
    """How that is reached."""

    @property
    def better(self) -> float:
        """Higher for a better score, whichever it is; without one, lowest."""
        return -inf if self.value is None else -self.value if self.word == LOSS else self.value

    @property
    def key(self) -> str:
        """Its name in JSON."""
        return self.word.lower()


class Score(ClassScore):
    """Figures on one split; a task's further numbers (P@100, Ign-F1) are kept beside the usual ones."""

    model_config = ConfigDict(frozen=True, extra="allow")

    accuracy: float | None = None
    n: int | None = None
    baseline_f1: float | None = None
    baseline: str | None = None
    per_class: dict[str, ClassScore] = {}
    f1_std: float | None = None
    learners: dict[str, Score] = {}
    auc: float | None = None
    auc_2000: float | None = None
    auc_std: float | None = None
    baseline_auc: float | None = None
    facts: int | None = None
    loss: float | None = None
    """Nats a masked word piece, where that is what was learnt."""
    perplexity: float | None = None
    loss_std: float | None = None
    curve: dict[str, list[float]] = {}

    @property
    def headline(self) -> Headline:
        if self.loss is not None:
            return Headline(LOSS, self.loss, self.loss_std, None, "baseline")
        if self.auc is None:
            return Headline("F1", self.f1, self.f1_std, self.baseline_f1, self.baseline or "baseline")
        return Headline("AUC", self.auc, self.auc_std, self.baseline_auc, "in any order")

    @property
    def size(self) -> dict[str, int]:
        """What was scored, and how many of it."""
        things = {"example": self.n} if self.auc is None else {"pair": self.n, "fact": self.facts}
        if self.loss is not None:
            things = {"masked word piece": self.n}
        return {thing: number for thing, number in things.items() if number}

    def areas(self) -> dict[str, float]:
        """Of the curve of precision over recall, by their names; none where answers are not ranked."""
        named = {"AUC (all points)": self.auc, f"AUC (first {TOP:,})": self.auc_2000}
        return {name: value for name, value in named.items() if value is not None}

    def precisions(self) -> dict[str, float]:
        """Of the N surest answers, by N."""
        found = {int(name[2:]): value for name, value in self._numbers().items() if _at(name)}
        return {f"P@{n}": found[n] for n in sorted(found)}

    def points(self) -> list[tuple[float, float]]:
        """(recall, precision) from the surest answer on; none for a mean of several learners."""
        return list(zip(self.curve.get("recall", ()), self.curve.get("precision", ()), strict=False))

    def further(self) -> dict[str, float]:
        """Numbers without a place of their own."""
        return {name: value for name, value in self._numbers().items() if not _at(name)}

    def _numbers(self) -> dict[str, float]:
        return {
            name: float(value)
            for name, value in (self.model_extra or {}).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }


def _at(name: str) -> bool:
    return name.startswith("p@") and name[2:].isdecimal()
