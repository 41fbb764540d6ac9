"""`grandrounds compare`: algorithms on equal setup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.console import LiveArms, out
from grandrounds.cli.options import ConfigPath, DataOption, ImportOption, JsonOption, ProcessesOption
from grandrounds.errors import ConfigError, unknown
from grandrounds.registry import ALGORITHMS

if TYPE_CHECKING:
    from grandrounds.config.schema import Config
    from grandrounds.reports.tables import ComparisonRow
    from grandrounds.simulation.sweep import Arm


def compare(
    config: ConfigPath,
    overrides: Annotated[
        Optional[list[str]],
        typer.Argument(help="What to change in every arm, but for what its [compare.NAME] says.", metavar="KEY=VALUE"),
    ] = None,
    algorithms: Annotated[
        str, typer.Option(help="Arms, with commas: algorithms, or names of [compare.NAME] tables.")
    ] = "fedavg,fedatt",
    seeds: Annotated[int, typer.Option(help="Runs of each arm: the config's seed and the next ones.", min=1)] = 1,
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
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare algorithms on one config: scores and differences with 95% intervals, beside the steps, examples and bytes
    that they took, as tables, CSV, JSON and a report.

    Example: `grandrounds compare experiments/synthetic.toml --algorithms local_only,fedavg,fedatt --seeds 3`
    """
    from grandrounds.config.schema import load_config, read_settings
    from grandrounds.reports.tables import to_json, words
    from grandrounds.simulation.sweep import arms_of

    loaded = load_config(config, overrides or [], imports or [])
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
    from grandrounds.reports.evidence import remarks
    from grandrounds.reports.tables import differences, rich_table

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
    """Run the arms and write the comparison; the baseline is the first arm unless another is named."""
    from grandrounds.reports.comparison import write_comparison
    from grandrounds.simulation.sweep import run_arms

    with LiveArms(arms) as live:
        run_arms(arms, base, processes, live)
    return write_comparison([(arm.name, arm.folder) for arm in arms], baseline or arms[0].name, folder)
