"""Matplotlib figures as inline SVG: text stays text, colours are CSS variables that a dark scheme can change.

The palette is Okabe and Ito's, which people with any colour vision can tell apart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from grandrounds.reports.markup import Html, text
from grandrounds.reports.wording import short

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195")
OTHER, INK, RULE = "#98989d", "#1f2328", "#d9dce0"
_VARIABLES = {c: f"var(--s{i}, {c})" for i, c in enumerate(SERIES)} | {
    OTHER: f"var(--other, {OTHER})",
    INK: "currentColor",
    RULE: f"var(--rule, {RULE})",
}


STYLE: Any = {  # matplotlib's type of it names every key that there is
    "svg.fonttype": "none",
    "svg.hashsalt": "grandrounds",
    "text.parse_math": False,  # a site may be called $x$
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def svg(title: str, height: float, *draws: Callable[[Axes], None]) -> Html:
    """Draw on a figure of text width, panels from the top; of matplotlib's file take the element a page needs."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.4, height), layout=ConstrainedLayoutEngine(hspace=0.06))
        for axes, draw in zip(figure.subplots(len(draws), squeeze=False)[:, 0], draws, strict=True):
            draw(axes)
        name_colours(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _for_a_page(out.getvalue(), title)


def svg_file(title: str, width: float, height: float, draw: Callable[[Axes], None]) -> str:
    """A picture by itself, on white; the same bytes whenever it is drawn."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(), facecolor="white")
        draw(figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Title": title})
    return out.getvalue()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """The rows of a bar chart, from the top."""
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def name_colours(figure: Figure) -> None:
    """One legend above all panels, whose colours agree, in as many columns as the page is wide."""
    named = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    for columns in range(len(named), 0, -1):
        legend = figure.legend(
            named.values(), named, loc="outside upper left", ncols=columns, borderpad=0, handlelength=1.6
        )
        if legend.get_window_extent().width <= 0.95 * figure.bbox.width:  # a browser's letters may be wider
            return
        legend.remove()


def _for_a_page(drawn: str, title: str) -> Html:
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # the same in every figure, and an id may occur once a page
    drawn = re.sub(r"(?<=fill: |roke: )#[0-9a-f]{6}", lambda m: _VARIABLES.get(m[0], m[0]), drawn)
    return Html(drawn.replace("<svg", f'<svg role="img" aria-label="{text(title)}"', 1))
