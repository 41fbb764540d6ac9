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

from grandrounds.metrics.score import AUC, F1, LOSS, Objective, Score
from grandrounds.registry import ALGORITHMS
from grandrounds.reports.wording import ABSENT, brief, duration, interval, megabytes, probability, score, signed
from grandrounds.runs.results import Result


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
    """None if the task does not rank answers; the same holds for the next two."""
    auc_median: float | None = None
    auc_spread: float | None = None
    loss_mean: float | None = None
    """Only of a language model; the same holds for the next two."""
    loss_median: float | None = None
    loss_spread: float | None = None
    mb_down_per_site_round: float | None = None
    steps: float | None = None
    """Optimizer steps of a run, all sites and the server together; the next three are sums of the same kind."""
    examples: float | None = None
    mb_up: float | None = None
    mb_down: float | None = None
    low: float | None = None
    """`low` and `high` are the 95% interval of the score that arms are ranked by."""
    high: float | None = None
    baseline: str | None = None
    """The arm it is compared with: `difference` is its own score minus this arm's."""
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None
    same_units: bool | None = None
    """Whether it was tested on the same units as the baseline, so that draws are paired."""
    rounds: float | None = None
    best_is_last: int | None = None
    """Of how many runs the last round was the best one on validation data."""
    pooled: bool = False
    """All data in one place: a bound, not a rival."""
    target: float | None = None
    """A share of the score of centralised training, where that is an arm."""
    reached: int | None = None
    """How many runs reached it; the next three are means over these."""
    rounds_to_target: float | None = None
    mb_to_target: float | None = None
    """Up and down."""
    seconds_to_target: float | None = None
    corpus: str | None = None
    """Where several are compared; the same holds for `partition`."""
    partition: str | None = None

    @property
    def objective(self) -> Objective:
        """What it has a mean of, also where it was read from a file."""
        return LOSS if self.loss_mean is not None else F1 if self.auc_mean is None else AUC

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
    def rank(self) -> float:
        """Lower for a better mean."""
        return self.objective.rank(self.judged_mean)

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference leaves zero out."""
        low, high = self.difference_low, self.difference_high
        return low is not None and high is not None and not low <= 0 <= high

    def _judged(self, what: str) -> float | None:
        value: float | None = getattr(self, f"{self.objective.key}_{what}")
        return value


def comparison_rows(results: Sequence[Result], names: Sequence[str] | None = None) -> list[ComparisonRow]:
    """Best mean AUC, F1 or loss first, trivial baselines last; `names` tell apart what is not a mere repeat by seed."""
    groups: dict[tuple[str, str], list[Result]] = {}
    trivial: dict[tuple[str, str], list[Score]] = {}
    for name, result in zip(names or [r.algorithm for r in results], results, strict=True):
        groups.setdefault((result.task, name), []).append(result)
        if result.test and (bar := result.test.trivial(result.objective)):
            trivial.setdefault((result.task, bar[0]), []).append(result.test)
    rows = [_measured(name, task, members) for (task, name), members in groups.items()]
    rows.sort(key=lambda row: (row.task, row.rank, row.name))
    return rows + [_trivial(name, task, scores) for (task, name), scores in sorted(trivial.items())]


def words(rows: Sequence[ComparisonRow]) -> str:
    """What they are judged by."""
    measured = [row for row in rows if row.judged_mean is not None]
    return " or ".join(dict.fromkeys(row.objective.name for row in measured)) or "F1"


def columns(rows: Sequence[ComparisonRow]) -> dict[str, Callable[[ComparisonRow], str]]:
    """Their heads, and what a row has there, in words and figures; median and spread are of what it is judged by."""
    auc: dict[str, Callable[[ComparisonRow], str]] = {"AUC": lambda row: score(row.auc_mean)}
    f1: dict[str, Callable[[ComparisonRow], str]] = {"F1": lambda row: score(row.f1_mean)}
    loss: dict[str, Callable[[ComparisonRow], str]] = {LOSS.name: lambda row: score(row.loss_mean)}
    between: dict[str, Callable[[ComparisonRow], str]] = {"95% interval": lambda row: interval(row.low, row.high)}
    known = {"AUC": (auc, f1), "F1": (f1, {}), LOSS.name: (loss, {})}
    first, last = known.get(words(rows), (auc | f1 | (loss if LOSS.name in words(rows) else {}), {}))
    return {
        "algorithm": lambda row: f"{row.name} (trivial)" if row.trivial else row.name,
        "runs": lambda row: ABSENT if row.trivial else str(row.runs),
        **first,
        **(between if any(row.low is not None for row in rows) else {}),
        "median": lambda row: score(row.judged_median),
        "spread": lambda row: score(row.judged_spread),
        "precision": lambda row: score(row.precision),
        "recall": lambda row: score(row.recall),
        **last,
        "steps": lambda row: brief(row.steps),
        "examples": lambda row: brief(row.examples),
        "MB up": lambda row: ABSENT if row.mb_up is None else megabytes(row.mb_up * 1e6),
        "MB down": lambda row: ABSENT if row.mb_down is None else megabytes(row.mb_down * 1e6),
        "time": lambda row: duration(row.seconds),
    }


TOTALS = "steps, examples and MB: of a run, all sites and the server"


def rich_table(rows: Sequence[ComparisonRow], title: str | None = None) -> Table:
    """For the console: without what a terminal of 80 columns has no room for; there long names are folded."""
    tasks = {row.task for row in rows}
    table = Table(
        title=Text(title) if title else None,
        caption=TOTALS,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    left_out = {"runs", "median", "spread", "precision", "recall", "F1" if words(rows) == "AUC" else ""}
    shown = {name: cell for name, cell in columns(rows).items() if name not in left_out}
    for column, name in enumerate(("task", *shown) if len(tasks) > 1 else shown):
        named = column < 1 + (len(tasks) > 1)
        table.add_column(name, justify="left" if named else "right", no_wrap=not named, overflow="fold")
    for row in rows:
        cells = [*([row.task] if len(tasks) > 1 else []), *(cell(row) for cell in shown.values())]
        table.add_row(*(Text(cell, style="dim" if row.trivial else "") for cell in cells))
    return table


def differences(rows: Sequence[ComparisonRow]) -> Table | None:
    """For the console: each arm's score less the baseline's; None where there is nothing to compare."""
    title, cells = difference_rows(rows)
    if not cells:
        return None
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for column, name in enumerate(DIFFERENCE):
        named = column in (0, 4)
        table.add_column(name, justify="left" if named else "right", no_wrap=not named, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


DIFFERENCE = ("algorithm", "difference", "95% interval", "p", "")


def difference_rows(rows: Sequence[ComparisonRow]) -> tuple[str, list[list[str]]]:
    """A title, and under the heads of `DIFFERENCE` a row for each arm that the baseline was compared with."""
    compared = [row for row in rows if row.difference is not None]
    cells = [
        [
            row.name,
            signed(row.difference),
            interval(row.difference_low, row.difference_high, signed),
            probability(row.p),
            "" if row.differs else NO_DIFFERENCE,
        ]
        for row in compared
    ]
    return (f"{words(compared)} minus that of {compared[0].baseline}" if compared else ""), cells


NO_DIFFERENCE = "no difference can be shown"


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
        mb_down_per_site_round=fmean(result.bytes_down_per_site_round for result in results) / 1e6,
        steps=_mean(_known(result.steps for result in results)),
        examples=_mean(_known(result.examples for result in results)),
        mb_up=_megabytes(result.bytes_up for result in results),
        mb_down=_megabytes(result.bytes_down for result in results),
        rounds=fmean(result.rounds for result in results),
        best_is_last=sum(result.best_round == result.rounds for result in results),
        pooled=getattr(ALGORITHMS.get(results[0].algorithm), "pooled", False),
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


def _megabytes(numbers: Iterable[int | None]) -> float | None:
    known = _known(numbers)
    return fmean(known) / 1e6 if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
