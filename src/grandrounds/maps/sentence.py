"""What a map comes to: "choose it when ...", by a rule from the verdicts alone.

The region is the rectangle of cells that holds more better cells than others, by as much as possible; of equal ones the
largest, then the one with the fewest bounds. How many of its cells are better is said, and how many elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

from grandrounds.maps.result import BETTER, WORSE, Axis, CellResult, MapResult, Verdict
from grandrounds.reports.wording import plural


class Region(NamedTuple):
    """The values that it spans, of each dial."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def holds(self, cell: CellResult) -> bool:
        return cell.x in self.x and cell.y in self.y


def sentence(map: MapResult) -> str:
    """One to three sentences."""
    reported = [_reported(map, BETTER, f"Choose {map.system}"), _reported(map, WORSE, "Avoid it")]
    if not any(cell.verdict == BETTER for cell in map.cells):
        reported[0] = f"No cell of this map shows an advantage of {map.system} over its best rival."
    unsure = sum(cell.verdict not in (BETTER, WORSE) for cell in map.cells)
    if unsure:
        reported.append(f"In {unsure} of {plural(len(map.cells), 'cell')} no difference can be shown.")
    return " ".join(part for part in reported if part)


def _reported(map: MapResult, verdict: Verdict, advice: str) -> str:
    """What is to be done where the verdict is this one; nothing where no cell has it."""
    total = sum(cell.verdict == verdict for cell in map.cells)
    if not total:
        return ""
    region = best_region(map, verdict)
    inside = [cell for cell in map.cells if region.holds(cell)]
    hits = sum(cell.verdict == verdict for cell in inside)
    bounds = [bound for bound in (_bound(map.x, region.x), _bound(map.y, region.y)) if bound]
    where = f" when {' and '.join(bounds)}" if bounds else " anywhere on this map"
    elsewhere = len(map.cells) - len(inside)
    rest = f", and {total - hits} of {elsewhere} elsewhere" if elsewhere else ""
    return f"{advice}{where}: it is {verdict} in {hits} of {plural(len(inside), 'cell')} there{rest}."


def best_region(map: MapResult, verdict: Verdict) -> Region:
    def worth(region: Region) -> tuple[int, int, int]:
        inside = [cell.verdict == verdict for cell in map.cells if region.holds(cell)]
        return 2 * sum(inside) - len(inside), len(inside), -_bounds(map.x, region.x) - _bounds(map.y, region.y)

    return max((Region(x, y) for x in _stretches(map.x.values) for y in _stretches(map.y.values)), key=worth)


def _stretches(values: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Values that follow one another."""
    for first, last in combinations_with_replacement(range(len(values)), 2):
        yield tuple(values[first : last + 1])


def _bounds(axis: Axis, values: Sequence[float]) -> int:
    """How many ends of the axis are not among the values."""
    return (axis.values[0] not in values) + (axis.values[-1] not in values)


def _bound(axis: Axis, values: Sequence[float]) -> str:
    """In words; nothing where the values are all that the axis has."""
    least, most = min(values), max(values)
    if len(values) == len(axis.values):
        return ""
    name, unit = _unit(axis.name)
    if least > min(axis.values) and most < max(axis.values):
        between = f"between {least:g} and {most:g}{unit}" if least < most else f"about {least:g}{unit}"
        return f"“{name}” is {between}"
    return (
        f"“{name}” is at least {least:g}{unit}" if most == max(axis.values) else f"“{name}” is at most {most:g}{unit}"
    )


def _unit(name: str) -> tuple[str, str]:
    """'share of true sentences (%)' -> 'share of true sentences', '%'"""
    found = re.fullmatch(r"(.+?) \((.+)\)", name)
    if found is None:
        return name, ""
    return found[1], found[2] if found[2] == "%" else f" {found[2]}"
