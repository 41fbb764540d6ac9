"""Finished run folders as one comparison: its rows with their evidence, and what compare.json holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from grandrounds.metrics.outcomes import OUTCOMES
from grandrounds.reports.evidence import Evidence, remarks, with_evidence
from grandrounds.reports.grid import average_ranks, grid_page
from grandrounds.reports.report import write_report
from grandrounds.reports.tables import ComparisonRow, comparison_rows, to_csv, to_json
from grandrounds.reports.targets import with_targets
from grandrounds.runs.provenance import provenance
from grandrounds.runs.results import Result, read_result, read_rounds
from grandrounds.simulation.cells import Cell

KEPT = (
    "algorithm",
    "seed",
    "rounds",
    "best_round",
    "selected_by",
    "objective",
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


def comparison(
    runs: Sequence[tuple[str, Path]], baseline: str, folder: Path
) -> tuple[list[ComparisonRow], dict[str, Any]]:
    """Of runs, each the name of its arm and where it is: the rows, and all for a JSON, with paths from the folder."""
    results = [read_result(place) for _, place in runs]
    names = [name for name, _ in runs]
    folders = {name: [place for own, place in runs if own == name] for name in names}
    evidence = Evidence.of(folders)
    rows = with_targets(with_evidence(comparison_rows(results, names), evidence, baseline), folders)
    content = {
        **provenance(),
        "rows": json.loads(to_json(rows)),
        "differences": evidence.differences(),
        "remarks": list(remarks(rows, len(folders[names[0]]))),
        "runs": [_brief(name, place, own, folder) for (name, place), own in zip(runs, results, strict=True)],
    }
    return rows, content


def write_cells(cells: Sequence[Cell], baseline: str, folder: Path) -> list[ComparisonRow]:
    """The rows of all cells, also as compare.csv, compare.json and report.html in the folder. Each cell's own folder
    has the same of it alone, with its differences."""
    rows = [
        replace(row, corpus=cell.corpus, partition=cell.partition)
        for cell in cells
        for row in write_comparison(cell.runs, baseline, cell.folder)
    ]
    ranks = average_ranks(rows)
    runs = {arm.folder: arm for cell in cells for arm in cell.arms}
    content = {
        **provenance(),
        "rows": json.loads(to_json(rows)),
        "ranks": [asdict(rank) for rank in ranks],
        "cells": [
            {"corpus": cell.corpus, "partition": cell.partition, "folder": str(cell.folder.relative_to(folder))}
            for cell in cells
        ],
        "runs": [_brief(arm.name, place, read_result(place), folder) for place, arm in runs.items()],
    }
    (folder / "compare.csv").write_text(to_csv(rows), encoding="utf-8")
    (folder / "compare.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    places = {cell.name: str(cell.folder.relative_to(folder) / "report.html") for cell in cells}
    (folder / "report.html").write_text(grid_page(rows, ranks, places), encoding="utf-8")
    return rows


def write_comparison(runs: Sequence[tuple[str, Path]], baseline: str, folder: Path) -> list[ComparisonRow]:
    """The rows, also as compare.csv, compare.json and report.html in the folder."""
    rows, content = comparison(runs, baseline, folder)
    (folder / "compare.csv").write_text(to_csv(rows), encoding="utf-8")
    (folder / "compare.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_report([place for _, place in runs], folder / "report.html", [name for name, _ in runs], rows)
    return rows


def _brief(name: str, place: Path, result: Result, folder: Path) -> dict[str, Any]:
    outcomes, content = place / OUTCOMES, result.to_dict()
    inside = outcomes.exists() and outcomes.is_relative_to(folder)
    return {
        "name": name,
        **{key: content[key] for key in KEPT},
        "history": _history(place),
        "outcomes": str(outcomes.relative_to(folder)) if inside else None,
    }


def _history(place: Path) -> list[dict[str, float | None]]:
    """By round what the run is judged by on validation data, where it was measured."""
    return [
        {"round": line.round, "validation": line.validation.value(line.objective)}
        for line in read_rounds(place)[0]
        if line.validation is not None
    ]
