"""The attention of several models side by side: tables, heat maps of how heads differ, and the heads as points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from rich.table import Table
from rich.text import Text

from grandrounds.metrics.attention import Array, Heads, distance, in_the_plane, spearman, turned_onto
from grandrounds.reports.markup import Html
from grandrounds.reports.svg import SERIES, svg
from grandrounds.reports.wording import short

Models = Mapping[str, Heads]
MEASURES: Mapping[str, Callable[[Heads, Heads], float]] = {
    "spearman": lambda a, b: spearman(a.entropy, b.entropy),
    "distance": lambda a, b: distance(a.divergence, b.divergence),
    "distance_sum": lambda a, b: distance(a.divergence_sum, b.divergence_sum),
}
TITLES = {
    "spearman": "Spearman correlation of the heads' entropies",
    "distance": "Distance of the heads' Jensen-Shannon divergences, a token on average",
    "distance_sum": "The same summed over all tokens, as printed in the paper",
}


def summary(models: Models) -> dict[str, Any]:
    """What the tables show, for programs."""
    any_of_them = next(iter(models.values()))
    return {
        "documents": any_of_them.documents,
        "models": [
            {
                "name": name,
                "tokens": heads.tokens,
                "entropy": heads.entropy.tolist(),
                "entropy_by_layer": heads.entropy_by_layer.tolist(),
            }
            for name, heads in models.items()
        ],
        **{measure: [[_known(x) for x in row] for row in compared(models, measure)] for measure in MEASURES},
    }


def _known(value: float) -> float | None:
    """JSON has no nan."""
    return None if np.isnan(value) else value


def whole(models: Models) -> dict[str, Any]:
    """The same, with the divergence of every two heads and where the picture has each."""
    content = summary(models)
    for model, heads, points in zip(content["models"], models.values(), placed(models), strict=True):
        model |= {"divergence": heads.divergence.tolist(), "positions": points.tolist()}
    return content


def compared(models: Models, measure: str) -> list[list[float]]:
    """Every model with every one, as the paper's Table 2."""
    return [[MEASURES[measure](a, b) for b in models.values()] for a in models.values()]


Rows = list[tuple[str, ...]]


def tables(models: Models) -> dict[str, Rows]:
    """By title; the first row is the head, the first column names the others."""
    found: dict[str, Rows] = {}
    for measure, title in TITLES.items():
        figures = compared(models, measure)
        rows = [
            (name, *(_figure(x) for x in row[: i + 1]))
            for i, (name, row) in enumerate(zip(models, figures, strict=True))
        ]
        found[title] = [("", *models), *((*row, *[""] * (len(models) + 1 - len(row))) for row in rows)]
    layers = zip(*(heads.entropy_by_layer for heads in models.values()), strict=True)
    rows = [(f"layer {number}", *map(_figure, layer)) for number, layer in enumerate(layers, start=1)]
    every = ("all heads", *(_figure(float(heads.entropy.mean())) for heads in models.values()))
    found["Entropy of a head in nats, mean of its layer"] = [("", *models), *rows, every]
    return found


def _figure(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}" if abs(value) >= 100 else f"{value:.4f}"


def rich_tables(models: Models) -> list[Table]:
    made = []
    for title, (head, *rows) in tables(models).items():
        table = Table(title=Text(title))
        for column, name in enumerate(head):
            table.add_column(Text(name), justify="right" if column else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        made.append(table)
    return made


def markdown(models: Models) -> str:
    parts = []
    for title, (head, *rows) in tables(models).items():
        lines = [head, ("---", *["---:"] * len(models)), *rows]
        parts.append(f"**{title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def pictures(models: Models) -> dict[str, Html]:
    """By file name."""
    return {
        "entropy.svg": svg("Entropy of each head by layer", 3.4, partial(_draw_entropies, models)),
        "divergence.svg": svg(
            "Jensen-Shannon divergence between heads",
            5.2 * len(models),
            *(partial(_draw_divergence, name, heads, _highest(models)) for name, heads in models.items()),
        ),
        "heads.svg": svg(
            "Heads that look alike lie together",
            5.0 * len(models),
            *(
                partial(_draw_heads, name, points, heads.entropy.shape)
                for (name, heads), points in zip(models.items(), placed(models), strict=True)
            ),
        ),
    }


def placed(models: Models) -> list[Array]:
    """The heads of each model in the plane; pictures are turned to lie as near the first model's as they can."""
    first, *others = (in_the_plane(heads.divergence) for heads in models.values())
    return [first - first.mean(axis=0), *(turned_onto(points, first) for points in others)]


def _highest(models: Models) -> float:
    return max(float(heads.divergence.max()) for heads in models.values())


def _draw_entropies(models: Models, axes: Axes) -> None:
    for i, (name, heads) in enumerate(models.items()):
        layers, width = heads.entropy.shape
        place = np.arange(1, layers + 1) + (i - (len(models) - 1) / 2) * 0.22
        colour = SERIES[i % len(SERIES)]
        axes.plot(np.repeat(place, width), heads.entropy.ravel(), "o", ms=3.5, alpha=0.5, mew=0, color=colour)
        axes.plot(place, heads.entropy_by_layer, color=colour, label=short(name, 60))
    axes.set_xlabel("layer; a point is a head, the line their mean")
    axes.set_ylabel("entropy (nats)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y")


def _draw_divergence(name: str, heads: Heads, highest: float, axes: Axes) -> None:
    layers, width = heads.entropy.shape
    image = axes.imshow(heads.divergence, cmap="viridis", vmin=0, vmax=highest, interpolation="nearest")
    middles = (np.arange(layers) + 0.5) * width - 0.5
    axes.set_xticks(middles, [str(layer) for layer in range(1, layers + 1)])
    axes.set_yticks(middles, [str(layer) for layer in range(1, layers + 1)])
    axes.tick_params(length=0)
    axes.set_xlabel("layer")
    axes.set_ylabel("layer")
    axes.set_title(short(name, 60), loc="left", fontsize=10.5)
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label="nats")


def _draw_heads(name: str, points: Array, shape: tuple[int, ...], axes: Axes) -> None:
    """Shaded from the first layer to the last."""
    layers, width = shape
    layer = np.repeat(np.arange(1, layers + 1), width)
    edges = np.arange(0.5, layers + 1)
    shown = axes.scatter(points[:, 0], points[:, 1], c=layer, cmap="viridis", s=26, vmin=edges[0], vmax=edges[-1])
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(short(name, 60), loc="left", fontsize=10.5)
    bar = axes.figure.colorbar(shown, ax=axes, shrink=0.8, label="layer", boundaries=edges)
    bar.set_ticks([(low + high) / 2 for low, high in pairwise(edges)], labels=[str(n + 1) for n in range(layers)])
