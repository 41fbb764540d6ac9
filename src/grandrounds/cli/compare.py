"""`grandrounds compare`: algorithms on equal ground."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from grandrounds.cli.console import LiveArms, out
from grandrounds.cli.run import ConfigPath, DataOption, JsonOption
from grandrounds.errors import ConfigError, unknown
from grandrounds.experiment.config import Config, load_config
from grandrounds.experiment.many import Arm, arms_of, run_arms
from grandrounds.federation.contract import ALGORITHMS
from grandrounds.reports.report import write_report
from grandrounds.reports.runs import Result
from grandrounds.reports.tables import ComparisonRow, comparison_rows, rich_table, to_csv, to_json, words

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
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go; started again, it goes on.")] = Path(
        "runs/compare"
    ),
    processes: ProcessesOption = 1,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare algorithms on one config: mean, median and spread over seeds, as a table, CSV, JSON and a report.

    Example: `grandrounds compare experiments/synthetic.toml --algorithms local_only,fedavg,fedatt --seeds 3`
    """
    loaded = load_config(config, overrides or [])
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    check_arms(loaded, names)
    arms = arms_of(loaded, names, [loaded.seed + i for i in range(seeds)], out_folder)
    rows = compare_arms(arms, data or config.parent, processes, out_folder)
    if as_json:
        typer.echo(to_json(rows))
    else:
        out.print(rich_table(rows, f"{config.stem}: test {words(rows)}"))
        out.print(f"Runs, compare.csv, compare.json and report.html are in {out_folder}", soft_wrap=True)


def check_arms(config: Config, names: Sequence[str]) -> None:
    known = {*ALGORITHMS, *config.compare}
    for name in names:
        if name not in known:
            raise ConfigError(unknown("algorithm", name, known))
    if not names:
        raise ConfigError(f"--algorithms names none; known: {', '.join(sorted(known))}")


def compare_arms(arms: Sequence[Arm], base: Path, processes: int, folder: Path) -> list[ComparisonRow]:
    with LiveArms(arms) as live:
        results = run_arms(arms, base, processes, live)
    rows = comparison_rows([Result.model_validate(result) for result in results], [arm.name for arm in arms])
    (folder / "compare.csv").write_text(to_csv(rows), encoding="utf-8")
    content = {
        "rows": json.loads(to_json(rows)),
        "runs": [_brief(arm, result) for arm, result in zip(arms, results, strict=True)],
    }
    (folder / "compare.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_report([arm.folder for arm in arms], folder / "report.html")
    return rows


def _brief(arm: Arm, result: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "algorithm",
        "seed",
        "rounds",
        "test",
        "seconds",
        "bytes_up_per_site_round",
        "bytes_down_per_site_round",
        "peak_memory_mb",
    )
    return {"name": arm.name, **{key: result[key] for key in kept}}
