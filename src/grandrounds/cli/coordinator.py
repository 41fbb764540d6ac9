"""`grandrounds coordinator`: run a federation between hosts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.console import Group
from rich.live import Live as Drawing
from rich.table import Table
from rich.text import Text

from grandrounds.cli.console import Live, err, out, show_json
from grandrounds.cli.federation import INSECURE, require_flower
from grandrounds.cli.options import JsonOption, require_web

if TYPE_CHECKING:
    from grandrounds.deployment.flower.grid import Roster


def coordinator(
    folder: Annotated[Path, typer.Argument(help="The federation's folder.", metavar="DIR")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last finished round.")] = False,
    at_least: Annotated[
        Optional[int], typer.Option(help="Start when this many sites have joined; by default all.", min=1)
    ] = None,
    view: Annotated[
        bool, typer.Option("--view", help="Show the run on a page, as `grandrounds view` does; prints its address.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start Flower's SuperLink, wait for the sites, run the experiment.

    Killed at any moment, the same command with --resume goes on; sites come back by themselves. At the
    end the run's folder has its report.

    Example: `grandrounds coordinator consortium --resume`
    """
    require_flower()
    from grandrounds.cli.scores import score_table
    from grandrounds.deployment.consortium import Consortium, coordinate
    from grandrounds.reports.report import write_report

    consortium = Consortium(folder)
    if consortium.founded.insecure:
        err.print(f"  {INSECURE}", soft_wrap=True)
    if view:
        require_web()
        from grandrounds.web.view.server import beside

        err.print(f"  the run's page: {beside(folder)}", soft_wrap=True)
    with LiveSites() as watcher:
        result = coordinate(consortium, watcher, resume=resume, at_least=at_least)
    run = folder / "run"
    page = write_report([run], run / "report.html")
    if as_json:
        show_json(result.to_dict())
        return
    if result.test is not None:
        out.print(score_table(f"Test: {result.algorithm}", result.test))
    out.print(f"The run is in {run}, its report in {page}", soft_wrap=True)


class LiveSites(Live):
    """A run's progress, with a table of its sites."""

    def __init__(self) -> None:
        super().__init__()
        self._drawing = Drawing(console=err, refresh_per_second=4, transient=True)
        self._drawn = 0.0

    def __enter__(self) -> LiveSites:
        if err.is_terminal:
            self._drawing.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._drawing.stop()

    def sites(self, roster: Roster) -> None:
        if not err.is_terminal or time.monotonic() - self._drawn < 0.25:
            return
        self._drawn = time.monotonic()
        if self._preparing in self.bars.task_ids:
            self.bars.update(self._preparing, description="waiting for the sites")
        self._drawing.update(Group(self.bars, sites_table(roster)))


def sites_table(roster: Roster) -> Table:
    from grandrounds.reports.wording import byte_size

    table = Table(title="Sites")
    for name in ("site", "", "doing", "sent us", "got", "last seen"):
        table.add_column(name, justify="right" if name in ("sent us", "got") else "left")
    for name, presence in roster.sites.items():
        ago = time.time() - presence.seen
        seen = "never" if not presence.seen else "now" if presence.online else f"{ago:.0f} s ago"
        state, style = ("away", "red") if presence.seen else ("not yet here", "dim")
        state, style = ("online", "green") if presence.online else (state, style)
        moved = byte_size(presence.bytes_up), byte_size(presence.bytes_down)
        table.add_row(name, Text(state, style), presence.doing, *moved, seen)
    return table
