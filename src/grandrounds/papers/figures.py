"""Figures of papers, in the look of our reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from grandrounds.reports.plots import Curve, draw_by_round, draw_pr
from grandrounds.reports.svg import OTHER, SERIES, name_rows, svg
from grandrounds.reports.wording import plural


def rounds_needed(
    title: str, label: str, settings: Sequence[float], curves: Mapping[str, Sequence[float | None]], limit: int
) -> str:
    """Rounds to a target by a setting, a curve a method; what did not reach it is a hollow mark at the limit."""

    def draw(axes: Axes) -> None:
        for (name, rounds), colour in zip(curves.items(), SERIES, strict=False):
            reached = [(x, y) for x, y in zip(settings, rounds, strict=True) if y is not None]
            axes.plot([x for x, _ in reached], [y for _, y in reached], "o-", color=colour, label=name)
            missed = [x for x, y in zip(settings, rounds, strict=True) if y is None]
            axes.plot(missed, [limit] * len(missed), "^", ms=8, mfc="none", mec=colour, mew=1.6)
        if any(None in rounds for rounds in curves.values()):
            axes.plot([], [], "^", ms=8, mfc="none", mec=OTHER, mew=1.6, label=f"not within {plural(limit, 'round')}")
        axes.set_xlabel(label)
        axes.set_ylabel("rounds to the target")
        axes.set_xticks(list(settings))
        axes.set_ylim(0, limit * 1.06)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")

    return svg(title, 3.2, draw)


def by_round(
    title: str, panels: Mapping[str, Sequence[Curve]], baselines: Mapping[str, float], score: str = "F1"
) -> str:
    """A panel a corpus or a method; `baselines` has its trivial answer's score, if it has one."""

    def draw(name: str, axes: Axes) -> None:
        draw_by_round(panels[name], {"one answer": baselines[name]} if name in baselines else {}, axes, score)
        axes.set_title(name, loc="left", fontsize=10.5)

    return svg(title, 3.4 * len(panels), *(partial(draw, name) for name in panels))


Points = Sequence[tuple[float, float]]


def precision_by_recall(title: str, panels: Mapping[str, Mapping[str, Sequence[Points]]]) -> str:
    """A panel a setting, a colour a method, a curve a seed; points are recall and precision."""

    def draw(name: str, axes: Axes) -> None:
        curves = [Curve(method, points) for method, repeats in panels[name].items() for points in repeats]
        draw_pr(curves, {}, axes)
        axes.set_xlim(0, max((recall for curve in curves for recall, _ in curve.points), default=1.0))
        axes.set_title(name, loc="left", fontsize=10.5)

    return svg(title, 3.6 * len(panels), *(partial(draw, name) for name in panels))


def by_setting(
    title: str, label: str, settings: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[float | None]]]
) -> str:
    """A score in percent by a setting, a panel a score, a curve a method."""

    def draw(name: str, axes: Axes) -> None:
        for (method, values), colour in zip(panels[name].items(), SERIES, strict=False):
            points = [(x, y) for x, y in zip(settings, values, strict=True) if y is not None]
            axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=colour, label=method)
        axes.set_xlabel(label)
        axes.set_ylabel(f"{name}, %")
        axes.set_xticks(list(settings))
        axes.grid(axis="y")

    return svg(title, 2.8 * len(panels), *(partial(draw, name) for name in panels))


def dots(title: str, label: str, panels: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> str:
    """A score in percent: of each panel's rows a dot a method, joined by a line."""

    def draw(name: str, axes: Axes) -> None:
        rows = panels[name]
        methods = list(dict.fromkeys(method for values in rows.values() for method in values))
        for place, values in enumerate(rows.values()):
            found = [value for value in values.values() if value is not None]
            if found:
                axes.plot([min(found), max(found)], [place, place], color=OTHER, linewidth=1.2, zorder=1)
        for method, colour, mark in zip(methods, SERIES, "osD^v", strict=False):
            points = [(values.get(method), place) for place, values in enumerate(rows.values())]
            there = [(value, place) for value, place in points if value is not None]
            axes.plot([x for x, _ in there], [y for _, y in there], mark, color=colour, label=method)
        name_rows(axes, list(rows))
        axes.set_xlabel(label)
        axes.grid(axis="x")
        if name:
            axes.set_title(name, loc="left", fontsize=10.5)

    return svg(title, sum(1.2 + 0.3 * len(rows) for rows in panels.values()), *(partial(draw, name) for name in panels))
