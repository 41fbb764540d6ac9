"""The files of a comparison: its rows as CSV and JSON with what made them, and a report of all runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grandrounds.experiment.many import Arm
from grandrounds.experiment.provenance import provenance
from grandrounds.metrics.outcomes import OUTCOMES
from grandrounds.metrics.score import Score
from grandrounds.reports.evidence import remarks, with_evidence
from grandrounds.reports.report import write_report
from grandrounds.reports.runs import Result
from grandrounds.reports.tables import ComparisonRow, comparison_rows, to_csv, to_json

KEPT = (
    "algorithm",
    "seed",
    "rounds",
    "best_round",
    "selected_by",
    "validation",
    "test",
    "seconds",
    "steps",
    "examples",
    "bytes_up",
    "bytes_down",
    "bytes_up_per_site_round",
    "bytes_down_per_site_round",
    "peak_memory_mb",
    "commit",
)
"""What compare.json repeats of each run's result.json."""


def write_comparison(
    arms: Sequence[Arm], results: Sequence[dict[str, Any]], folder: Path, baseline: str | None = None
) -> list[ComparisonRow]:
    """The arms' rows, in the files of the folder too; the baseline is the first arm unless another is named."""
    names = [arm.name for arm in arms]
    rows = comparison_rows([Result.model_validate(result) for result in results], names)
    folders = {name: [arm.folder for arm in arms if arm.name == name] for name in names}
    rows = with_evidence(rows, folders, baseline or names[0])
    (folder / "compare.csv").write_text(to_csv(rows), encoding="utf-8")
    content = {
        **provenance(),
        "rows": json.loads(to_json(rows)),
        "remarks": list(remarks(rows, len(folders[names[0]]))),
        "runs": [_brief(arm, result, folder) for arm, result in zip(arms, results, strict=True)],
    }
    (folder / "compare.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_report([arm.folder for arm in arms], folder / "report.html")
    return rows


def _brief(arm: Arm, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    outcomes = arm.folder / OUTCOMES
    return {
        "name": arm.name,
        **{key: result.get(key) for key in KEPT},
        "history": _history(arm),
        "outcomes": str(outcomes.relative_to(folder)) if outcomes.exists() else None,
    }


def _history(arm: Arm) -> list[dict[str, float | None]]:
    """By round what the run is judged by on validation data, where it was measured."""
    lines = [json.loads(line) for line in (arm.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        {"round": line["round"], "validation": Score.model_validate(line["validation"]).headline.value}
        for line in lines
        if "validation" in line
    ]
