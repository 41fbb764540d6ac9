"""The pictures of a report: scores by round and by class, precision over recall, what travels, who holds what, and how
tangled it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from grandrounds.data.partition import SiteRow
from grandrounds.data.structural_entropy import Spread
from grandrounds.metrics.score import ClassScore
from grandrounds.reports.colours import distinct
from grandrounds.reports.markup import Html, join
from grandrounds.reports.svg import OTHER, RULE, SERIES, name_rows, svg
from grandrounds.reports.wording import byte_size, count, listed, short

MOST_BARS, MOST_COLUMNS = 30, 240
Table = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A score by round, or precision by recall; curves of one name (repeats with other seeds) share a colour."""

    name: str
    points: Sequence[tuple[float, float]]
    kept: int | None = None
    """The round whose model was kept, marked by a ring."""


def by_round(title: str, curves: Sequence[Curve], baselines: Mapping[str, float], word: str) -> Html:
    """One or several curves, and trivial baselines as dashed lines; `word` is F1 or AUC."""
    return svg(title, 3.2, partial(draw_by_round, curves, baselines, word=word))


def diagnostics(title: str, panels: Mapping[str, Sequence[Curve]]) -> Html:
    """A low panel each, by what stands beside it."""
    draws = (partial(draw_by_round, curves, {}, word=word) for word, curves in panels.items())
    return svg(title, 0.4 + 1.7 * len(panels), *draws)


def draw_by_round(curves: Sequence[Curve], baselines: Mapping[str, float], axes: Axes, word: str = "F1") -> None:
    axes.set_xlabel("round")
    axes.set_ylabel(word)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y")
    _draw(curves, baselines, axes)


def precision_by_recall(title: str, curves: Sequence[Curve], baselines: Mapping[str, float]) -> Html:
    return svg(title, 3.6, partial(draw_pr, curves, baselines))


def draw_pr(curves: Sequence[Curve], baselines: Mapping[str, float], axes: Axes) -> None:
    """Precision over recall, from the most confident answer on; a baseline is the share of right answers among all."""
    axes.set_xlabel("recall")
    axes.set_ylabel("precision")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.grid()
    _draw(curves, baselines, axes)


def _draw(curves: Sequence[Curve], baselines: Mapping[str, float], axes: Axes) -> None:
    names = list(dict.fromkeys(curve.name for curve in curves))  # of all, so that pictures agree in colours
    drawn = {curve.name for curve in curves if curve.points}
    for i, name in enumerate(names):
        if name not in drawn:
            continue
        for curve in curves:
            if curve.name == name:
                _line(axes, curve, SERIES[i % len(SERIES)], "solid" if i < len(SERIES) else "dashdot")
        axes.plot([], [], color=SERIES[i % len(SERIES)], label=short(name, 60))
    for name, value in baselines.items():
        axes.axhline(value, color=OTHER, linestyle=(0, (5, 3)), linewidth=1.3, label=f"trivial: {short(name, 50)}")


def bytes_per_site_and_round(names: Sequence[str], up: Sequence[float], down: Sequence[float]) -> Html:
    """On a log scale, since algorithms differ by orders of magnitude."""

    def draw(axes: Axes) -> None:
        rows = np.arange(len(names))
        least = min((value for value in (*up, *down) if value > 0), default=1.0) / 3
        for values, shift, colour, way in ((up, -0.19, SERIES[0], "up"), (down, 0.19, SERIES[5], "down")):
            axes.barh(rows + shift, np.maximum(values, least) - least, 0.34, least, color=colour, label=way)
            for row, value in zip(rows, values, strict=True):
                reported = f"\u00a0{byte_size(value)}" if value > 0 else "\u00a0nothing travels"
                axes.text(max(value, least), row + shift, reported, va="center", fontsize=8.5)
        axes.set_xscale("log")
        axes.set_xlim(least, max((*up, *down, least)) * 8)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: byte_size(value)))
        axes.minorticks_off()
        name_rows(axes, names)
        axes.grid(axis="x")

    return svg("Bytes per site and round", 0.8 + 0.45 * len(names), draw)


