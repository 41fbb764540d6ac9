"""`grandrounds search`: a grid of settings, chosen on validation data for each arm."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import tomli_w
import typer
from rich.table import Table

from grandrounds.cli.compare import ProcessesOption, arm_names, check_arms
from grandrounds.cli.console import LiveArms, out, show_json
from grandrounds.cli.run import ConfigPath, DataOption, JsonOption
from grandrounds.errors import ConfigError
from grandrounds.experiment.config import load_config, make_config, parse_override
from grandrounds.experiment.many import Arm, arm_config, run_arms
from grandrounds.experiment.provenance import provenance
from grandrounds.federation.files import write_whole
from grandrounds.metrics.score import Headline, Score
from grandrounds.reproduce.wish import placeless

CHOSEN = "chosen.toml"
Setting = Mapping[str, Any]


def search(
    config: ConfigPath,
    grid: Annotated[
        list[str], typer.Argument(help="Settings to try: training.learning_rate=1e-5,5e-5", metavar="KEY=A,B,...")
    ],
    algorithms: Annotated[
        Optional[str],
        typer.Option(help="Arms to choose for, with commas, as in compare; by default the config as it is."),
    ] = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go; started again, it goes on.")] = Path(
        "runs/search"
    ),
    processes: ProcessesOption = 1,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try every combination and choose the best validation F1 or, where answers are ranked, AUC, or of a language model
    the lowest loss; for each arm by itself. The test score is shown for the chosen ones only.

    What is chosen is written as [compare.ARM] tables, for `compare --settings`.

    Example: `grandrounds search experiments/synthetic.toml training.learning_rate=2e-4,5e-4 training.epochs=1,2
    --algorithms fedavg,fedatt data.validation=0.1`
    """
    axes = dict(_axis(text) for text in grid)
    settings = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    loaded = load_config(config)
    content = loaded.model_dump(exclude_none=True)
    names = arm_names(algorithms) if algorithms is not None else [str(content["algorithm"]["name"])]
    check_arms(loaded, names)
    arms = []
    for name in names:
        for number, setting in enumerate(settings, start=1):
            made = make_config(content, setting) if algorithms is None else arm_config(loaded, name, setting)
            if made.data.validation == 0:
                raise ConfigError(
                    "a search chooses on validation data; set data.validation, such as data.validation=0.1"
                )
            arms.append(Arm(name, made, out_folder / f"{name}-{number:03d}"))
    with LiveArms(arms) as live:
        results = run_arms(arms, data or config.parent, processes, live)
    choices = {
        name: Choice.of(axes, settings, [found for arm, found in zip(arms, results, strict=True) if arm.name == name])
        for name in names
    }
    told = {**provenance(), "arms": {name: choice.to_dict() for name, choice in choices.items()}}
    write_whole(out_folder / "search.json", (json.dumps(told, indent=1) + "\n").encode())
    chosen = {"compare": {name: dict(choice.best) for name, choice in choices.items()}}
    write_whole(out_folder / CHOSEN, tomli_w.dumps(chosen).encode())
    if as_json:
        show_json(told)
        return
    for name, choice in choices.items():
        choice.show(name)
    compared = f"grandrounds compare {config} --settings {out_folder / CHOSEN} --algorithms {','.join(names)}"
    out.print(f"The choice is in {out_folder / CHOSEN}; to compare: {compared}", soft_wrap=True, markup=False)


@dataclass(frozen=True)
class Choice:
    """The settings of one arm, best first, with their scores on validation data."""

    ranked: Sequence[tuple[Setting, dict[str, Any]]]
    test: dict[str, Any] | None
    """Of the best one."""
    edges: Sequence[str]
    """Settings whose best value is the smallest or the largest that was tried."""

    @classmethod
    def of(
        cls, axes: Mapping[str, Sequence[Any]], settings: Sequence[Setting], results: Sequence[dict[str, Any]]
    ) -> Choice:
        pairs = sorted(zip(settings, results, strict=True), key=lambda pair: -_headline(pair[1]["validation"]).better)
        best, result = pairs[0]
        numbers = {key: values for key, values in axes.items() if len(values) > 1 and all(map(_is_number, values))}
        edges = [key for key, values in numbers.items() if best[key] in (min(values), max(values))]
        return cls([(setting, found["validation"]) for setting, found in pairs], result["test"], edges)

    @property
    def best(self) -> Setting:
        return self.ranked[0][0]

    @property
    def word(self) -> str:
        return _headline(self.ranked[0][1]).word

    def to_dict(self) -> dict[str, Any]:
        keys = [key for key in dict.fromkeys((self.word.lower(), "f1")) if key in self.ranked[0][1]]
        rows = [
            {"setting": _told(setting), **{f"validation_{key}": found[key] for key in keys}}
            for setting, found in self.ranked
        ]
        tested = {f"test_{key}": (self.test or {}).get(key) for key in keys}
        return {
            "criterion": self.word.lower(),
            "rows": rows,
            "best": _told(self.best),
            "at_edge": list(self.edges),
            **tested,
        }

    def show(self, name: str) -> None:
        table = Table(title=f"{name}: validation {self.word}")
        for key in self.best:
            table.add_column(key, overflow="fold")
        table.add_column(self.word, justify="right", no_wrap=True)
        for setting, found in self.ranked:
            table.add_row(*(str(value) for value in setting.values()), f"{_value(found):.3f}")
        out.print(table)
        told = f"; its test {self.word} is {_value(self.test):.3f}" if self.test else ""
        chosen = " ".join(f"{key}={value}" for key, value in self.best.items())
        out.print(f"Chosen for {name} by validation {self.word}: {chosen}{told}", soft_wrap=True, markup=False)
        for key in self.edges:
            out.print(f"  {key}={self.best[key]} is at the edge of the grid; try values beyond it", soft_wrap=True)


def _axis(text: str) -> tuple[str, list[Any]]:
    key, _, values = text.partition("=")
    if not values:
        raise ConfigError(f"'{text}' is not a setting; write it as key=value,value, such as training.epochs=1,2")
    return key, [parse_override(f"{key}={value}")[1] for value in values.split(",")]


def _told(setting: Setting) -> Setting:
    """Without paths of the machine: it goes into a file that may be passed on."""
    return {key: placeless(value) for key, value in setting.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _headline(score: dict[str, Any]) -> Headline:
    return Score.model_validate(score).headline


def _value(score: dict[str, Any]) -> float:
    return _headline(score).value or 0.0
