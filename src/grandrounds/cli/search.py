"""`grandrounds search`: a grid of settings, chosen on validation data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from grandrounds.cli.compare import ProcessesOption
from grandrounds.cli.console import LiveArms, out, show_json
from grandrounds.cli.run import ConfigPath, DataOption, JsonOption
from grandrounds.errors import ConfigError
from grandrounds.experiment.config import load_config, make_config, parse_override
from grandrounds.experiment.many import Arm, run_arms
from grandrounds.metrics.score import Headline, Score


def search(
    config: ConfigPath,
    grid: Annotated[
        list[str], typer.Argument(help="Settings to try: training.learning_rate=1e-5,5e-5", metavar="KEY=A,B,...")
    ],
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go; started again, it goes on.")] = Path(
        "runs/search"
    ),
    processes: ProcessesOption = 1,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try every combination and choose the best validation F1 or, where answers are ranked, AUC, or of a language model
    the lowest loss; the test score is
    shown for the chosen one only.

    Example: `grandrounds search experiments/synthetic.toml training.learning_rate=2e-4,5e-4 training.epochs=1,2
    data.validation=0.1`
    """
    axes = [_axis(text) for text in grid]
    settings = [
        dict(choice) for choice in itertools.product(*([(key, value) for value in values] for key, values in axes))
    ]
    content = load_config(config).model_dump(exclude_none=True)
    arms = []
    for number, setting in enumerate(settings, start=1):
        made = make_config(content, setting)
        if made.data.validation == 0:
            raise ConfigError("a search chooses on validation data; set data.validation, such as data.validation=0.1")
        arms.append(Arm(_words(setting), made, out_folder / f"{number:03d}"))
    with LiveArms(arms) as live:
        results = run_arms(arms, data or config.parent, processes, live)
    _show(settings, results, as_json)


def _axis(text: str) -> tuple[str, list[Any]]:
    key, _, values = text.partition("=")
    if not values:
        raise ConfigError(f"'{text}' is not a setting; write it as key=value,value, such as training.epochs=1,2")
    return key, [parse_override(f"{key}={value}")[1] for value in values.split(",")]


def _words(setting: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in setting.items())


def _show(settings: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]], as_json: bool) -> None:
    word = _headline(results[0]["validation"]).word
    ranked = sorted(zip(settings, results, strict=True), key=lambda pair: -_headline(pair[1]["validation"]).better)
    best, result = ranked[0]
    test = result["test"]
    if as_json:
        keys = [key for key in dict.fromkeys((word.lower(), "f1")) if key in result["validation"]]
        rows = [
            {"setting": setting} | {f"validation_{key}": found["validation"][key] for key in keys}
            for setting, found in ranked
        ]
        tested = {f"test_{key}": (test or {}).get(key) for key in keys}
        show_json({"criterion": word.lower(), "rows": rows, "best": best, **tested})
        return
    table = Table(title=f"search: validation {word}")
    for key in best:
        table.add_column(key)
    table.add_column(word, justify="right")
    for setting, found in ranked:
        table.add_row(*(str(value) for value in setting.values()), f"{_value(found['validation']):.3f}")
    out.print(table)
    told = f"; its test {word} is {_value(test):.3f}" if test else ""
    out.print(f"Chosen by validation {word}: {_words(best)}{told}", soft_wrap=True)


def _headline(score: dict[str, Any]) -> Headline:
    return Score.model_validate(score).headline


def _value(score: dict[str, Any]) -> float:
    return _headline(score).value or 0.0
