"""`grandrounds report`: runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import out


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, finished or not.", metavar="RUN...")],
    out_path: Annotated[
        Optional[Path], typer.Option("--out", help="The page; by default report.html in the first run.")
    ] = None,
    tensorboard: Annotated[
        Optional[Path],
        typer.Option(help="Write events for TensorBoard to this folder instead.", metavar="DIR"),
    ] = None,
) -> None:
    """Write a self-contained HTML page: curves by round, bytes, classes, what each site holds, the config.

    Example: `grandrounds report runs/compare/*/ --out comparison.html`
    """
    if tensorboard:
        from grandrounds.reports.tensorboard import write_events

        write_events(runs, tensorboard)
        out.print(str(tensorboard), soft_wrap=True)
        return
    from grandrounds.reports.report import write_report

    out.print(str(write_report(runs, out_path or runs[0] / "report.html")), soft_wrap=True)