def holdings(sites: Sequence[SiteRow]) -> Html:
    """Who holds what: a stacked bar a site; for many, how large they are and how labels are mixed."""
    if len(sites) > MOST_BARS:
        return join([_sizes(sites), _mixtures(sites) if any(site.labels for site in sites) else ""])
    labels, table = _label_table(sites)

    def draw(axes: Axes) -> None:
        left = np.zeros(len(sites))
        for values, (name, colour) in zip(table.T, labels.items(), strict=True):
            axes.barh(range(len(sites)), values, 0.72, left, color=colour, label=short(name, 40))
            left += values
        for row, total in enumerate(left):
            axes.text(total, row, f"\u00a0{count(int(total))}", va="center", fontsize=8.5)
        alike = all(total == site.examples for total, site in zip(left, sites, strict=True))
        axes.set_xlabel("examples" if alike else "labels")  # a sentence may hold several mentions, or none
        axes.set_xlim(0, max(left.max(), 1) * 1.09)
        name_rows(axes, [site.name for site in sites])
        axes.grid(axis="x")

    return svg("Examples at each site, by label", 0.9 + 0.23 * len(sites), draw)


@dataclass(frozen=True)
class PartitionRows:
    """A corpus as it was partitioned over sites; `name` is what its panel is called."""

    sites: Sequence[SiteRow]
    left_out: Sequence[str] = ()
    name: str = ""


def documents_and_entropy(title: str, *corpora: PartitionRows) -> Html:
    """As FedLCC's Figure 2 (2024), a panel a corpus: documents a site as bars; above them H, its mean and range."""
    return svg(title, 3.6 * len(corpora), *(partial(_documents_and_entropy, corpus) for corpus in corpora))


def f1_by_class(classes: Mapping[str, ClassScore]) -> Html:
    """F1 as a bar, with precision and recall marked on it; the classes that occur most."""
    shown = sorted(classes.items(), key=lambda item: (-item[1].support, item[0]))[:MOST_BARS]

    def draw(axes: Axes) -> None:
        rows = range(len(shown))
        axes.barh(rows, [c.f1 or 0 for _, c in shown], 0.6, color=SERIES[5], alpha=0.45, label="F1")
        axes.plot([c.precision or 0 for _, c in shown], rows, "|", color=SERIES[0], ms=12, mew=2, label="precision")
        axes.plot([c.recall or 0 for _, c in shown], rows, "|", color=SERIES[1], ms=12, mew=2, label="recall")
        axes.set_xlim(0, 1)
        name_rows(axes, [f"{short(name)} ({count(c.support)})" for name, c in shown])
        axes.grid(axis="x")

    return svg("F1, precision and recall of each class", 0.8 + 0.27 * len(shown), draw)


def _line(axes: Axes, curve: Curve, colour: str, style: str) -> None:
    x, y = [x for x, _ in curve.points], [y for _, y in curve.points]
    axes.plot(x, y, color=colour, linestyle=style, marker="o" if len(x) < 3 else None)
    for round, score in curve.points:
        if round == curve.kept:
            axes.plot([round], [score], "o", ms=8, mfc="none", mec=colour, mew=1.6)


def _documents_and_entropy(corpus: PartitionRows, axes: Axes) -> None:
    """Bars keep to the lower part and H to the upper one, so that neither hides the other."""
    sites, places = corpus.sites, range(len(corpus.sites))
    spreads = [(place, site.entropy) for place, site in enumerate(sites) if site.entropy]
    most, few = max((site.documents for site in sites), default=1), len(sites) <= MOST_BARS
    axes.bar(places, [site.documents for site in sites], 0.72, color=SERIES[5], label="documents")
    for place, site in enumerate(sites if few else ()):
        axes.text(place, site.documents, count(site.documents), ha="center", va="bottom", fontsize=8.5)
    axes.set_ylim(0, most * (2.45 if spreads else 1.1))
    axes.set_yticks([tick for tick in MaxNLocator(4, integer=True).tick_values(0, most) if tick <= most])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(int(value))))
    axes.set_ylabel("documents", loc="bottom" if spreads else "center")
    _name_columns(axes, [site.name for site in sites])
    if corpus.left_out:
        axes.set_xlabel(f"left out, having no document: {listed(tuple(corpus.left_out), 6)}")
    axes.set_title(corpus.name, loc="left", fontsize=10.5)
    axes.grid(axis="y")
    if spreads:
        _entropy_above(axes.twinx(), spreads)
        axes.plot([], [], "o-", color=SERIES[1], ms=4, label="structural entropy H: mean and range")


