"""What the files of several papers take from runs: scores in percent, trivial baselines, rounds to a target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.paper import Cell, Row
from grandrounds.papers.protocol import Study
from grandrounds.reports.runs import Run
from grandrounds.reports.wording import plural

NOT_THEIRS = "Not in the paper"


@cache
def printed(paper: str) -> Any:
    """What the paper prints."""
    return json.loads((files("grandrounds.papers") / "numbers" / f"{paper}.json").read_text(encoding="utf-8"))


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def scores(runs: Sequence[Run], names: Iterable[str] = ("precision", "recall", "f1")) -> list[list[float | None]]:
    """Figures of the test in percent, each a value a seed; a task's further ones (Ign-F1) go by their names too."""
    return [[percent(getattr(run.test, name, None)) for run in runs] for name in names]


def beside(theirs: Sequence[float | None], measured: Sequence[Sequence[float | None]]) -> list[Cell]:
    return [Cell(p, m) for p, m in zip(theirs, measured, strict=True)]


def quoted(rows: Mapping[str, Sequence[float | None]], section: str) -> list[Row]:
    """Other papers' systems."""
    return [Row(who, [Cell(p) for p in theirs], section, quoted=True) for who, theirs in rows.items()]


def trivial(runs: Sequence[Run], columns: int = 3) -> Row:
    """What the trivial answer has of what runs are judged by, in the last column."""
    answers = sorted({run.baseline[0] for run in runs if run.baseline})
    bars = [percent(run.baseline[1]) for run in runs if run.baseline]
    return Row(f"trivial: {' or '.join(answers)}", [*[Cell()] * (columns - 1), Cell(None, bars)], NOT_THEIRS)


def grid_cell(cell: Mapping[str, Any]) -> str:
    return f"B={cell['B']} E={cell['E']}"


def grid_changes(grid: Iterable[Mapping[str, Any]]) -> dict[str, Overrides]:
    """What each cell of a grid over batch size and local epochs changes of the protocol."""
    return {grid_cell(c): {"training.batch_size": c["B"], "training.epochs": c["E"]} for c in grid}


def rounds_to_target(
    study: Study, changed: Mapping[str, Overrides], methods: Mapping[str, Overrides]
) -> dict[tuple[str, str], list[float | None]]:
    """For every change of the protocol and every method, which is an arm of its own, the first round whose test F1
    reaches the target."""
    (corpus,) = study.places.values()
    target = study.options.target_f1
    stop: Overrides = {"federation.stop_at_f1": target, "federation.evaluate_every": 1}
    arms = {
        (change, method): (
            f"{method}-{change.replace('=', '').replace(' ', '-')}-to-{target:g}",
            {**arm, **own, **stop},
        )
        for change, own in changed.items()
        for method, arm in methods.items()
    }
    runs = study.run(corpus, dict(arms.values()))
    return {
        key: [next((round for round, f1 in run.points("test", "f1") if f1 >= target), None) for run in runs[name]]
        for key, (name, _) in arms.items()
    }


def describe_target(options: ReproduceOptions) -> str:
    limit = plural(options.rounds, "round")
    return f"Rounds until the test F1 is {100 * options.target_f1:g}%; – where it is not within {limit}."


def describe_selection(runs: Mapping[str, Sequence[Run]], unit: str = ", in percent") -> str:
    by = {run.result.selected_by for repeats in runs.values() for run in repeats if run.result}
    how = "in the round that validation data choose" if by == {"validation"} else "after the last round"
    return f"Measured on test {how}{unit}: nothing is selected on the test set."


def describe_left_out(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    names = sorted({name for repeats in runs.values() for run in repeats if run.result for name in run.result.left_out})
    return [f"No document's H falls into the interval of {', '.join(names)}: left out."] if names else []
