"""Results side by side: a row an algorithm, over its seeds, with the trivial baseline as a row of its own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean, median, stdev

from rich import box
from rich.table import Table
from rich.text import Text

from grandrounds.metrics.score import LOSS, Headline, Score
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
    auc_mean: float | None = None
    """None where answers are not ranked; so for the next two."""
    auc_median: float | None = None
    auc_spread: float | None = None
    loss_mean: float | None = None
    """Of a language model; so for the next two."""
    loss_median: float | None = None
    loss_spread: float | None = None

    @property
    def judged_by(self) -> str:
        return LOSS if self.loss_mean is not None else "F1" if self.auc_mean is None else "AUC"

    @property
    def judged_mean(self) -> float | None:
        return self._judged("mean")

    @property
    def judged_median(self) -> float | None:
        return self._judged("median")

    @property
    def judged_spread(self) -> float | None:
        return self._judged("spread")

    @property
    def better(self) -> float:
        """Higher for a better mean; without one, lowest."""
        return Headline(self.judged_by, self.judged_mean, None, None, "").better

    def _judged(self, what: str) -> float | None:
        value: float | None = getattr(self, f"{self.judged_by.lower()}_{what}")
        return value


def comparison_rows(results: Sequence[Result], names: Sequence[str] | None = None) -> list[ComparisonRow]:
    """Best mean AUC, F1 or loss first, trivial baselines last; `names` tell apart what is not a mere repeat by seed."""
    groups: dict[tuple[str, str], list[Result]] = {}
    trivial: dict[tuple[str, str], list[Score]] = {}
    for name, result in zip(names or [r.algorithm for r in results], results, strict=True):
        groups.setdefault((result.task, name), []).append(result)
        if result.test and result.test.headline.trivial is not None:
            trivial.setdefault((result.task, result.test.headline.answer), []).append(result.test)
    rows = [_measured(name, task, members) for (task, name), members in groups.items()]
    rows.sort(key=lambda row: (row.task, -row.better, row.name))
    return rows + [_trivial(name, task, scores) for (task, name), scores in sorted(trivial.items())]


def words(rows: Sequence[ComparisonRow]) -> str:
    """What they are judged by."""
    measured = [row for row in rows if row.judged_mean is not None]
    return " or ".join(dict.fromkeys(row.judged_by for row in measured)) or "F1"


def columns(rows: Sequence[ComparisonRow]) -> dict[str, Callable[[ComparisonRow], str]]:
    """Their heads, and what a row has there, in words and figures; median and spread are of what it is judged by."""
    auc: dict[str, Callable[[ComparisonRow], str]] = {"AUC": lambda row: score(row.auc_mean)}
    f1: dict[str, Callable[[ComparisonRow], str]] = {"F1": lambda row: score(row.f1_mean)}
    loss: dict[str, Callable[[ComparisonRow], str]] = {LOSS: lambda row: score(row.loss_mean)}
    known = {"AUC": (auc, f1), "F1": (f1, {}), LOSS: (loss, {})}
    first, last = known.get(words(rows), (auc | f1 | (loss if LOSS in words(rows) else {}), {}))
    return {
        "algorithm": lambda row: f"{row.name} (trivial)" if row.trivial else row.name,
        "runs": lambda row: ABSENT if row.trivial else str(row.runs),
        **first,
        "median": lambda row: score(row.judged_median),
        "spread": lambda row: score(row.judged_spread),
        "precision": lambda row: score(row.precision),
        "recall": lambda row: score(row.recall),
        **last,
        "MB up": lambda row: ABSENT if row.mb_up_per_site_round is None else megabytes(row.mb_up_per_site_round * 1e6),
        "time": lambda row: duration(row.seconds),
    }


def rich_table(rows: Sequence[ComparisonRow], title: str | None = None) -> Table:
    """For the console: without precision and recall, and F1 where all have an AUC, so that a terminal of 80 columns
    cuts nothing."""
    tasks = {row.task for row in rows}
    table = Table(
        title=Text(title) if title else None,
        caption="MB up: per site and round; spread: over seeds",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    left_out = {"precision", "recall", "F1" if words(rows) == "AUC" else ""}
    shown = {name: cell for name, cell in columns(rows).items() if name not in left_out}
    for column, name in enumerate(("task", *shown) if len(tasks) > 1 else shown):
        table.add_column(name, justify="left" if column < 1 + (len(tasks) > 1) else "right", no_wrap=True)
    for row in rows:
        told = [cell(row) for cell in shown.values()]
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
    return ComparisonRow(
        name,
        task,
        len(results),
        *_over_seeds(test.f1 for test in tests),
        _mean(_known(test.precision for test in tests)),
        _mean(_known(test.recall for test in tests)),
        fmean(result.bytes_up_per_site_round for result in results) / 1e6,
        fmean(result.seconds for result in results),
        False,
        *_over_seeds(test.auc for test in tests),
        *_over_seeds(test.loss for test in tests),
    )


def _trivial(name: str, task: str, tests: Sequence[Score]) -> ComparisonRow:
    """Over the runs' test sets, which are mostly one."""
    f1, f1_median, _ = _over_seeds(test.baseline_f1 for test in tests)
    auc, auc_median, _ = _over_seeds(test.baseline_auc for test in tests)
    return ComparisonRow(name, task, 0, f1, f1_median, *(None,) * 5, True, auc, auc_median)


def _over_seeds(values: Iterable[float | None]) -> tuple[float | None, float | None, float | None]:
    """Mean, median and spread of those that are known."""
    known = _known(values)
    return _mean(known), median(known) if known else None, stdev(known) if len(known) > 1 else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
