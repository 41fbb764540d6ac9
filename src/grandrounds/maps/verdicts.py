"""A cell's verdict: the system against the best of its rivals.

Which rival is best, validation data decide; the advantage is measured on test data, with the interval of a paired
bootstrap over seeds and units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from grandrounds.errors import GrandRoundsError
from grandrounds.maps.declaration import Map
from grandrounds.maps.grid import Cell, validated
from grandrounds.maps.result import BETTER, NO_DIFFERENCE, WORSE, ArmScore, CellResult
from grandrounds.metrics.outcomes import Outcomes, outcomes_of_run
from grandrounds.metrics.score import Objective
from grandrounds.metrics.significance import Difference, Resampled, resample
from grandrounds.runs.results import Result, read_result
from grandrounds.simulation.sweep import Arm as Run

Tested = Mapping[str, Sequence[Mapping[str, Outcomes]]]
"""By arm, a run a seed: the outcomes of each of its models."""


def judge(map: Map, cell: Cell, runs: Sequence[Run]) -> CellResult:
    """From the finished runs of the cell."""
    tested = {name: [_tested(run) for run in members] for name, members in _by_arm(runs).items()}
    found = resample(tested)
    results = {name: [read_result(run.folder) for run in members] for name, members in _by_arm(runs).items()}
    arms = {name: arm_score(results[name], found[name]) for name in results}
    objective = results[map.arm.name][0].objective
    rival = min((rival.name for rival in map.rivals), key=lambda name: objective.rank(arms[name].validation))
    gap = advantage(found[map.arm.name], found[rival], objective)
    return CellResult(
        x=cell.x,
        y=cell.y,
        arms=arms,
        best_rival=rival,
        advantage=gap.value,
        low=gap.low,
        high=gap.high,
        p=gap.p,
        same_units=_units(tested[map.arm.name]) == _units(tested[rival]),
        verdict=(BETTER if gap.value > 0 else WORSE) if gap.shown else NO_DIFFERENCE,
        best_is_last=sum(arm.best_is_last for arm in arms.values()),
    )


def advantage(system: Resampled, rival: Resampled, objective: Objective) -> Difference:
    """Positive where the system is better."""
    return rival.over(system) if objective.direction == "lower" else system.over(rival)


def arm_score(results: Sequence[Result], found: Resampled) -> ArmScore:
    interval = found.estimate()
    return ArmScore(
        validation=fmean(validated(one) for one in results),
        test=interval.value,
        low=interval.low,
        high=interval.high,
        rounds=tuple(one.rounds for one in results),
        best_rounds=tuple(one.best_round or one.rounds for one in results),
        **{key: fmean(getattr(one, key) for one in results) for key in ("steps", "examples", "bytes_up", "bytes_down")},
    )


def _by_arm(runs: Sequence[Run]) -> dict[str, list[Run]]:
    grouped = dict[str, list[Run]]()
    for run in runs:
        grouped.setdefault(run.name, []).append(run)
    return grouped


def _tested(run: Run) -> dict[str, Outcomes]:
    found = {record.learner: record.outcomes for record in outcomes_of_run(run.folder) if record.split == "test"}
    if not found:
        raise GrandRoundsError(f"'{run.folder}' left no outcomes on test data; remove it and start again")
    return found


def _units(runs: Sequence[Mapping[str, Outcomes]]) -> list[set[str]]:
    return [{outcomes.digest for outcomes in run.values()} for run in runs]
