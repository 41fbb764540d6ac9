"""FedDS, "Lazy MIL" (Sui et al., 2020): tables 2 to 5 and figures 3 to 5, by the settings of its section 4.2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from grandrounds.metrics.ranking import TOP
from grandrounds.papers.corpora import BAGS
from grandrounds.papers.figures import Points, by_round, precision_by_recall
from grandrounds.papers.measures import NOT_THEIRS, describe_selection, grid_changes, percent, printed, scores
from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.paper import Cell, PaperTable, Row
from grandrounds.papers.protocol import SETTINGS, Paper, Study, Target
from grandrounds.papers.settings import At, Said, Tell
from grandrounds.reports.plots import Curve
from grandrounds.reports.runs import Run
from grandrounds.setup.encoders import LEARNT

METHODS = {"ave": "AVG", "one": "ONE", "att": "ATT", "att_ra": "ATT_RA", "lazy_mil": "this work"}
FRACTIONS = (0.1, 0.2, 0.5, 1.0)
PRINTED_AT = (100, 200, 300)
GRID = [{"B": b, "E": e} for b in (32, 64) for e in (1, 3, 5)]
"""Of figure 5, whose own values can't be read but for the text's B=64 and E=1."""
RECALLS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
SITES = {"nyt10": 100, "mirgene": 100, "bere-dti": 10, "gids": 10, "synthetic-bags": 20}
SGD = {"batch_size": 32, "learning_rate": 0.1, "optimizer": "sgd", "clip_norm": 0.0}
# A hundredth of the paper's sentences is a hundredth of its steps, in which plain SGD barely moves.
ADAMW = {"batch_size": 16, "learning_rate": 0.01, "optimizer": "adamw"}
STATED = {
    "encoder": "words",
    "word vectors": "pretrained, 50 wide (NYT10) or 200 (MIRGENE)",
    "partition": "iid",
    "sites, K": 100,
    "batch size, B": 32,
    "local epochs, E": 3,
    "learning rate": Said("0.05, 0.08, 0.1 or 0.2, by grid search", (0.05, 0.08, 0.1, 0.2)),
    "rate's decay a round": Said("0.01 or 0.05, by grid search", (0.01, 0.05)),
    "weight decay": Said("1e-05 or 1e-06, by grid search", (1e-5, 1e-6)),
    "dropout": Said("0.1, 0.2 or 0.5, by grid search", (0.1, 0.2, 0.5)),
    "optimizer": "sgd",
    "server's share of train": 0,
    "round that counts": "the best on test, in its public code",
    "a site weighs": "uniform",
}
SETTINGS_HERE: Mapping[str, Tell] = {
    **{name: tell for name, tell in SETTINGS.items() if name not in ("warm-up epochs", "fraction a round, C")},
    "word vectors": At("model.vectors", lambda file: Path(file).name if file else "learnt, 50 wide"),
    "validation": At("data.validation"),
    "a site weighs": At("federation.weight_by"),
}


def content(corpus: str, options: ReproduceOptions) -> dict[str, Any]:
    """The paper's protocol as a config; without pretrained vectors the server has a tenth of train, to learn the words
    from."""
    encoder = options.encoder or "words"
    learnt = encoder in LEARNT and "model.vectors" not in options.overrides
    return {
        "task": {
            "name": "distant_re",
            "head": "pcnn" if encoder == "words" else "entity_pair",
            "dropout": 0.5,
            **BAGS[corpus].task,
        },
        "data": {**BAGS[corpus].section(), "public": 0.1 if learnt else 0.0},
        "partition": {"scheme": "iid", "sites": SITES[corpus]},
        "model": {"encoder": encoder},
        "training": {
            "epochs": 3,
            "decay": 0.01,
            "weight_decay": 1e-5,
            **(SGD if corpus in ("nyt10", "mirgene") else ADAMW),
        },
        "federation": {"rounds": options.rounds, "weight_by": "uniform", "evaluate_on": ["validation"]},
        "algorithm": {"name": "fedavg"},
    }


def arm(method: str, fraction: float) -> Overrides:
    """What an arm changes of the protocol; the others than Lazy MIL are ways to make one example of a bag."""
    own = {"algorithm.name": method} if method == "lazy_mil" else {"algorithm.name": "fedavg", "task.bag": method}
    return {**own, "federation.fraction": fraction}


def named(method: str, fraction: float) -> str:
    """An arm's folder, which tables and figures share."""
    return f"{method}-C{fraction:g}"


