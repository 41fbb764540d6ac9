"""Results as Markdown: the templates of docs/results/tables.jinja, the rows of a comparison, and single values."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments.ledger import CLAIMS, CONFIRMED, REFUTED
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from grandrounds.reports.tables import ComparisonRow, words
from grandrounds.reports.wording import ABSENT, brief, interval, megabytes, score, signed

TEMPLATES = "tables.jinja"
NO_COMMIT = "commit not recorded"
Cell = Callable[[ComparisonRow], str]


class Renderer:
    """Renders from the JSON files of one folder of results."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.load = cache(self._load)
        self._env = Environment(loader=FileSystemLoader(results), undefined=StrictUndefined, autoescape=False)
        self._env.globals.update(load=self.load, one=one, where=where, zip=zip, claims=self.claims)
        self._env.filters.update(fixed=fixed, series=series, spread=spread, mean=fmean, thousands=thousands)

    def table(self, name: str) -> str:
        """The block of that name in the templates."""
        template = self._env.get_template(TEMPLATES)
        if name not in template.blocks:
            raise ValueError(f"{TEMPLATES} has no block '{name}'; add one, or correct the marker")
        return "".join(template.blocks[name](template.new_context())).strip()

    def value(self, expression: str) -> str:
        """What a Jinja expression comes to."""
        return self._env.from_string("{{ " + expression + " }}").render()

    def compare(self, file: str) -> str:
        """The rows of a compare.json, and what made them."""
        content = self.load(file)
        rows = [ComparisonRow(**row) for row in content["rows"]]
        return f"{compare_table(rows)}\n\n{made_by(content)}"

    def claims(self, paper: str = "") -> Mapping[str, int]:
        """How many claims the ledger has, of one paper or of all, and how many are decided."""
        given = tomllib.loads((self.results / Path(CLAIMS).name).read_text(encoding="utf-8"))["claim"]
        verdicts = Counter(claim["verdict"] for claim in given if paper in ("", claim["paper"]))
        return {"all": verdicts.total(), CONFIRMED: verdicts[CONFIRMED], REFUTED: verdicts[REFUTED]}

    def _load(self, file: str) -> Any:
        try:
            return json.loads((self.results / file).read_text(encoding="utf-8"))
        except OSError:
            raise ValueError(f"{file} is not in {self.results.name}/; run its command, or correct the marker") from None


def compare_table(rows: Sequence[ComparisonRow]) -> str:
    """Columns that no row has anything in are left out."""
    baseline = next((row.baseline for row in rows if row.baseline), "")
    loss = {"median": lambda row: score(row.judged_median), "spread": lambda row: score(row.judged_spread)}
    columns: dict[str, Cell] = {
        "corpus": lambda row: row.corpus or ABSENT,
        "partition": lambda row: row.partition or ABSENT,
        "arm": lambda row: f"{row.name} (trivial)" if row.trivial else f"`{row.name}`",
        "runs": lambda row: ABSENT if row.trivial else str(row.runs),
        words(rows): lambda row: score(row.judged_mean),
        "95% interval": lambda row: interval(row.low, row.high),
        **({} if any(row.low is not None for row in rows) else loss),
        f"less `{baseline}`": lambda row: signed(row.difference),
        "95% interval of that": lambda row: interval(row.difference_low, row.difference_high, signed),
        "steps": lambda row: brief(row.steps),
        "MB up": partial(_total, of="mb_up"),
        "MB down": partial(_total, of="mb_down"),
        "MB up, a site and round": partial(_total, of="mb_up_per_site_round"),
        "best round was the last": _last,
        "rounds to target": lambda row: fixed(row.rounds_to_target, 1),
        "MB to target": partial(_total, of="mb_to_target"),
        "seconds to target": lambda row: fixed(row.seconds_to_target, 0),
        "reached": lambda row: ABSENT if row.reached is None else f"{row.reached} of {row.runs}",
    }
    if any(row.mb_up is not None for row in rows):
        del columns["MB up, a site and round"]
    reported = {head: [cell(row) for row in rows] for head, cell in columns.items()}
    kept = {head: cells for head, cells in reported.items() if any(cell != ABSENT for cell in cells)}
    rule = ["---", *["---:"] * (len(kept) - 1)]
    lines = [list(kept), rule, *([cells[i] for cells in kept.values()] for i in range(len(rows)))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def made_by(content: Mapping[str, Any]) -> str:
    commit = content.get("commit")
    return f"`{content['command']}`, {f'commit {commit[:12]}' if commit else NO_COMMIT}."


def one(rows: Sequence[Mapping[str, Any]], **wanted: object) -> Mapping[str, Any]:
    """The only row that has these values."""
    found = where(rows, **wanted)
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows have {wanted}, not one")
    return found[0]


def where(rows: Sequence[Mapping[str, Any]], **wanted: object) -> list[Mapping[str, Any]]:
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    if not found:
        raise ValueError(f"no row has {wanted}")
    return found


def fixed(value: float | None, digits: int = 3) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def series(values: Sequence[float | None] | Mapping[str, float | None], digits: int = 3) -> str:
    """With commas between; of a mapping, such as from rounds, its values."""
    listed = values.values() if isinstance(values, Mapping) else values
    return ", ".join(fixed(value, digits) for value in listed)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean and sample standard deviation."""
    known = list(values)
    return f"{fmean(known):.{digits}f} ± {stdev(known):.{digits}f}"


def thousands(value: float) -> str:
    return f"{value:,.0f}"


def _total(row: ComparisonRow, of: str) -> str:
    value: float | None = getattr(row, of)
    return ABSENT if value is None else megabytes(value * 1e6)


def _last(row: ComparisonRow) -> str:
    return ABSENT if row.best_is_last is None or row.trivial else f"{row.best_is_last} of {row.runs}"
