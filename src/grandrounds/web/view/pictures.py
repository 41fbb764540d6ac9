"""Small pictures that follow a page's width, drawn without matplotlib: a second look must cost nearly nothing.

Places are percentages, so nothing is scaled and letters keep their size; colours are classes of a style sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from grandrounds.reports.markup import Html, join, tag
from grandrounds.reports.wording import score, short

LEFT, RIGHT = 9.0, 98.5
"""Per cent of the width, between which curves are drawn."""
TOP, HEIGHT, BELOW = 10, 170, 40
MOST_DOTS = 60
THIN = "thin"


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[int, float]]
    style: str
    """Classes: s0 to s6, and `THIN` for one of many."""
    kept: int | None = None
    """The round that gets a ring: its model is the best so far."""


@dataclass(frozen=True)
class Level:
    """A dashed line at a value."""

    name: str
    value: float
    style: str = "other"


@dataclass(frozen=True)
class Part:
    """Of a bar, from and to in shares of its width."""

    begin: float
    end: float
    style: str
    title: str = ""


def by_round(title: str, curves: Sequence[Curve], levels: Sequence[Level], rounds: int) -> Html:
    """A score over the rounds of the whole run, of which some are still to come."""
    values = [value for curve in curves for _, value in curve.points] + [level.value for level in levels]
    last = max(rounds, *(number for curve in curves for number, _ in curve.points), 2)
    frame = _Frame(last, _ticks(min(values), max(values)))
    parts = [*frame.axes(), *map(frame.level, levels), *(part for curve in curves for part in frame.curve(curve))]
    size = {"width": "100%", "height": str(TOP + HEIGHT + BELOW)}
    return join([_legend(curves, levels), tag("svg", *parts, role="img", aria_label=title, class_="chart", **size)])


@dataclass(frozen=True)
class _Frame:
    """Rounds from 1 on across, a score upwards."""

    last: int
    ticks: Sequence[float]

    def across(self, number: float) -> str:
        return f"{LEFT + self._share(number) * (RIGHT - LEFT):.2f}%"

    def up(self, value: float) -> float:
        return TOP + HEIGHT * self._height(value)

    def axes(self) -> Iterator[Html]:
        for tick in self.ticks:
            place = f"{self.up(tick):.1f}"
            yield tag("line", x1=f"{LEFT}%", x2=f"{RIGHT}%", y1=place, y2=place, class_="grid")
            yield _label(_figure(tick, self.ticks), f"{LEFT - 1}%", self.up(tick) + 4, "end")
        for number in _whole_ticks(self.last):
            yield _label(
                str(number), self.across(number), TOP + HEIGHT + 17, "end" if number == self.last else "middle"
            )
        yield _label("round", f"{RIGHT}%", TOP + HEIGHT + 34, "end")

    def level(self, level: Level) -> Html:
        place, said = f"{self.up(level.value):.1f}", tag("title", f"{level.name}: {score(level.value)}")
        return tag("line", said, x1=f"{LEFT}%", x2=f"{RIGHT}%", y1=place, y2=place, class_=f"level {level.style}")

    def curve(self, curve: Curve) -> Iterator[Html]:
        """Its line is stretched to the width, its dots are not."""
        path = " ".join(f"{1000 * self._share(n):.1f},{1000 * self._height(value):.1f}" for n, value in curve.points)
        line = tag("polyline", points=path, class_=f"curve {curve.style}", vector_effect="non-scaling-stroke")
        size = {"x": f"{LEFT}%", "y": str(TOP), "width": f"{RIGHT - LEFT}%", "height": str(HEIGHT)}
        yield tag("svg", line, viewBox="0 0 1000 1000", preserveAspectRatio="none", overflow="visible", **size)
        every = len(curve.points) <= MOST_DOTS and THIN not in curve.style
        for number, value in curve.points if every else curve.points[-1:]:
            place = {"cx": self.across(number), "cy": f"{self.up(value):.1f}"}
            yield tag("circle", tag("title", _said(curve, number, value)), r="3", class_=f"dot {curve.style}", **place)
            if number == curve.kept:
                yield tag("circle", tag("title", "the best so far"), r="6.5", class_=f"ring {curve.style}", **place)

    def _share(self, number: float) -> float:
        return (number - 1) / (self.last - 1)

    def _height(self, value: float) -> float:
        return 1 - (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])


def bar(parts: Sequence[Part], label: str) -> Html:
    """One row of a picture: a table says the same in words beside it."""
    rects = [
        tag(
            "rect",
            tag("title", part.title) if part.title else "",
            x=f"{100 * part.begin:.2f}%",
            width=f"{max(100 * (part.end - part.begin), 0.4):.2f}%",
            y="3",
            height="12",
            class_=part.style,
        )
        for part in parts
    ]
    return tag("svg", *rects, role="img", aria_label=label, width="100%", height="18", class_="bar")


def key(names: Sequence[tuple[str, str]]) -> Html:
    """A legend: style and name of each; a level is a dashed line."""
    items = []
    for style, name in names:
        line = tag("line", x1="0", x2="16", y1="6", y2="6", class_=style)
        shape = line if "level" in style else tag("rect", width="11", height="11", class_=style)
        items.append(tag("li", tag("svg", shape, width="16" if "level" in style else "11", height="11"), f" {name}"))
    return tag("ul", *items, class_="legend")


def _legend(curves: Sequence[Curve], levels: Sequence[Level]) -> Html:
    named = [(curve.style, short(curve.name, 50)) for curve in curves if THIN not in curve.style]
    dashed = [(f"level {level.style}", f"{short(level.name, 60)} {score(level.value)}") for level in levels]
    return key([*named, *dashed])


def _said(curve: Curve, number: int, value: float) -> str:
    return f"{curve.name}, round {number}: {score(value)}"


def _label(words: str, x: str, y: float, anchor: str) -> Html:
    return tag("text", words, x=x, y=f"{y:.1f}", text_anchor=anchor)


def _ticks(low: float, high: float) -> list[float]:
    """Round values that span all of them: four to seven."""
    if high - low < 1e-3:
        low, high = low - 0.005, high + 0.005
    rough = (high - low) / 4
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _figure(tick: float, ticks: Sequence[float]) -> str:
    """With as many digits as tell ticks apart."""
    step = ticks[1] - ticks[0]
    digits = next((d for d in range(6) if abs(step * 10**d - round(step * 10**d)) < 1e-6), 6)
    return f"{tick:.{digits}f}"


def _whole_ticks(last: int) -> list[int]:
    step = max(1, ceil((last - 1) / 6))
    return [1, *(number for number in range(step, last, step) if number > 1 and last - number >= step * 0.6), last]