def _entropy_above(axes: Axes, spreads: Sequence[tuple[int, Spread]]) -> None:
    low, high = min(h.min for _, h in spreads), max(h.max for _, h in spreads)
    span = (high - low) or 1.0
    places = [place for place, _ in spreads]
    axes.vlines(places, [h.min for _, h in spreads], [h.max for _, h in spreads], color=SERIES[1], linewidth=1.8)
    axes.plot(places, [h.mean for _, h in spreads], "o", color=SERIES[1], ms=4)
    for place, h in spreads if len(spreads) <= MOST_BARS // 2 else ():
        axes.text(place, h.max + 0.05 * span, f"{h.mean:.2f}", ha="center", va="bottom", fontsize=8.5)
    axes.set_ylim(low - 1.15 * span, high + 0.16 * span)
    axes.set_yticks([tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high])
    axes.set_ylabel("H", loc="top", rotation=0)


def _name_columns(axes: Axes, names: Sequence[str]) -> None:
    """All of them while there is room, upright or turned; of more, some."""
    step = -(-len(names) // MOST_BARS)
    shown = [short(name, 18) for name in names[::step]]
    axes.set_xticks(range(0, len(names), step), shown, rotation=0 if sum(map(len, shown)) <= 80 else 90)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="x", length=0)


def _sizes(sites: Sequence[SiteRow]) -> Html:
    def draw(axes: Axes) -> None:
        sizes = sorted((site.examples for site in sites), reverse=True)
        columns, edges = _columns(np.array(sizes, float)[:, None])
        axes.stairs(columns[:, 0], edges, fill=True, color=SERIES[0], alpha=0.75)
        skewed = sizes[0] > 20 * max(1, sizes[len(sizes) // 2])
        axes.set_yscale("log" if skewed else "linear")
        axes.set_ylim(0.8 if skewed else 0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(int(value))))
        axes.minorticks_off()
        _many_sites(axes, len(sites), "from the largest to the smallest")
        axes.set_ylabel("examples (log scale)" if skewed else "examples")

    return svg("Examples at each site", 2.2, draw)


def _mixtures(sites: Sequence[SiteRow]) -> Html:
    """Flat for sites that are alike, steep where a label gathers at few of them."""

    def draw(axes: Axes) -> None:
        labels, table = _label_table(sites)
        shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        columns, edges = _columns(shares[np.lexsort(-shares.T[::-1])])
        bottom = np.zeros(len(columns))
        for values, (name, colour) in zip(columns.T, labels.items(), strict=True):
            axes.stairs(bottom + values, edges, baseline=bottom, fill=True, color=colour, label=short(name, 40))
            bottom = bottom + values
        _many_sites(axes, len(sites), f"by their share of {short(next(iter(labels), 'labels'), 40)}")
        axes.set_ylabel("share of labels")
        axes.set_ylim(0, 1)

    return svg("Mixture of labels at each site", 2.6, draw)


def _many_sites(axes: Axes, number: int, order: str) -> None:
    axes.set_xlabel(f"{count(number)} sites, {order}")
    axes.set_xlim(0, number)
    axes.grid(axis="y")


def _columns(table: Table) -> tuple[Table, Table]:
    """Rows of sites, averaged to what a page can show, and the edges of these columns."""
    groups = np.array_split(table, min(len(table), MOST_COLUMNS))
    sizes = [len(group) for group in groups]
    return np.array([group.mean(axis=0) for group in groups]), np.cumsum([0, *sizes]).astype(float)


def _label_table(sites: Sequence[SiteRow]) -> tuple[dict[str, str], Table]:
    """The commonest labels with their colours, and their counts, a row a site; the rest is one column, and examples of
    sites that told no labels another."""
    totals: Counter[str] = Counter()
    for site in sites:
        totals.update(site.labels)
    common = [label for label, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[: len(SERIES)]]
    rest, told = len(totals) - len(common), [sum(site.labels.values()) for site in sites]
    colours = {label: SERIES[hue] for label, hue in zip(common, distinct(common), strict=True)}
    columns = [[site.labels.get(label, 0) for site in sites] for label in common]
    if rest:
        colours[f"{rest} other labels"] = OTHER
        columns.append([all - sum(counts) for all, counts in zip(told, zip(*columns, strict=True), strict=True)])
    if not all(told):
        colours["labels not told" if totals else "examples"] = RULE if totals else OTHER
        columns.append([0 if site.labels else site.examples for site in sites])
    return colours, np.array(columns, float).T
