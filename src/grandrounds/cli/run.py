"""`grandrounds run`: one experiment."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.console import Live, err, out, show_json
from grandrounds.cli.options import ConfigPath, DataOption, ImportOption, JsonOption

if TYPE_CHECKING:
    from grandrounds.runs.results import Result


def run(
    config: ConfigPath,
    overrides: Annotated[
        Optional[list[str]],
        typer.Argument(help="Config keys to change: federation.rounds=5 algorithm.name=fedatt", metavar="KEY=VALUE"),
    ] = None,
    out_folder: Annotated[
        Optional[Path],
        typer.Option("--out", help="The run's folder, new unless you resume; by default runs/CONFIG-TIME."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")
    ] = False,
    data: DataOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment: train across sites, evaluate, save the model and a report.

    Example: `grandrounds run experiments/synthetic.toml federation.rounds=5 --out runs/first`
    """
    from grandrounds.config.schema import load_config
    from grandrounds.reports.report import write_report
    from grandrounds.simulation.run import run as run_experiment

    loaded = load_config(config, overrides or [], imports or [])
    if resume and out_folder is None:
        raise typer.BadParameter("--resume needs --out: the folder of the run to go on with")
    folder = out_folder or Path("runs") / f"{config.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    err.print(f"  run folder: {folder}", soft_wrap=True)
    with Live() as live:
        result = run_experiment(loaded, out=folder, data=data or config.parent, resume=resume, watcher=live)
    page = write_report([folder], folder / "report.html")
    if as_json:
        show_json(result.to_dict())
    else:
        show(result)
        out.print(f"The run is in {folder}, its report in {page}", soft_wrap=True)


def show(result: Result) -> None:
    title = f"{result.algorithm} on {result.task}, test ({result.rounds} rounds, {result.seconds:.0f} s)"
    if result.test is None:
        out.print(f"{title}: no site gave a score")
    else:
        from grandrounds.cli.scores import score_table

        out.print(score_table(title, result.test))
    up, down = result.bytes_up_per_site_round / 1e6, result.bytes_down_per_site_round / 1e6
    err.print(f"  a site and round: {up:.3f} MB up, {down:.3f} MB down; peak memory {result.peak_memory_mb} MB")
