"""What a comparison can show: intervals and differences from the runs' outcomes, and what a reader must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

from grandrounds.metrics.outcomes import Outcomes, outcomes_of_run
from grandrounds.metrics.significance import Resampled, resample
from grandrounds.reports.tables import ComparisonRow
from grandrounds.reports.wording import listed

Arms = Mapping[str, Sequence[Path]]
"""The run folders of each arm, one a seed."""


@dataclass(frozen=True)
class Evidence:
    """The arms whose runs left outcomes: their scores on each draw, and the units that each run was tested on."""

    draws: Mapping[str, Resampled]
    units: Mapping[str, Sequence[set[str]]]

    @classmethod
    def of(cls, arms: Arms) -> Evidence:
        tested = {name: [_tested(folder) for folder in folders] for name, folders in arms.items()}
        whole = {name: runs for name, runs in tested.items() if all(runs)}
        units = {name: [{outcomes.digest for outcomes in run.values()} for run in runs] for name, runs in whole.items()}
        return cls(resample(whole), units)

    def differences(self) -> list[dict[str, float | str]]:
        """Of every two arms: the first one's score less the second one's."""
        return [
            {"arm": one, "over": other, **asdict(self.draws[one].over(self.draws[other]))}
            for one, other in combinations(self.draws, 2)
        ]


def with_evidence(rows: Sequence[ComparisonRow], evidence: Evidence, baseline: str) -> list[ComparisonRow]:
    """The rows with the interval of each arm's score and of its difference from the baseline's."""
    found, units = evidence.draws, evidence.units
    out = []
    for row in rows:
        if not row.trivial and row.name in found:
            own = found[row.name]
            interval = own.estimate()
            row = replace(row, low=interval.low, high=interval.high)
            if row.name != baseline and baseline in found:
                gap = own.over(found[baseline])
                row = replace(
                    row,
                    baseline=baseline,
                    difference=gap.value,
                    difference_low=gap.low,
                    difference_high=gap.high,
                    p=gap.p,
                    same_units=units[row.name] == units[baseline],
                )
        out.append(row)
    return out


def remarks(rows: Sequence[ComparisonRow], seeds: int) -> Iterator[str]:
    """A sentence each on what the intervals leave out, and on runs that say little yet."""
    measured = [row for row in rows if not row.trivial]
    if seeds == 1:
        yield (
            "There was one seed: the intervals are those of the test set alone, and another seed may change the order; "
            "take --seeds 3 or more."
        )
    elif any(row.low is not None for row in measured):
        yield f"The intervals are over {seeds} seeds and the units of the test set."
    rounds: dict[float, list[str]] = {}
    for row in measured:
        if row.rounds is not None:
            rounds.setdefault(row.rounds, []).append(row.name)
    if len(rounds) > 1:
        told = "; ".join(f"{listed(names)} for {number:g}" for number, names in sorted(rounds.items()))
        yield f"The arms ran for different numbers of rounds: {told}."
    for row in measured:
        if row.low is None:
            yield f"{row.name} has no interval: its runs left no outcomes; run it again in another folder."
        if row.same_units is False:
            yield f"{row.name} and {row.baseline} were not tested on the same units, so their draws are not paired."
    if short := [f"{row.name} ({row.best_is_last} of {row.runs})" for row in measured if row.best_is_last]:
        yield f"The last round was the best in runs of {listed(short)}: they may have been stopped too soon."


def _tested(folder: Path) -> dict[str, Outcomes]:
    return {record.learner: record.outcomes for record in outcomes_of_run(folder) if record.split == "test"}
