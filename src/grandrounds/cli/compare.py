"""`grandrounds compare`: algorithms on equal setup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.arms import LiveArms
from grandrounds.cli.console import out
from grandrounds.cli.options import ConfigPath, DataOption, ImportOption, JsonOption, ProcessesOption

if TYPE_CHECKING:
    from grandrounds.reports.tables import ComparisonRow


def compare(
    config: ConfigPath,
    overrides: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Config keys to change in every arm, unless its [compare.NAME] table sets them.", metavar="KEY=VALUE"
        ),
    ] = None,
    algorithms: Annotated[
        str, typer.Option(help="The arms, separated by commas: algorithms, or names of [compare.NAME] tables.")
    ] = "fedavg,fedatt",
    seeds: Annotated[
        int, typer.Option(help="How many runs of each arm, with the config's seed and the next ones.", min=1)
    ] = 1,
    baseline: Annotated[
        Optional[str], typer.Option(help="The arm that others are compared with; by default the first.", metavar="ARM")
    ] = None,
    settings: Annotated[
        Optional[Path],
        typer.Option(help="A TOML file with further [compare.NAME] tables, such as a search's chosen.toml."),
    ] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="The folder for the runs; with the same folder, a stopped command continues.")
    ] = Path("runs/compare"),
    processes: ProcessesOption = 1,
    data: DataOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare algorithms on one config: scores and differences with 95% intervals, and the steps, examples and bytes
    that each took, as tables, CSV, JSON and a report.

    Example: `grandrounds compare experiments/synthetic.toml --algorithms local_only,fedavg,fedatt --seeds 3`
    """
    from grandrounds.config.schema import load_config
    from grandrounds.reports.compare import compare as run_and_compare
    from grandrounds.reports.tables import to_json, words

    with LiveArms() as live:
        rows = run_and_compare(
            load_config(config, overrides or [], imports or []),
            arm_names(algorithms),
            seeds,
            out=out_folder,
            data=data or config.parent,
            baseline=baseline,
            settings=settings,
            processes=processes,
            watch=live,
        )
    if as_json:
        typer.echo(to_json(rows))
    else:
        show(rows, f"{config.stem}: test {words(rows)}", seeds)
        out.print(f"Runs, compare.csv, compare.json and report.html are in {out_folder}", soft_wrap=True)


def show(rows: Sequence[ComparisonRow], title: str, seeds: int) -> None:
    from grandrounds.reports.evidence import remarks
    from grandrounds.reports.tables import differences, rich_table

    out.print(rich_table(rows, title))
    if (table := differences(rows)) is not None:
        out.print(table)
    for sentence in remarks(rows, seeds):
        out.print(sentence, soft_wrap=True)


def arm_names(algorithms: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in algorithms.split(",") if name.strip()))
