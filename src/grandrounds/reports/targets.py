"""How soon an arm is nearly as good as centralised training: rounds, bytes and seconds to a share of its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from grandrounds.reports.runs import Run, read_run
from grandrounds.reports.tables import ComparisonRow

SHARE = 0.95


def with_targets(
    rows: Sequence[ComparisonRow], arms: Mapping[str, Sequence[Path]], share: float = SHARE
) -> list[ComparisonRow]:
    """The rows with what it took to reach the target: a share of the mean score that the pooled arm ends with, on the
    test set if each run was tested round by round, else on validation data. Without a pooled arm there is no target."""
    runs = {name: [read_run(folder) for folder in folders] for name, folders in arms.items()}
    every = [run for some in runs.values() for run in some]
    pooled = [run for row in rows if row.pooled for run in runs[row.name]]
    if not pooled or any(run.objective.direction == "lower" for run in every):
        return list(rows)
    split = "test" if all(run.points("test") for run in every) else "validation"
    final = [_final(run, split) for run in pooled]
    known = [value for value in final if value is not None]
    if len(known) < len(final):
        return list(rows)
    target = share * fmean(known)
    return [row if row.trivial else _reached(row, runs[row.name], split, target) for row in rows]


def to_target(run: Run, split: str, target: float) -> tuple[int, int, float] | None:
    """Rounds, bytes in both directions and seconds, up to the first evaluated round that is as good."""
    first = next((round for round, value in run.points(split) if value >= target), None)
    if first is None:
        return None
    until = [round for round in run.rounds if round.round <= first]
    moved = sum(round.bytes_up + round.bytes_down for round in until)
    return len(until), moved, sum(round.seconds for round in until)


def _final(run: Run, split: str) -> float | None:
    result = run.result
    score = None if result is None else result.test if split == "test" else result.validation
    return None if score is None else score.value(run.objective)


def _reached(row: ComparisonRow, runs: Sequence[Run], split: str, target: float) -> ComparisonRow:
    found = [reached for run in runs if (reached := to_target(run, split, target)) is not None]
    if not found:
        return replace(row, target=target, reached=0)
    rounds, moved, seconds = (fmean(values) for values in zip(*found, strict=True))
    return replace(
        row,
        target=target,
        reached=len(found),
        rounds_to_target=rounds,
        mb_to_target=moved / 1e6,
        seconds_to_target=seconds,
    )
