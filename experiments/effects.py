"""How large an effect is, with its 95% interval, read from a JSON of docs/results. Nothing is typed in by hand.

Where runs left outcomes, `grandrounds compare` has resampled seeds and test units together, and its difference and
interval are taken as they are. What it does not resample (P@N, F1 of a class, rounds to a target, a paper's table) is
compared seed by seed, with Student's t over the seeds' differences. The difference of two effects that were measured
apart has the interval of Zou and Donner (2008), which combines theirs as if they were independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, sqrt
from statistics import fmean, stdev
from typing import Any

from grandrounds.metrics.score import AUC, F1, LOSS, Objective, Score

T975 = (inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, 97.5%, by degrees of freedom; beyond ten the normal value would do, and ten's is kept."""
ROUNDING = sqrt(2 / 12)
"""The deviation of a difference of two whole numbers of rounds: seeds that agree by chance are not without error."""
Load = Callable[[str], Any]


@dataclass(frozen=True)
class Effect:
    value: float
    low: float
    high: float
    seeds: int
    last: Sequence[str] = ()
    """Arms whose best round was the last in more than half of their runs."""

    def less(self, other: Effect) -> Effect:
        value = self.value - other.value
        low = value - hypot(self.value - self.low, other.high - other.value)
        high = value + hypot(self.high - self.value, other.value - other.low)
        return Effect(value, low, high, min(self.seeds, other.seeds), (*self.last, *other.last))

    def times(self, factor: float) -> Effect:
        low, high = sorted((factor * self.low, factor * self.high))
        return replace(self, value=factor * self.value, low=low, high=high)


@dataclass(frozen=True)
class Part:
    """One effect of a claim, and on which side of which bar the claim says that it lies."""

    run: str
    """The JSON's name."""
    arm: str | Sequence[str] = ""
    """Of several, the one with the best mean score on validation data."""
    over: str = ""
    of: str = ""
    """Of each run, in place of the score: a path such as test.p@100."""
    over_of: str = ""
    """The path of the other arm, if it is another one."""
    count: str = ""
    """A field of the rows that is counted, not sampled, such as mb_up_per_site_round: it has no error."""
    target: float | None = None
    """In place of the score: the first round whose validation score reaches it."""
    row: str = ""
    column: str = ""
    over_row: str = ""
    over_column: str = ""
    """Cells of a reproduced table, a value a seed; without a second cell the value itself."""
    less: Part | None = None
    relative: bool = False
    """In percent of what the other arm scores."""
    side: str = "above"
    bar: float = 0.0
    label: str = ""

    @classmethod
    def of_dict(cls, content: Mapping[str, Any]) -> Part:
        less = content.get("less")
        return cls(**{**content, "less": cls.of_dict(less) if less else None})

    @property
    def runs(self) -> list[str]:
        return [self.run, *(self.less.runs if self.less else ())]

    def effect(self, load: Load) -> Effect:
        own = self._own(load(f"{self.run}.json"))
        return own.less(self.less.effect(load)) if self.less else own

    def holds(self, effect: Effect) -> bool | None:
        """Whether the interval lies wholly on the claimed side of the bar; None if it lies on both."""
        above, below = effect.low > self.bar, effect.high < self.bar
        if above or below:
            return above == (self.side == "above")
        return None

    def _own(self, content: Mapping[str, Any]) -> Effect:
        if self.row:
            return _over_seeds(*_cells(content, self))
        arm = self.arm if isinstance(self.arm, str) else _best(content, self.arm)
        last = tuple(name for name in (arm, self.over) if _stopped(content, name))
        if self.count:
            own, base = (float(_row(content, name)[self.count]) for name in (arm, self.over))
            exact = Effect(own - base, own - base, own - base, _row(content, arm)["runs"])
            return exact.times(100 / base) if self.relative else exact
        if self.of or self.target is not None:
            ours = self._by_seed(content, arm, self.of)
            theirs = self._by_seed(content, self.over, self.over_of or self.of)
            floor = ROUNDING if self.target is not None else 0.0
            return replace(_over_seeds(ours, theirs, floor), last=last)
        effect = replace(_difference(content, arm, self.over), last=last)
        return effect.times(100 / _mean(_row(content, self.over))) if self.relative else effect

    def _by_seed(self, content: Mapping[str, Any], arm: str, path: str) -> dict[int, float]:
        runs = [run for run in content["runs"] if run["name"] == arm]
        if self.target is None:
            return {run["seed"]: float(_at(run, path)) for run in runs}
        return {run["seed"]: _first_round(run, self.target) for run in runs}


