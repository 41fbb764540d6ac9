"""A map as a picture: colour is the advantage, and each cell says in figures and words what its colour does."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import log

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Patch, Rectangle

from grandrounds.maps.result import BETTER, NO_DIFFERENCE, CellResult, MapResult
from grandrounds.metrics.score import LOSS
from grandrounds.reports.svg import INK, OTHER, SERIES, svg_file
from grandrounds.reports.wording import interval, signed

COLOURS = LinearSegmentedColormap.from_list("advantage", [SERIES[1], "#ffffff", SERIES[0]])
UNSURE, HATCH = "#eeeeef", "////"
DARK = 0.62
"""From this share of the largest advantage on, ink is white."""


def picture(map: MapResult) -> str:
    """SVG, the same for the same map."""
    columns, rows = len(map.x.values), len(map.y.values)
    return svg_file(map.question, max(6.4, 2.1 + 1.45 * columns), 1.9 + 1.12 * rows, partial(_draw, map))


def _draw(map: MapResult, axes: Axes) -> None:
    largest = max((abs(cell.advantage) for cell in map.cells), default=0.0) or 1.0
    colour = ScalarMappable(Normalize(-largest, largest), COLOURS)
    for cell in map.cells:
        column, row = map.x.values.index(cell.x), map.y.values.index(cell.y)
        unsure = cell.verdict == NO_DIFFERENCE
        face = UNSURE if unsure else COLOURS(0.5 + cell.advantage / (2 * largest))
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=face, edgecolor="white", linewidth=2)
        axes.add_patch(box)
        if unsure:
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch=HATCH, edgecolor="#d4d4d8", linewidth=0)
            )
        _write(axes, cell, column, row, "white" if not unsure and abs(cell.advantage) > DARK * largest else INK)
    for point in map.points:
        _mark(axes, point.name, place(point.x, map.x.values), place(point.y, map.y.values))
    _frame(map, axes, colour)


def _write(axes: Axes, cell: CellResult, column: int, row: int, ink: str) -> None:
    """In the upper half; the lower one is for real corpora."""
    sign = {BETTER: "▲ better", NO_DIFFERENCE: "no difference shown"}.get(cell.verdict, "▼ worse")
    lines = (
        (0.36, signed(cell.advantage), 11, "bold"),
        (0.2, interval(cell.low, cell.high, signed), 7.5, "normal"),
        (0.07, sign, 7.5, "normal"),
        (-0.4, f"rival: {cell.best_rival}", 7, "normal"),
    )
    for up, word, size, weight in lines:
        axes.text(column, row + up, word, ha="center", va="center", fontsize=size, fontweight=weight, color=ink)


def _mark(axes: Axes, name: str, x: float, y: float) -> None:
    axes.plot([x], [y], marker="D", markersize=7, color=INK, markeredgecolor="white", markeredgewidth=1.2, zorder=3)
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": OTHER, "linewidth": 0.7}
    axes.annotate(
        name, (x, y), (0, -8), textcoords="offset points", ha="center", va="top", fontsize=7.5, bbox=box, zorder=3
    )


def _frame(map: MapResult, axes: Axes, colour: ScalarMappable) -> None:
    height = 15 * len(map.y.values)  # in characters
    for ticks, label, limits, axis, room in (
        (axes.set_xticks, axes.set_xlabel, axes.set_xlim, map.x, 72),
        (axes.set_yticks, axes.set_ylabel, axes.set_ylim, map.y, height),
    ):
        ticks(range(len(axis.values)), [f"{value:g}" for value in axis.values])
        label(textwrap.fill(axis.name, room))
        limits(-0.5, len(axis.values) - 0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(textwrap.fill(map.question, 68), loc="left", fontsize=11)
    word = (
        f"test {map.score} over that of the best rival"
        if map.score != LOSS.name
        else "loss of the best rival, less its own"
    )
    bar = axes.figure.colorbar(colour, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(textwrap.fill(f"{map.system}: {word}", height), fontsize=8.5)
    bar.outline.set_visible(False)
    unsure = Patch(facecolor=UNSURE, edgecolor="#b8b8be", hatch=HATCH, label=NO_DIFFERENCE)
    axes.figure.legend(handles=[unsure], loc="outside lower left", fontsize=8.5)


def place(value: float, values: Sequence[float]) -> float:
    """Where on the axis a value stands, between ticks that are one apart; beyond the ends, at the edge of the map."""
    scale = log if geometric(values) and value > 0 else float
    ends = sorted((values[0], values[-1]))
    if not ends[0] <= value <= ends[1]:
        nearer = 0 if abs(value - values[0]) < abs(value - values[-1]) else len(values) - 1
        return nearer + (-0.4 if nearer == 0 else 0.4)
    for i, (one, other) in enumerate(pairwise(values)):
        if min(one, other) <= value <= max(one, other):
            return i + (scale(value) - scale(one)) / (scale(other) - scale(one))
    return 0.0


def geometric(values: Sequence[float]) -> bool:
    """Whether ratios are nearer to equal than differences are, as in 5, 10, 20, 50."""
    if len(values) < 3 or min(values) <= 0:
        return False
    ratios, steps = [], []
    for one, other in pairwise(sorted(values)):
        ratios.append(other / one)
        steps.append(other - one)
    return max(ratios) / min(ratios) < max(steps) / min(steps)
