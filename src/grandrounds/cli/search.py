"""`grandrounds search`: a grid of settings, chosen on validation data for each arm."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.table import Table

from grandrounds.cli.arms import LiveArms
from grandrounds.cli.compare import names_in
from grandrounds.cli.console import out, show_json
from grandrounds.cli.options import ConfigPath, DataOption, ImportOption, JsonOption, ProcessesOption
from grandrounds.config.overrides import parse_override
from grandrounds.errors import ConfigError

if TYPE_CHECKING:
    from grandrounds.runs.choice import Choice

CHOSEN = "chosen.toml"


def search(
    config: ConfigPath,
    grid: Annotated[
        list[str], typer.Argument(help="Settings to try: training.learning_rate=1e-5,5e-5", metavar="KEY=A,B,...")
    ],
    algorithms: Annotated[
        Optional[str],
        typer.Option(
            help="The arms to choose settings for, separated by commas, as in compare; by default the config as it is."
        ),
    ] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="The folder for the runs; with the same folder, a stopped command continues.")
    ] = Path("runs/search"),
    processes: ProcessesOption = 1,
    data: DataOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try every combination of settings and choose the best one for each arm: by validation F1, by AUC if answers are
    ranked, or by the loss of a language model. The test score is shown only for the chosen settings.

    The choice is written as [compare.ARM] tables, for `compare --settings`.

    Example: `grandrounds search experiments/synthetic.toml training.learning_rate=2e-4,5e-4 training.epochs=1,2
    --algorithms fedavg,fedatt data.validation=0.1`
    """
    import tomli_w

    from grandrounds.config.schema import load_config, make_config
    from grandrounds.federation.files import write_whole
    from grandrounds.reports.compare import check_arms
    from grandrounds.runs.choice import Choice
    from grandrounds.runs.provenance import provenance
    from grandrounds.simulation.sweep import Arm, arm_config, run_arms

    axes = dict(_axis(text) for text in grid)
    settings = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    loaded = load_config(config, imports=imports or [])
    base = loaded.model_dump(exclude_none=True)
    names = names_in(algorithms) if algorithms is not None else [str(base["algorithm"]["name"])]
    check_arms(loaded, names)
    arms = []
    for name in names:
        for number, setting in enumerate(settings, start=1):
            made = make_config(base, setting) if algorithms is None else arm_config(loaded, name, setting)
            if made.data.validation == 0:
                raise ConfigError(
                    "a search chooses on validation data; set data.validation, such as data.validation=0.1"
                )
            arms.append(Arm(name, made, out_folder / f"{name}-{number:03d}"))
    with LiveArms() as live:
        results = run_arms(arms, data or config.parent, processes, live, reuse=True)
    choices = {
        name: Choice.of(axes, settings, [found for arm, found in zip(arms, results, strict=True) if arm.name == name])
        for name in names
    }
    content = {**provenance(), "arms": {name: choice.to_dict() for name, choice in choices.items()}}
    write_whole(out_folder / "search.json", (json.dumps(content, indent=1) + "\n").encode())
    chosen = {"compare": {name: dict(choice.best) for name, choice in choices.items()}}
    write_whole(out_folder / CHOSEN, tomli_w.dumps(chosen).encode())
    if as_json:
        show_json(content)
        return
    for name, choice in choices.items():
        _show(name, choice)
    compared = ["grandrounds", "compare", config, "--settings", out_folder / CHOSEN, "--algorithms", ",".join(names)]
    compared += [word for name in imports or [] for word in ("--import", name)]
    compared += [] if data is None else ["--data", data]
    command = shlex.join(map(str, compared))
    out.print(f"The choice is in {out_folder / CHOSEN}; to compare: {command}", soft_wrap=True)


def _show(name: str, choice: Choice) -> None:
    from grandrounds.reports.wording import score as figure

    objective = choice.objective
    table = Table(title=f"{name}: validation {objective.name}")
    for key in choice.best:
        table.add_column(key, overflow="fold")
    table.add_column(objective.name, justify="right", no_wrap=True)
    for setting, found in choice.ranked:
        table.add_row(*(str(value) for value in setting.values()), figure(found.value(objective)))
    out.print(table)
    tested = f"; its test {objective.name} is {figure(choice.test.value(objective))}" if choice.test else ""
    chosen = " ".join(f"{key}={value}" for key, value in choice.best.items())
    out.print(f"Chosen for {name} by validation {objective.name}: {chosen}{tested}", soft_wrap=True)
    for key in choice.edges:
        out.print(f"  {key}={choice.best[key]} is at the edge of the grid; try values beyond it", soft_wrap=True)


def _axis(text: str) -> tuple[str, list[Any]]:
    key, _, values = text.partition("=")
    if not values:
        raise ConfigError(f"'{text}' is not a setting; write it as key=value,value, such as training.epochs=1,2")
    return key, [parse_override(f"{key}={value}")[1] for value in values.split(",")]
