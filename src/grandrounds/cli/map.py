"""`grandrounds map`: when does a system's idea work?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.table import Table

from grandrounds.cli.arms import LiveRuns
from grandrounds.cli.console import err, out
from grandrounds.cli.options import JsonOption, ProcessesOption
from grandrounds.maps import SYSTEMS, declared

if TYPE_CHECKING:
    from grandrounds.maps.result import MapResult
    from grandrounds.simulation.sweep import Arm


def map(
    system: Annotated[str, typer.Argument(help=f"Which system: {', '.join(SYSTEMS)}.", metavar="SYSTEM")],
    out_folder: Annotated[
        Optional[Path],
        typer.Option(
            "--out",
            help="The folder, by default runs/map/SYSTEM; with the same folder, a stopped command continues.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many runs of each arm in each cell, with seeds 1 to N.", min=1)] = 3,
    processes: ProcessesOption = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="The corners of the map with one seed, for a look in minutes.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--redraw", help="Run nothing: draw again from the map.json in --out.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Map when a system's idea works: its advantage over its best rival, with 95% intervals, over two properties of
    synthetic hospitals.

    Each arm's learning rate is chosen on validation data at the middle of the map. Then every arm runs in every cell.
    Writes map.json, map.svg and map.md. A whole map takes about an hour of one core; no data are needed.

    Example: `grandrounds map lazy_mil --quick`
    """
    from grandrounds.maps.make import QUICK, WHOLE, make_map, redraw
    from grandrounds.simulation.sweep import run_arms

    declaration = declared(system)
    folder = out_folder or Path("runs") / "map" / system

    def run_all(what: str, arms: Sequence[Arm]) -> None:
        with LiveRuns(what, arms) as live:
            run_arms(arms, Path(), processes, live, poll=1.0, reuse=True)

    made = redraw(folder, quick) if again else make_map(declaration, folder, seeds, run_all, quick)
    if as_json:
        typer.echo(made.to_json(), nl=False)
        return
    show(made)
    stem = QUICK if quick else WHOLE
    out.print(f"Picture, table and figures are {stem}.svg, {stem}.md and {stem}.json in {folder}", soft_wrap=True)


def show(made: MapResult) -> None:
    from grandrounds.reports.wording import interval, signed

    table = Table(title=made.question)
    for name in (made.x.name, made.y.name, "advantage", "95% interval", "over", "verdict"):
        table.add_column(name, overflow="fold")
    for cell in made.cells:
        between = interval(cell.low, cell.high, signed)
        table.add_row(f"{cell.x:g}", f"{cell.y:g}", signed(cell.advantage), between, cell.best_rival, cell.verdict)
    out.print(table)
    for warning in made.warnings:
        err.print(f"  {warning}", soft_wrap=True)
    out.print(made.sentence, soft_wrap=True)
