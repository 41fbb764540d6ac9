"""`grandrounds demo`: six synthetic hospitals, alone and together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.compare import show
from grandrounds.cli.console import LiveArms, err, out
from grandrounds.cli.options import JsonOption

if TYPE_CHECKING:
    from grandrounds.reports.tables import ComparisonRow

ALGORITHMS = ("fedavg", "feded", "fedatt", "local_only", "centralized")  # the longest early, so that no core waits


def demo(
    overrides: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Config keys to change, unless an arm sets them: data.options.notes=20", metavar="KEY=VALUE"
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="How many runs of each arm, with the config's seed and the next ones.", min=1)
    ] = 1,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Six synthetic hospitals learn to extract relations: each alone, federated, and with all data in one place.

    Takes about four minutes on two cores. What it runs is an ordinary config, shown in the report.
    """
    from grandrounds.config.schema import load_config
    from grandrounds.reports.compare import compare
    from grandrounds.reports.tables import to_json

    with as_file(files("grandrounds.cli") / "demo.toml") as path:
        config = load_config(path, overrides or [])
    err.print(
        "Six synthetic hospitals hold notes they may not share. local_only trains each alone; fedavg and fedatt train "
        "them together without moving a note; feded uploads only predictions on the server's own "
        "sentences; centralized shows what one big hospital could do."
    )
    processes = min(os.cpu_count() or 1, len(ALGORITHMS) * seeds, 4)
    with LiveArms() as live:
        rows = compare(config, ALGORITHMS, seeds, out=out_folder, processes=processes, watch=live)
    if as_json:
        typer.echo(to_json(rows))
    else:
        show(rows, "test F1 over all hospitals' notes", seeds)
        out.print(_less(rows), soft_wrap=True)
        out.print(f"The report: {out_folder / 'report.html'}", soft_wrap=True)
        first = ALGORITHMS[0] if seeds == 1 else f"{ALGORITHMS[0]}-seed{config.seed}"
        out.print(f"Try it: grandrounds extract {out_folder / first / 'model'} --help", soft_wrap=True)


def _less(rows: Sequence[ComparisonRow]) -> str:
    from grandrounds.reports.wording import byte_size

    up = {row.name: 1e6 * (row.mb_up_per_site_round or 0.0) for row in rows}
    return (
        f"A site of feded uploads {byte_size(up['feded'])} a round, one of fedavg {byte_size(up['fedavg'])}: "
        f"{up['fedavg'] / up['feded']:,.0f} times as much. With a larger encoder feded's stays what it is."
    )
