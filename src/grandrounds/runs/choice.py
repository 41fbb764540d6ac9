"""The best of several settings, by validation data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grandrounds.errors import GrandRoundsError
from grandrounds.metrics.score import Headline, Score
from grandrounds.runs.provenance import placeless

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """The settings of one arm, best first, with their scores on validation data."""

    ranked: Sequence[tuple[Setting, dict[str, Any]]]
    test: dict[str, Any] | None
    """Of the best one."""
    edges: Sequence[str]
    """Settings whose best value is the smallest or the largest that was tried."""

    @classmethod
    def of(
        cls, axes: Mapping[str, Sequence[Any]], settings: Sequence[Setting], results: Sequence[dict[str, Any]]
    ) -> Choice:
        if any(result["validation"] is None for result in results):
            raise GrandRoundsError("a run has no score on validation data, as no site gave one: nothing can be chosen")
        pairs = sorted(zip(settings, results, strict=True), key=lambda pair: -headline(pair[1]["validation"]).better)
        best, result = pairs[0]
        numbers = {key: values for key, values in axes.items() if len(values) > 1 and all(map(_is_number, values))}
        edges = [key for key, values in numbers.items() if best[key] in (min(values), max(values))]
        return cls([(setting, found["validation"]) for setting, found in pairs], result["test"], edges)

    @property
    def best(self) -> Setting:
        return self.ranked[0][0]

    @property
    def word(self) -> str:
        return headline(self.ranked[0][1]).word

    def to_dict(self) -> dict[str, Any]:
        keys = [key for key in dict.fromkeys((self.word.lower(), "f1")) if key in self.ranked[0][1]]
        rows = [
            {"setting": _told(setting), **{f"validation_{key}": found[key] for key in keys}}
            for setting, found in self.ranked
        ]
        tested = {f"test_{key}": (self.test or {}).get(key) for key in keys}
        return {
            "criterion": self.word.lower(),
            "rows": rows,
            "best": _told(self.best),
            "at_edge": list(self.edges),
            **tested,
        }


def _told(setting: Setting) -> Setting:
    """Without paths of the machine: it goes into a file that may be passed on."""
    return {key: placeless(value) for key, value in setting.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def headline(score: dict[str, Any]) -> Headline:
    return Score.model_validate(score).headline


def value_of(score: dict[str, Any]) -> float:
    return headline(score).value or 0.0
