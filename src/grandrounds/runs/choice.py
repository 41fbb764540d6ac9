"""The best of several settings, by validation data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grandrounds.errors import GrandRoundsError
from grandrounds.metrics.score import Objective, Score
from grandrounds.runs.provenance import placeless
from grandrounds.runs.results import Result

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """The settings of one arm, best first, with their scores on validation data."""

    objective: Objective
    ranked: Sequence[tuple[Setting, Score]]
    test: Score | None
    """Of the best one."""
    edges: Sequence[str]
    """Settings whose best value is the smallest or the largest that was tried."""

    @classmethod
    def of(cls, axes: Mapping[str, Sequence[Any]], settings: Sequence[Setting], results: Sequence[Result]) -> Choice:
        objective = results[0].objective
        found = [
            (setting, result.validation, result.test)
            for setting, result in zip(settings, results, strict=True)
            if result.validation is not None
        ]
        if len(found) < len(results):
            raise GrandRoundsError("a run has no score on validation data, as no site gave one: nothing can be chosen")
        found.sort(key=lambda one: objective.rank(one[1].value(objective)))
        best, _, test = found[0]
        numbers = {key: values for key, values in axes.items() if len(values) > 1 and all(map(_is_number, values))}
        edges = [key for key, values in numbers.items() if best[key] in (min(values), max(values))]
        return cls(objective, [(setting, score) for setting, score, _ in found], test, edges)

    @property
    def best(self) -> Setting:
        return self.ranked[0][0]

    def to_dict(self) -> dict[str, Any]:
        known = self.ranked[0][1].to_dict()
        keys = [key for key in dict.fromkeys((self.objective.key, "f1")) if key in known]
        rows = [
            {"setting": _portable(setting), **{f"validation_{key}": getattr(score, key) for key in keys}}
            for setting, score in self.ranked
        ]
        return {
            "criterion": self.objective.key,
            "rows": rows,
            "best": _portable(self.best),
            "at_edge": list(self.edges),
            **{f"test_{key}": getattr(self.test, key, None) for key in keys},
        }


def _portable(setting: Setting) -> Setting:
    """Without paths of the machine: it goes into a file that may be passed on."""
    return {key: placeless(value) for key, value in setting.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
