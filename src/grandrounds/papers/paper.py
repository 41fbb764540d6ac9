"""A paper's table with our measurements beside its numbers: for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, median
from typing import Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from grandrounds.reports.wording import ABSENT, byte_size, count

QUOTED = "quoted"
NOT_RUN = "not run"
UNITS: Mapping[str, Callable[[float], str]] = {
    "percent": lambda value: f"{value:.2f}",
    "share": lambda value: f"{value:.4f}",
    "count": lambda value: count(round(value)),
    "number": lambda value: count(round(value)) if value == round(value) else f"{value:.2f}",
    "figure": lambda value: f"{value:.2f}" if abs(value) >= 100 else f"{value:.4g}",
    "rounds": lambda value: f"{value:g}",
    "bytes": byte_size,
    "minutes": lambda value: f"{value:.2f}" if value >= 0.01 else f"{value:.1g}",
}


@dataclass(frozen=True)
class Cell:
    """What the paper prints, and what we measured: a value a seed."""

    paper: float | None = None
    measured: Sequence[float | None] | None = None
    """None: not measured. A None among the values: measured, and there was nothing, as for a target not reached."""
    mean: bool = False
    """Of the seeds, as the paper's; else the median."""

    @property
    def middle(self) -> float | None:
        if not self.measured:
            return None
        values = [inf if value is None else value for value in self.measured]
        middle = fmean(values) if self.mean else median(values)
        return None if middle == inf else middle

    def to_dict(self) -> dict[str, Any]:
        reported: dict[str, Any] = {"paper": self.paper, "measured": self.middle}
        return reported if self.measured is None else {**reported, "runs": list(self.measured)}


@dataclass(frozen=True)
class Row:
    name: str
    cells: Sequence[Cell]
    section: str = ""
    quoted: bool = False
    """Another paper's system, which the paper quotes and nobody runs."""
    not_run: bool = False
    """It could be, but what it needs was not given; a note says what."""

    def texts(self, *units: str) -> list[str]:
        """Paper and measured of each cell, in turn; of one unit, or a unit a cell."""
        printed = any(cell.paper is not None for cell in self.cells)
        texts = []
        for cell, unit in zip(self.cells, units if len(units) > 1 else units * len(self.cells), strict=True):
            texts.append(_shown(cell.paper, unit) if printed else "")
            texts.append(QUOTED if self.quoted else NOT_RUN if self.not_run else _measured(cell, unit))
        return texts


@dataclass(frozen=True)
class Setting:
    """One line of a protocol: what the paper says, and what was run."""

    name: str
    paper: str
    here: str
    differs: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, reproduced."""

    target: str
    title: str
    unit: str
    head: str
    """Over the rows' names."""
    columns: Sequence[str]
    rows: Sequence[Row]
    footnotes: Sequence[str] = ()
    protocol: Sequence[Setting] = ()
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each run changed of the protocol."""
    command: str = ""
    figure: str | None = None
    """SVG."""
    units: Sequence[str] = ()
    """Of the columns, where they have not all the same."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Learning rates that were tried for an arm, their validation scores, and the one that was taken."""

    @property
    def differences(self) -> list[str]:
        """The settings in which this is not the paper's protocol."""
        return [line.name for line in self.protocol if line.differs]

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "title": self.title,
            "unit": self.unit,
            **({"units": dict(zip(self.columns, self.units, strict=True))} if self.units else {}),
            "rows": [
                {
                    "name": row.name,
                    "section": row.section,
                    "quoted": row.quoted,
                    **({"not_run": True} if row.not_run else {}),
                    "cells": {name: cell.to_dict() for name, cell in zip(self.columns, row.cells, strict=True)},
                }
                for row in self.rows
            ],
            "footnotes": list(self.footnotes),
            "protocol": {line.name: {"paper": line.paper, "here": line.here} for line in self.protocol},
            "differs": self.differences,
            "arms": {name: dict(own) for name, own in self.arms.items()},
            **({"search": dict(self.search)} if self.search else {}),
            "command": self.command,
        }

    def to_markdown(self) -> str:
        parts = [f"# {self.title}", f"`{self.command}`"]
        if self.figure:
            parts.append(f"![{self.title}]({self.target}.svg)")
        head = [self.head, *(f"{name}, {which}" for name in self.columns for which in self._which)]
        rows: list[list[str]] = []
        for section, members in self._sections():
            if section:
                rows.append([f"*{section}*", *[""] * (len(head) - 1)])
            rows += [self._texts(row) for row in members]
        parts.append(_markdown(head, rows))
        parts += ["\n".join(f"- {note}" for note in self.footnotes)] if self.footnotes else []
        if self.protocol:
            lines = [[s.name, s.paper, s.here, "differs" if s.differs else ""] for s in self.protocol]
            parts += ["## Protocol", _markdown(["setting", "paper", "here", ""], lines, words=4)]
        changed = {name: own for name, own in self.arms.items() if own}
        if changed:
            reported = [f"- {name}: {', '.join(f'`{k}={v}`' for k, v in own.items())}" for name, own in changed.items()]
            parts.append("What an arm changes of it:\n\n" + "\n".join(reported))
        if self.search:
            chosen = [f"- {name}: `{found['chosen']}` of {_tried(found)}" for name, found in self.search.items()]
            parts.append("Learning rates, chosen by validation with the first seed:\n\n" + "\n".join(chosen))
        return "\n\n".join(parts) + "\n"

    def to_rich(self) -> RichTable:
        table = RichTable(title=Text(self.title), box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column(self.head)
        for name in self.columns:
            for which in self._which:
                table.add_column(f"{name}\n{which}", justify="right", style="dim" if which == "paper" else "")
        for section, members in self._sections():
            if section:
                table.add_section()
                table.add_row(Text(section, style="italic"))
            for row in members:
                table.add_row(*map(Text, self._texts(row)), style="dim" if row.quoted else "")
        return table

    @property
    def _which(self) -> Sequence[str]:
        """A figure may come without any number."""
        printed = any(cell.paper is not None for row in self.rows for cell in row.cells)
        return ("paper", "measured") if printed else ("measured",)

    def _texts(self, row: Row) -> list[str]:
        texts = row.texts(*(self.units or [self.unit]))
        return [row.name, *(texts if "paper" in self._which else texts[1::2])]

    def _sections(self) -> list[tuple[str, list[Row]]]:
        names = dict.fromkeys(row.section for row in self.rows)
        return [(name, [row for row in self.rows if row.section == name]) for name in names]


def _tried(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{rate} ({ABSENT if s is None else f'{s:.4g}'})" for rate, s in found["tried"].items())


def _shown(value: float | None, unit: str) -> str:
    return ABSENT if value is None else UNITS[unit](value)


def _measured(cell: Cell, unit: str) -> str:
    """The middle of the seeds, and their range."""
    if not cell.measured:
        return ""
    middle = _shown(cell.middle, unit)
    ordered = sorted(cell.measured, key=lambda value: inf if value is None else value)
    if ordered[0] == ordered[-1]:
        return middle
    return f"{middle} ({_shown(ordered[0], unit)} to {_shown(ordered[-1], unit)})"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Columns after the first `words` are numbers, set flush right."""
    rule = ["---" if column < words else "---:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])
