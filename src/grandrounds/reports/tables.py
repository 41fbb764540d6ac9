"""Results side by side: a row an algorithm, over its seeds, with the trivial baseline as a row of its own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean, median, stdev

from rich import box
from rich.table import Table
from rich.text import Text

from grandrounds.reports.runs import Result
from grandrounds.reports.wording import ABSENT, duration, megabytes, score


@dataclass(frozen=True)
class ComparisonRow:
    """Means over the runs that differ only in their seed."""

    name: str
    task: str
    runs: int
    f1_mean: float | None
    f1_median: float | None
    f1_spread: float | None
    """The sample standard deviation over seeds; None for one run."""
    precision: float | None
    recall: float | None
    mb_up_per_site_round: float | None
    seconds: float | None
    trivial: bool = False


HEAD = ("algorithm", "runs", "F1", "median", "spread", "precision", "recall", "MB up", "time")


def comparison_rows(results: Sequence[Result], names: Sequence[str] | None = None) -> list[ComparisonRow]:
    """Best mean F1 first, trivial baselines last; `names` tell apart what is not a mere repeat by seed."""
    groups: dict[tuple[str, str], list[Result]] = {}
    trivial: dict[tuple[str, str], list[float]] = {}
    for name, result in zip(names or [r.algorithm for r in results], results, strict=True):
        groups.setdefault((result.task, name), []).append(result)
        if result.test and result.test.baseline_f1 is not None:
            key = result.task, result.test.baseline or "trivial baseline"
            trivial.setdefault(key, []).append(result.test.baseline_f1)
    rows = [_measured(name, task, members) for (task, name), members in groups.items()]
    rows.sort(key=lambda row: (row.task, 1.0 if row.f1_mean is None else -row.f1_mean, row.name))
    return rows + [_trivial(name, task, scores) for (task, name), scores in sorted(trivial.items())]


def cells(row: ComparisonRow) -> tuple[str, ...]:
    """A row in words and figures, under HEAD."""
    return (
        f"{row.name} (trivial)" if row.trivial else row.name,
        ABSENT if row.trivial else str(row.runs),
        score(row.f1_mean),
        score(row.f1_median),
        score(row.f1_spread),
        score(row.precision),
        score(row.recall),
        ABSENT if row.mb_up_per_site_round is None else megabytes(row.mb_up_per_site_round * 1e6),
        duration(row.seconds),
    )


def rich_table(rows: Sequence[ComparisonRow], title: str | None = None) -> Table:
    """For the console: without precision and recall, so that a terminal of 80 columns cuts nothing."""
    tasks = {row.task for row in rows}
    table = Table(
        title=Text(title) if title else None,
        caption="MB up: per site and round; spread: over seeds",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    shown = [column for column, name in enumerate(HEAD) if name not in ("precision", "recall")]
    head = [HEAD[column] for column in shown]
    for column, name in enumerate(("task", *head) if len(tasks) > 1 else head):
        table.add_column(name, justify="left" if column < 1 + (len(tasks) > 1) else "right", no_wrap=True)
    for row in rows:
        told = [cells(row)[column] for column in shown]
        told = [row.task, *told] if len(tasks) > 1 else told
        table.add_row(*(Text(cell, style="dim" if row.trivial else "") for cell in told))
    return table


def to_csv(rows: Sequence[ComparisonRow]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(ComparisonRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


def to_json(rows: Sequence[ComparisonRow]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"


def _measured(name: str, task: str, results: Sequence[Result]) -> ComparisonRow:
    tests = [result.test for result in results if result.test]
    f1s = _known(test.f1 for test in tests)
    return ComparisonRow(
        name,
        task,
        len(results),
        _mean(f1s),
        median(f1s) if f1s else None,
        stdev(f1s) if len(f1s) > 1 else None,
        _mean(_known(test.precision for test in tests)),
        _mean(_known(test.recall for test in tests)),
        fmean(result.bytes_up_per_site_round for result in results) / 1e6,
        fmean(result.seconds for result in results),
    )


def _trivial(name: str, task: str, scores: Sequence[float]) -> ComparisonRow:
    """Over the runs' test sets, which are mostly one."""
    middle = median(scores)
    return ComparisonRow(name, task, 0, fmean(scores), middle, None, None, None, None, None, trivial=True)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
