"""A run, or several side by side, as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from grandrounds.data.partition import SiteRow
from grandrounds.errors import ConfigError
from grandrounds.metrics.score import DECIDED_ANSWERS
from grandrounds.reports import plots, tables
from grandrounds.reports.evidence import Evidence, remarks, with_evidence
from grandrounds.reports.markup import Html, join, page, table, tag, text
from grandrounds.reports.runs import Run, read_run, row_names
from grandrounds.reports.sections import (
    by_class,
    by_diagnostics,
    by_epsilon,
    by_label,
    by_rank,
    by_round,
    by_site,
    config,
    diagnosed,
    figures,
    how_tangled,
    lead,
    missing,
    ranked,
    unfinished,
)
from grandrounds.reports.wording import count, listed, plural, score


def write_report(
    runs: Sequence[Path],
    out: Path,
    names: Sequence[str] | None = None,
    rows: Sequence[tables.ComparisonRow] | None = None,
) -> Path:
    """Read the run folders and write the page; gives the page's path. A comparison gives the names of its arms, one a
    run, and its rows."""
    if not runs:
        raise ConfigError("a report needs at least one run folder")
    read = [read_run(folder) for folder in runs]
    title = _title(read)
    body = _one(read[0], title) if len(read) == 1 else _several(read, title, names or row_names(read), rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page("page.html", title, body, "page.css"), "utf-8")
    return out


def write_partition(sites: Sequence[SiteRow], left_out: Sequence[str], title: str, out: Path) -> Path:
    """The picture of who holds what, as a page of its own."""
    body = join([tag("h1", text(title)), tag("figure", plots.holdings(sites)), how_tangled(sites, left_out)])
    out.write_text(page("page.html", title, body, "page.css"), "utf-8")
    return out


def _title(runs: Sequence[Run]) -> str:
    tasks = sorted({run.task for run in runs})
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    return f"{listed(algorithms, 5)} on {listed(tasks, 3)}"


def _one(run: Run, title: str) -> Html:
    version = f" · Grand Rounds {run.result.grandrounds}" if run.result and run.result.grandrounds else ""
    return join(
        [
            tag("h1", title),
            tag("p", f"{run.name} · seed {run.seed}{version}", class_="sub"),
            _parts(run),
        ]
    )


def _parts(run: Run) -> Html:
    parts = (
        unfinished,
        lead,
        figures,
        by_round,
        by_diagnostics,
        by_epsilon,
        by_rank,
        by_class,
        by_site,
        missing,
        config,
    )
    return join(part(run) for part in parts)


def _several(
    runs: Sequence[Run], title: str, names: Sequence[str], rows: Sequence[tables.ComparisonRow] | None
) -> Html:
    details = (
        tag("details", tag("summary", f"{name}, seed {run.seed} ({run.name})"), _parts(run), class_="run")
        for name, run in zip(names, runs, strict=True)
    )
    return join(
        [
            tag("h1", title),
            tag("p", f"{plural(len(runs), 'run')} side by side", class_="sub"),
            _comparison(runs, _rows(runs, names) if rows is None else rows),
            _curves(runs, names),
            _diagnosed(runs, names),
            _ranked(runs, names),
            _travel(runs, names),
            _class_grid(runs, names),
            tag("h2", "Each run"),
            *details,
        ]
    )


def _rows(runs: Sequence[Run], names: Sequence[str]) -> list[tables.ComparisonRow]:
    """Of the finished runs; those of one task with intervals, and differences from the first."""
    finished = [(name, run.folder, run.result) for name, run in zip(names, runs, strict=True) if run.result]
    rows = tables.comparison_rows([result for *_, result in finished], [name for name, *_ in finished])
    if len({row.task for row in rows}) != 1:
        return rows
    folders: dict[str, list[Path]] = {}
    for name, folder, _ in finished:
        folders.setdefault(name, []).append(folder)
    return with_evidence(rows, Evidence.of(folders), finished[0][0])


def _comparison(runs: Sequence[Run], rows: Sequence[tables.ComparisonRow]) -> Html:
    still = [run.name for run in runs if not run.result]
    measured = [row for row in rows if not row.trivial and row.judged_mean is not None]
    baselines = [row for row in rows if row.trivial]
    sentences = []
    for objective in dict.fromkeys(row.objective for row in measured):
        best = min((row for row in measured if row.objective == objective), key=lambda row: row.rank)
        sentences.append(
            f"The best mean {objective.name} on the test set is {score(best.judged_mean)}, by {best.name}."
        )
    if len(baselines) == 1:
        (bar,) = baselines
        below = [row.name for row in measured if row.task == bar.task and row.rank >= bar.rank]
        sentences.append(f"The trivial baseline, {bar.name}, has {score(bar.judged_mean)}.")
        sentences.append(f"Not above it: {listed(below)}." if below else "All are above it.")
    several_tasks = len({row.task for row in rows}) > 1
    columns = tables.columns(rows)
    head = ("task", *columns) if several_tasks else tuple(columns)
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    body = [[row.task, *own] if several_tasks else own for row, own in zip(rows, cells, strict=True)]
    caption = (
        f"Means over runs that differ only in their seed; spread is the standard deviation of {tables.words(rows)} "
        f"over them. {tables.TOTALS[0].upper()}{tables.TOTALS[1:]}."
    )
    if "AUC" in columns:
        caption += (
            f" Where there is an AUC, median and spread are its; precision, recall and F1 are of {DECIDED_ANSWERS}."
        )
    return join(
        [
            tag("p", " ".join(sentences), class_="lead") if sentences else "",
            table(head, body, 1 + several_tasks) if rows else "",
            tag("p", caption, class_="soft") if rows else "",
            _differences(rows),
            tag("p", f"Not finished, and so not in the table: {listed(still)}.", class_="notice") if still else "",
        ]
    )


def _differences(rows: Sequence[tables.ComparisonRow]) -> Html:
    """What is shown and what is not, and what a reader must know of it."""
    if all(row.low is None for row in rows):
        return Html("")
    title, cells = tables.difference_rows(rows)
    alike = [row for row in rows if row.difference is not None and not row.differs]
    said = (
        f"No difference from {alike[0].baseline} can be shown for {listed([row.name for row in alike])}."
        if alike
        else ""
    )
    reported = remarks(rows, min(row.runs for row in rows if not row.trivial))
    return join(
        [
            join([tag("h2", title), table(tables.DIFFERENCE[:4], [row[:4] for row in cells])]) if cells else "",
            tag("p", said) if said else "",
            tag("ul", *(tag("li", sentence) for sentence in reported), class_="soft"),
        ]
    )


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Html:
    parts, words = [], list(dict.fromkeys(run.objective.name for run in runs))
    for word, split in product(words, ("test", "validation")):
        alike = [(name, run) for name, run in zip(names, runs, strict=True) if run.objective.name == word]
        curves = [
            plots.Curve(name, run.points(split), run.result.best_round if run.result else None) for name, run in alike
        ]
        if any(curve.points for curve in curves):
            known = dict(sorted({run.baseline for _, run in alike if run.baseline}))
            lines = known if split == "test" else {}
            parts.append(tag("h3", f"{word} on the {split} set"))
            parts.append(tag("figure", plots.by_round(f"{word} on the {split} set by round", curves, lines, word)))
    if not parts:
        return Html("")
    ringed = any(run.kept_is_shown for run in runs)
    ring = " A ring marks the round whose model was kept." if ringed else ""
    repeats = " Repeats share a colour." if len(set(names)) < len(names) else ""
    why = f"{listed(words)} after each round.{ring}{repeats}"
    return join([tag("h2", "Round by round"), tag("p", why), *parts])


def _diagnosed(runs: Sequence[Run], names: Sequence[str]) -> Html:
    picture = diagnosed(runs, names)
    return join([tag("h2", "Inside the algorithms"), picture]) if picture else Html("")


def _ranked(runs: Sequence[Run], names: Sequence[str]) -> Html:
    picture = ranked(runs, names)
    return join([tag("h2", "Precision by recall"), picture]) if picture else Html("")


def _travel(runs: Sequence[Run], names: Sequence[str]) -> Html:
    first = dict(reversed(list(zip(names, runs, strict=True))))
    shown = [(name, first[name]) for name in dict.fromkeys(names)]
    up, down = [run.bytes_up for _, run in shown], [run.bytes_down for _, run in shown]
    why = (
        "What one site sends (up) and receives (down) in a round. "
        "The scale is logarithmic: each line is ten times the one before."
    )
    picture = plots.bytes_per_site_and_round([name for name, _ in shown], up, down)
    return join([tag("h2", "What travels"), tag("p", why), tag("figure", picture)])


def _class_grid(runs: Sequence[Run], names: Sequence[str]) -> Html:
    """F1 of each class, a column a name; left away where there is nothing to compare."""
    support = {label: c.support for run in runs if run.test for label, c in run.test.per_class.items()}
    if len(support) < 2:
        return Html("")
    columns = list(dict.fromkeys(names))
    f1s: dict[tuple[str, str], list[float]] = {}
    for name, run in zip(names, runs, strict=True):
        for label, scored in run.test.per_class.items() if run.test else ():
            f1s.setdefault((label, name), []).append(scored.f1 or 0.0)
    rows = [
        [label, count(support[label])]
        + [score(fmean(f1s[label, name]) if (label, name) in f1s else None) for name in columns]
        for label in sorted(support, key=lambda label: (-support[label], label))
    ]
    why = "F1 of each class on the test set, mean over seeds; support is how often the class occurs there."
    return join([tag("h2", "Class by class"), tag("p", why), by_label(["class", "support", *columns], rows)])
