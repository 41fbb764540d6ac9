"""A score as tasks give it, and the objective that it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from grandrounds.metrics.ranking import DECIDED, TOP

DECIDED_ANSWERS = f"answers of at least {DECIDED:g}"
"""What precision, recall and F1 are of, where answers are ranked."""


@dataclass(frozen=True)
class Objective:
    """The figure that models are judged by. Every "which one is better" is decided here."""

    name: str
    direction: Literal["higher", "lower"] = "higher"
    """Which values are better."""
    unit: str = ""

    @property
    def key(self) -> str:
        """Its name in JSON."""
        return self.name.lower()

    def rank(self, value: float | None) -> float:
        """To sort by, the best first; no value comes last."""
        return inf if value is None else value if self.direction == "lower" else -value

    def better(self, value: float | None, than: float | None) -> bool:
        return self.rank(value) < self.rank(than)


F1 = Objective("F1")
AUC = Objective("AUC")
LOSS = Objective("loss", "lower", "nats a masked word piece")


class ClassScore(BaseModel):
    """Of one class; a task's further numbers (relaxed F1) are kept beside the usual ones."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float] = Field(init=False)

    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    support: int = 0


class Score(ClassScore):
    """Figures on one split; among the further numbers are P@100 and Ign-F1."""

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

    def value(self, objective: Objective) -> float | None:
        return self._figure(objective.key)

    def std(self, objective: Objective) -> float | None:
        """Over learners, where there are several."""
        return self._figure(f"{objective.key}_std")

    def trivial(self, objective: Objective) -> tuple[str, float] | None:
        """What it takes no model to reach, by the name of the answer that reaches it."""
        value = self._figure(f"baseline_{objective.key}")
        answer = "in any order" if objective == AUC else self.baseline or "baseline"
        return None if value is None else (answer, value)

    def to_dict(self) -> dict[str, Any]:
        """The figures that there are."""
        return self.model_dump(exclude_unset=True)

    @property
    def size(self) -> dict[str, int]:
        """What was scored, and how many of it."""
        things = {"example": self.n} if self.auc is None else {"pair": self.n, "fact": self.facts}
        if self.loss is not None:
            things = {"masked word piece": self.n}
        return {thing: number for thing, number in things.items() if number}

    @property
    def support_of_all(self) -> int:
        """Of all classes together, counted as theirs is: mentions or relations; without classes, examples."""
        return sum(row.support for row in self.per_class.values()) or self.n or 0

    def areas(self) -> dict[str, float]:
        """Of the curve of precision over recall, by their names; none where answers are not ranked."""
        named = {"AUC (all points)": self.auc, f"AUC (first {TOP:,})": self.auc_2000}
        return {name: value for name, value in named.items() if value is not None}

    def precisions(self) -> dict[str, float]:
        """Precision of the N most confident answers, by N."""
        found = {int(name[2:]): value for name, value in self._numbers().items() if _at(name)}
        return {f"P@{n}": found[n] for n in sorted(found)}

    def points(self) -> list[tuple[float, float]]:
        """(recall, precision) from the most confident answer on; none for a mean of several learners."""
        return list(zip(self.curve.get("recall", ()), self.curve.get("precision", ()), strict=False))

    def further(self) -> dict[str, float]:
        """Numbers without a place of their own."""
        return {name: value for name, value in self._numbers().items() if not _at(name)}

    def _figure(self, key: str) -> float | None:
        found: float | None = getattr(self, key, None)
        return found

    def _numbers(self) -> dict[str, float]:
        return self.__pydantic_extra__


def _at(name: str) -> bool:
    return name.startswith("p@") and name[2:].isdecimal()