def numbers() -> Any:
    """What the paper prints."""
    return printed("fedds")


def precision_at(study: Study) -> PaperTable:
    """Tables 2 and 4."""
    corpus, runs, fractions = _all_methods(study)
    at = study.config(corpus).task_options().precision_at
    same, theirs = tuple(at) == PRINTED_AT, numbers()[study.name]
    rows = []
    for i, fraction in enumerate(fractions):
        for method, title in METHODS.items():
            paper, repeats = theirs[method][i], runs[named(method, fraction)]
            measured = scores(repeats, [f"p@{n}" for n in at])
            means = [fmean(value or 0.0 for value in seed) for seed in zip(*measured, strict=True)]
            known = dict(zip(PRINTED_AT, paper, strict=False))
            cells = [Cell(known.get(n), values) for n, values in zip(at, measured, strict=True)]
            rows.append(Row(title, [*cells, Cell(paper[-1] if same else None, means)], f"C={fraction:g}"))
    chance = Cell(None, [percent(_chance(run, None)) for run in runs[named("one", fractions[0])]])
    rows.append(Row(BY_CHANCE, [chance] * (len(at) + 1), NOT_THEIRS))
    footnotes = [describe_selection(runs), _ON_TEST]
    if not same:
        footnotes.append(f"The paper's N are {', '.join(map(str, PRINTED_AT))}: what it prints stands beside no other.")
    return PaperTable(study.name, "", "percent", "method", [*(f"P@{n}" for n in at), "mean"], rows, footnotes)


def areas(study: Study, score: str) -> PaperTable:
    """Tables 3 and 5."""
    _, runs, fractions = _all_methods(study)
    theirs = numbers()[study.name]
    rows = [
        Row(title, [Cell(theirs[m][i], _test(runs[named(m, c)], score)) for i, c in enumerate(fractions)])
        for m, title in METHODS.items()
    ]
    top = TOP if score == "auc_2000" else None
    chance = [Cell(None, [_chance(run, top) for run in runs[named("one", c)]]) for c in fractions]
    rows.append(Row(BY_CHANCE, chance, NOT_THEIRS))
    footnotes = [f"Area under the curve of {_drawn(top)}.", describe_selection(runs, ""), _ON_TEST]
    return PaperTable(study.name, "", "share", "method", [f"C={c:g}" for c in fractions], rows, footnotes)


def curves(study: Study, top: int | None) -> PaperTable:
    """Figures 3 and 4."""
    _, runs, fractions = _all_methods(study)
    rows, panels = [], {}
    for c in fractions:
        section = f"C={c:g}"
        drawn = {t: [_points(run, top) for run in runs[named(m, c)]] for m, t in METHODS.items()}
        panels[section] = drawn
        for level in RECALLS:
            cells = [Cell(None, [_at_recall(points, level) for points in drawn[t]]) for t in METHODS.values()]
            rows.append(Row(f"at recall {level:g}", cells, section))
    footnotes = [
        f"The curve of {_drawn(top)}; precision where recall first reaches a level, – where it does not.",
        describe_selection(runs),
        _ON_TEST,
        _NO_NUMBERS,
    ]
    figure = precision_by_recall(study.target.title, panels)
    return PaperTable(study.name, "", "percent", "precision", list(METHODS.values()), rows, footnotes, figure=figure)


