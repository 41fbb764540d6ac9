"""A comparison over several corpora and partitions: scores by cell, average ranks, and what it took to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich import box
from rich.table import Table
from rich.text import Text

from grandrounds.reports.markup import Html, join, page, table, tag
from grandrounds.reports.tables import ComparisonRow
from grandrounds.reports.targets import SHARE
from grandrounds.reports.wording import ABSENT, duration, interval, listed, megabytes, plural, score, signed

RANKED = "Average rank: by mean score within each cell, 1 for the best; ties share theirs."
REACHED = (
    f"To the target: rounds, MB in both directions and time on this machine until a run first has {SHARE:.0%} of the "
    "score of centralised training; means over the runs that got there."
)


@dataclass(frozen=True)
class Rank:
    """An arm over all cells."""

    name: str
    mean: float | None
    """None for an arm that is a bound, not a rival: all data in one place."""
    cells: int
    best: int
    """In how many cells no other had a better score."""


def cell_of(row: ComparisonRow) -> str:
    return " · ".join(part for part in (row.corpus, row.partition) if part)


def by_cell(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """Without trivial baselines."""
    found: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        if not row.trivial:
            found.setdefault(cell_of(row), []).append(row)
    return found


def average_ranks(rows: Sequence[ComparisonRow]) -> list[Rank]:
    """The best first."""
    ranks: dict[str, list[float]] = {row.name: [] for row in rows if not row.trivial}
    best = dict.fromkeys(ranks, 0)
    for some in by_cell(rows).values():
        rivals = [row for row in some if not row.pooled]
        for row in rivals:
            better = sum(other.rank < row.rank for other in rivals)
            equal = sum(other.rank == row.rank for other in rivals)
            ranks[row.name].append(better + (equal + 1) / 2)
            best[row.name] += not better
    made = [Rank(name, fmean(own) if own else None, len(own), best[name]) for name, own in ranks.items()]
    return sorted(made, key=lambda rank: (rank.mean is None, rank.mean or 0.0, rank.name))


def grid_table(rows: Sequence[ComparisonRow], ranks: Sequence[Rank]) -> Table:
    """For the console: an arm a row, a cell a column."""
    cells = by_cell(rows)
    made = Table(title=Text("Mean test scores"), caption=RANKED, box=box.SIMPLE_HEAD, pad_edge=False)
    for column, name in enumerate(("algorithm", "rank", *cells)):
        made.add_column(Text(name), justify="right" if column else "left", overflow="fold")
    for rank in ranks:
        own = [next((row.judged_mean for row in some if row.name == rank.name), None) for some in cells.values()]
        made.add_row(*map(Text, (rank.name, _rank(rank), *map(score, own))))
    return made


def target_table(rows: Sequence[ComparisonRow]) -> Table | None:
    """For the console: what each arm took to the target; None where there is none."""
    measured = [row for row in rows if row.target is not None]
    if not measured:
        return None
    title = f"To {SHARE:.0%} of centralised training's score"
    made = Table(title=Text(title), box=box.SIMPLE_HEAD, pad_edge=False)
    several = any(cell_of(row) for row in measured)
    for column, name in enumerate((*(["cell"] if several else []), "algorithm", "target", *TARGET)):
        made.add_column(name, justify="left" if column <= several else "right", overflow="fold")
    for row in measured:
        made.add_row(*map(Text, (*([cell_of(row)] if several else []), row.name, score(row.target), *_to_target(row))))
    return made


def grid_page(rows: Sequence[ComparisonRow], ranks: Sequence[Rank], reports: Mapping[str, str]) -> str:
    """All of it as one HTML page; `reports` are the pages of the cells."""
    cells = by_cell(rows)
    title = f"{listed([rank.name for rank in ranks], 5)}: {plural(len(cells), 'cell')}"
    links = join(tag("li", tag("a", name, href=place)) for name, place in reports.items())
    body = [
        tag("h1", title),
        tag("p", "Mean test scores with 95% intervals. " + RANKED, class_="sub"),
        _scores(cells, ranks),
        tag("h2", "Cell by cell"),
        _costs(rows),
        tag("p", REACHED, class_="soft") if any(row.target is not None for row in rows) else "",
        tag("h2", "The report of each cell"),
        tag("ul", links),
    ]
    return page("page.html", title, join(body), "page.css")


def _scores(cells: Mapping[str, Sequence[ComparisonRow]], ranks: Sequence[Rank]) -> Html:
    body = []
    for rank in ranks:
        own = [next((row for row in some if row.name == rank.name), None) for some in cells.values()]
        body.append([rank.name, _rank(rank), *(ABSENT if row is None else _with_interval(row) for row in own)])
    return table(["algorithm", "average rank", *cells], body)


def _costs(rows: Sequence[ComparisonRow]) -> Html:
    head = ["cell", "algorithm", "score", "95% interval", "difference", "95% interval of that", "MB", "time"]
    targets = any(row.target is not None for row in rows)
    body = []
    for row in rows:
        moved = None if row.mb_up is None or row.mb_down is None else (row.mb_up + row.mb_down) * 1e6
        body.append(
            [
                cell_of(row),
                f"{row.name} (trivial)" if row.trivial else row.name,
                score(row.judged_mean),
                interval(row.low, row.high),
                signed(row.difference),
                interval(row.difference_low, row.difference_high, signed),
                megabytes(moved),
                duration(row.seconds),
                *(_to_target(row) if targets else ()),
            ]
        )
    return table([*head, *(TARGET if targets else ())], body, 2)


TARGET = ("rounds to it", "MB to it", "time to it", "runs that reached it")


def _to_target(row: ComparisonRow) -> tuple[str, ...]:
    rounds = ABSENT if row.rounds_to_target is None else f"{row.rounds_to_target:.1f}"
    moved = None if row.mb_to_target is None else row.mb_to_target * 1e6
    who = ABSENT if row.reached is None else f"{row.reached} of {row.runs}"
    return rounds, megabytes(moved), duration(row.seconds_to_target), who


def _with_interval(row: ComparisonRow) -> str:
    return score(row.judged_mean) + ("" if row.low is None else f" ({interval(row.low, row.high)})")


def _rank(rank: Rank) -> str:
    return ABSENT if rank.mean is None else f"{rank.mean:.1f}"
