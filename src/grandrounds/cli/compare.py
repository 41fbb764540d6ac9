"""`grandrounds compare`: algorithms on equal setup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.arms import LiveArms
from grandrounds.cli.console import out
from grandrounds.cli.options import ConfigPath, DataOption, ImportOption, JsonOption, ProcessesOption
from grandrounds.config.overrides import parse_override

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
        Optional[str],
        typer.Option(
            help="TOML files, separated by commas, with further [compare.NAME] tables, such as a search's chosen.toml.",
            metavar="FILES",
        ),
    ] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="The folder for the runs; with the same folder, a stopped command continues.")
    ] = Path("runs/compare"),
    partitions: Annotated[
        Optional[str],
        typer.Option(
            help="Partitions to compare on, separated by commas, such as iid,dirichlet:0.1,quantity:0.5,time:year,"
            "by:hospital; by default the config's own. partition.sites and partition.unit stay."
        ),
    ] = None,
    corpora: Annotated[
        Optional[str],
        typer.Option(
            help="Corpora to compare on: TOML files, separated by commas. The sections of a file, such as [data] and "
            "[task], take the place of the config's.",
            metavar="FILES",
        ),
    ] = None,
    processes: ProcessesOption = 1,
    data: DataOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare algorithms on one config, or on several partitions and corpora: scores and differences with 95%
    intervals, average ranks, and what each took, in all and to 95% of the score of `centralized`, as tables, CSV, JSON
    and a report.

    Example: `grandrounds compare experiments/synthetic.toml --algorithms local_only,fedavg,fedatt --seeds 3`
    """
    from grandrounds.config.schema import load_config
    from grandrounds.reports.compare import compare as run_and_compare
    from grandrounds.reports.tables import to_json, words

    with LiveArms() as live:
        rows = run_and_compare(
            load_config(config, [] if corpora else overrides or [], imports or []),
            names_in(algorithms),
            seeds,
            dict(map(parse_override, overrides or [])) if corpora else None,
            out=out_folder,
            data=data or config.parent,
            baseline=baseline,
            settings=names_in(settings or ""),
            partitions=names_in(partitions or ""),
            corpora=names_in(corpora or ""),
            processes=processes,
            watch=live,
        )
    if as_json:
        typer.echo(to_json(rows))
        return
    if partitions or corpora:
        show_cells(rows)
    else:
        show(rows, f"{config.stem}: test {words(rows)}", seeds)
    out.print(f"Runs, compare.csv, compare.json and report.html are in {out_folder}", soft_wrap=True)


def show(rows: Sequence[ComparisonRow], title: str, seeds: int) -> None:
    from grandrounds.reports.evidence import remarks
    from grandrounds.reports.grid import target_table
    from grandrounds.reports.tables import differences, rich_table

    out.print(rich_table(rows, title))
    for table in (differences(rows), target_table(rows)):
        if table is not None:
            out.print(table)
    for sentence in remarks(rows, seeds):
        out.print(sentence, soft_wrap=True)


def show_cells(rows: Sequence[ComparisonRow]) -> None:
    from grandrounds.reports.grid import average_ranks, grid_table, target_table

    out.print(grid_table(rows, average_ranks(rows)))
    if (table := target_table(rows)) is not None:
        out.print(table)
    out.print("Intervals and differences are in the report, and with remarks in that of each cell.", soft_wrap=True)


def names_in(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