def figure5(study: Study) -> PaperTable:
    (corpus,) = study.places.values()
    changed = grid_changes(GRID[: study.options.cells])
    # Footnote 7 fixes the rest of the grid search; the other values are the protocol's.
    fixed = {"task.dropout": 0.1, "federation.evaluate_on": ["test"]}
    arms = {
        (method, change): (
            f"{named(method, 0.1)}-{change.replace('=', '').replace(' ', '-')}",
            {**arm(method, 0.1), **own, **fixed},
        )
        for method in METHODS
        for change, own in changed.items()
    }
    runs = study.run(corpus, dict(arms.values()))
    points = {key: [_by_round(run) for run in runs[name]] for key, (name, _) in arms.items()}
    last = max(round for repeats in points.values() for run in repeats for round in run)
    shown = np.unique(np.linspace(1, last, min(last, 5)).round().astype(int)).tolist()
    rows, panels = [], {}
    for method, title in METHODS.items():
        own = {change: points[method, change] for change in changed}
        for change, repeats in own.items():
            cells = [Cell(None, [run.get(round) for run in repeats]) for round in shown]
            rows.append(Row(change, [*cells, Cell(None, [max(run.values()) for run in repeats])], title))
        panels[title] = [Curve(change, sorted(run.items())) for change, repeats in own.items() for run in repeats]
    footnotes = [
        f"Area under the curve of {_drawn(TOP)}, on test data by round, at C=0.1 and a dropout of 0.1.",
        "The values of B and E that the paper draws can't be read from its text, but for B=64 and E=1: these are ours.",
        _NO_NUMBERS,
    ]
    figure = by_round(study.target.title, panels, {}, "AUC")
    columns = [*(f"round {round}" for round in shown), "highest"]
    return PaperTable(study.name, "", "share", "B and E", columns, rows, footnotes, figure=figure)


BY_CHANCE = "in any order"
_ON_TEST = "The paper's public code chooses its best round on the test set."
_NO_NUMBERS = "The paper draws this figure without numbers."


def _all_methods(study: Study) -> tuple[str, dict[str, list[Run]], Sequence[float]]:
    """The corpus, the runs of every method at every C, and the Cs."""
    (corpus,) = study.places.values()
    fractions = FRACTIONS[: study.options.cells]
    return corpus, study.run(corpus, {named(m, c): arm(m, c) for c in fractions for m in METHODS}), fractions


def _drawn(top: int | None) -> str:
    return "all answers" if top is None else f"the {top:,} most confident answers"


def _test(runs: Sequence[Run], score: str) -> list[float | None]:
    return [getattr(run.test, score, None) for run in runs]


def _chance(run: Run, top: int | None) -> float | None:
    """What answers in any order would get: the share of right ones, all along the recall that so many give."""
    share, facts = getattr(run.test, "baseline_auc", None), getattr(run.test, "facts", None)
    if share is None or not facts:
        return share
    return float(share if top is None else share * min(1.0, top * share / facts))


def _points(run: Run, top: int | None) -> Points:
    """Recall and precision; a point's place among the answers is how many are right, by their share."""
    curve, facts = getattr(run.test, "curve", {}), getattr(run.test, "facts", 0)
    points = zip(curve.get("recall", ()), curve.get("precision", ()), strict=True)
    return [(r, p) for r, p in points if top is None or r * facts <= top * p + 1e-6]


def _at_recall(points: Points, level: float) -> float | None:
    return percent(next((p for r, p in points if r >= level), None))


def _by_round(run: Run) -> dict[int, float]:
    return {r.round: r.test.auc_2000 or 0.0 for r in run.rounds if r.test}


PAPER = Paper(
    "fedds",
    "FedDS",
    {
        "table2": Target("P@N on NYT10", ("nyt10",), precision_at),
        "table3": Target("AUC on NYT10", ("nyt10",), partial(areas, score="auc_2000")),
        "table4": Target("P@N on MIRGENE", ("mirgene",), precision_at),
        "table5": Target("AUC on MIRGENE", ("mirgene",), partial(areas, score="auc")),
        "figure3": Target("precision and recall on NYT10", ("nyt10",), partial(curves, top=TOP)),
        "figure4": Target("precision and recall on MIRGENE", ("mirgene",), partial(curves, top=None)),
        "figure5": Target("AUC by round, batch size and local epochs", ("nyt10",), figure5),
    },
    content,
    lambda corpus: STATED,
    "not said",
    BAGS,
    SETTINGS_HERE,
    rounds=50,
    target_f1=None,
)