def _difference(content: Mapping[str, Any], arm: str, other: str) -> Effect:
    seeds = min(_row(content, arm)["runs"], _row(content, other)["runs"])
    for found in content.get("differences", ()):
        if {found["arm"], found["over"]} == {arm, other}:
            effect = Effect(found["value"], found["low"], found["high"], seeds)
            return effect if found["arm"] == arm else effect.times(-1)
    raise ValueError(
        f"there is no difference of '{arm}' and '{other}'; write the JSON again with python -m experiments.differences"
    )


def _over_seeds(ours: Mapping[int, float], theirs: Mapping[int, float], floor: float = 0.0) -> Effect:
    """Mean and t interval of the differences of runs with the same seed, whose deviation is at least the floor."""
    gaps = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
    if len(gaps) < 2:
        raise ValueError("an interval over seeds needs two of them at least")
    half = T975[min(len(gaps) - 1, len(T975) - 1)] * max(stdev(gaps), floor) / sqrt(len(gaps))
    return Effect(fmean(gaps), fmean(gaps) - half, fmean(gaps) + half, len(gaps))


def _cells(content: Mapping[str, Any], part: Part) -> tuple[dict[int, float], dict[int, float]]:
    def runs(row: str, column: str) -> dict[int, float]:
        found = [one for one in content["rows"] if one["name"] == row and column in one["cells"]]
        if not found:
            raise ValueError(f"there is no cell '{column}' in a row '{row}'")
        return dict(enumerate(found[0]["cells"][column]["runs"]))

    ours = runs(part.row, part.column)
    if not (part.over_row or part.over_column):
        return ours, dict.fromkeys(ours, 0.0)
    return ours, runs(part.over_row or part.row, part.over_column or part.column)


def _best(content: Mapping[str, Any], arms: Sequence[str]) -> str:
    def rank(arm: str) -> float:
        objective = _objective(_row(content, arm))
        scores = [
            Score.model_validate(run["validation"]).value(objective) for run in content["runs"] if run["name"] == arm
        ]
        return fmean(map(objective.rank, scores))

    return min(arms, key=rank)


def _stopped(content: Mapping[str, Any], arm: str) -> bool:
    rows = [row for row in content["rows"] if row["name"] == arm]
    return any(row["best_is_last"] is not None and 2 * row["best_is_last"] > row["runs"] for row in rows)


def _first_round(run: Mapping[str, Any], target: float) -> float:
    """A target that is not reached counts as reached one round after the last one."""
    reached = [one["round"] for one in run["history"] if one["validation"] is not None and one["validation"] >= target]
    return float(min(reached, default=run["rounds"] + 1))


def _row(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for row in content["rows"]:
        if row["name"] == name:
            return dict(row)
    raise ValueError(f"there is no arm '{name}'; there are {', '.join(row['name'] for row in content['rows'])}")


def _objective(row: Mapping[str, Any]) -> Objective:
    return next(objective for objective in (LOSS, AUC, F1) if row.get(f"{objective.key}_mean") is not None)


def _mean(row: Mapping[str, Any]) -> float:
    return float(row[f"{_objective(row).key}_mean"])


def _at(run: Mapping[str, Any], path: str) -> Any:
    found: Any = run
    for key in path.split("."):
        if key not in found:
            raise ValueError(f"run '{run['name']}' has no '{path}'")
        found = found[key]
    return found
