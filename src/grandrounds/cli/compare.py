"""`grandrounds compare`: algorithms on equal ground."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import LiveArms, out
from grandrounds.cli.run import ConfigPath, DataOption, JsonOption
from grandrounds.errors import ConfigError, unknown
from grandrounds.experiment.config import Config, load_config, read_settings
from grandrounds.experiment.many import Arm, arms_of, run_arms
from grandrounds.federation.contract import ALGORITHMS
from grandrounds.reports.comparison import comparison
from grandrounds.reports.evidence import remarks
from grandrounds.reports.report import write_report
from grandrounds.reports.tables import ComparisonRow, differences, rich_table, to_csv, to_json, words

ProcessesOption = Annotated[
    int, typer.Option("--processes", help="Runs at a time, each in a process of its own.", min=1)
]


def compare(
    config: ConfigPath,
    overrides: Annotated[
        Optional[list[str]],
        typer.Argument(help="What to change in every arm, but for what its [compare.NAME] says.", metavar="KEY=VALUE"),
    ] = None,
    algorithms: Annotated[
        str, typer.Option(help="Arms, with commas: algorithms, or names of [compare.NAME] tables.")
    ] = "fedavg,fedatt",
    seeds: Annotated[int, typer.Option(help="Runs of each arm, with seeds 1 to N.", min=1)] = 1,
    baseline: Annotated[
        Optional[str], typer.Option(help="The arm that others are compared with; by default the first.", metavar="ARM")
    ] = None,
    settings: Annotated[
        Optional[Path],
        typer.Option(help="A TOML file with further [compare.NAME] tables, such as a search's chosen.toml."),
    ] = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go; started again, it goes on.")] = Path(
        "runs/compare"
    ),
    processes: ProcessesOption = 1,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare algorithms on one config: scores and differences with 95% intervals, beside the steps, examples and bytes
    that they took, as tables, CSV, JSON and a report.

    Example: `grandrounds compare experiments/synthetic.toml --algorithms local_only,fedavg,fedatt --seeds 3`
    """
    loaded = load_config(config, overrides or [])
    if settings is not None:
        loaded = read_settings(loaded, settings)
    names = arm_names(algorithms)
    check_arms(loaded, names)
    if baseline is not None and baseline not in names:
        raise ConfigError(unknown("arm for --baseline", baseline, names))
    arms = arms_of(loaded, names, [loaded.seed + i for i in range(seeds)], out_folder)
    rows = compare_arms(arms, data or config.parent, processes, out_folder, baseline)
    if as_json:
        typer.echo(to_json(rows))
    else:
        show(rows, f"{config.stem}: test {words(rows)}", seeds)
        out.print(f"Runs, compare.csv, compare.json and report.html are in {out_folder}", soft_wrap=True)


def show(rows: Sequence[ComparisonRow], title: str, seeds: int) -> None:
    out.print(rich_table(rows, title))
    if (table := differences(rows)) is not None:
        out.print(table)
    for sentence in remarks(rows, seeds):
        out.print(sentence, soft_wrap=True, markup=False)


def arm_names(algorithms: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in algorithms.split(",") if name.strip()))


def check_arms(config: Config, names: Sequence[str]) -> None:
    known = {*ALGORITHMS, *config.compare}
    for name in names:
        if name not in known:
            raise ConfigError(unknown("algorithm", name, known))
    if not names:
        raise ConfigError(f"--algorithms names none; known: {', '.join(sorted(known))}")


def compare_arms(
    arms: Sequence[Arm], base: Path, processes: int, folder: Path, baseline: str | None = None
) -> list[ComparisonRow]:
    """The arms' rows, in the files of the folder too; the baseline is the first arm unless another is named."""
    with LiveArms(arms) as live:
        run_arms(arms, base, processes, live)
    rows, content = comparison([(arm.name, arm.folder) for arm in arms], baseline or arms[0].name, folder)
    (folder / "compare.csv").write_text(to_csv(rows), encoding="utf-8")
    (folder / "compare.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_report([arm.folder for arm in arms], folder / "report.html")
    return rows
