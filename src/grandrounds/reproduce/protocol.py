"""A paper's protocol, run: what to reproduce, on which corpora, in arms that targets share and none runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from grandrounds.errors import ConfigError, GrandRoundsError, unknown
from grandrounds.experiment.config import Config, make_config
from grandrounds.experiment.folder import RunFolder
from grandrounds.experiment.many import Arm
from grandrounds.federation.contract import ALGORITHMS
from grandrounds.federation.files import write_whole
from grandrounds.reports.runs import Run, read_run
from grandrounds.reproduce.corpora import CORPORA
from grandrounds.reproduce.paper import PaperTable, Setting

Overrides = Mapping[str, Any]
Runner = Callable[[Sequence[Arm], Path], object]
"""Runs arms to their end in their folders; the path is where data starts."""

OPTION_FOR = {
    "seed": "--seeds",
    "model.encoder": "--encoder",
    "federation.rounds": "--rounds",
    "federation.stop_at_f1": "--target-f1",
    "data.format": "--corpus",
}
TOLD: Mapping[str, Callable[[Config], object]] = {
    "encoder": lambda config: Path(config.model.encoder).name,  # a folder's place is nobody's business
    "warm-up epochs": lambda config: config.model.warm_up,
    "partition": lambda config: config.partition.scheme,
    "sites, K": lambda config: config.partition.sites,
    "fraction a round, C": lambda config: config.federation.fraction,
    "batch size, B": lambda config: config.training.batch_size,
    "local epochs, E": lambda config: config.training.epochs,
    "learning rate": lambda config: config.training.learning_rate,
    "server's share of train": lambda config: config.data.public,
    "rounds": lambda config: config.federation.rounds,
}


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

    out: Path
    data: Path | None = None
    corpus: str | None = None
    """Instead of the paper's own."""
    encoder: str | None = None
    seeds: int = 1
    rounds: int = 30
    target_f1: float = 0.72
    cells: int | None = None
    """Of a grid, only its first rows."""
    overrides: Overrides = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.overrides:
            if key in OPTION_FOR:
                raise ConfigError(f"'{key}' has an option of its own here; give {OPTION_FOR[key]} instead")
        options = {option for name in ALGORITHMS for option in _options(name)}
        for key in self._algorithm_keys():
            if key not in options:
                raise ConfigError(unknown("option of an algorithm", key, options))

    def _algorithm_keys(self) -> dict[str, Any]:
        prefix = "algorithm."
        return {key.removeprefix(prefix): value for key, value in self.overrides.items() if key.startswith(prefix)}

    def changes(self, algorithm: str) -> dict[str, Any]:
        """The overrides, but of the algorithms' options only those that this one has."""
        if algorithm not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
        own = _options(algorithm)
        fitting = {f"algorithm.{key}" for key in self._algorithm_keys() if key in own}
        return {key: v for key, v in self.overrides.items() if not key.startswith("algorithm.") or key in fitting}

    def command(self, paper: str, target: str) -> str:
        """The command line, without any machine's paths."""
        default = Wish(self.out)
        options = {
            "corpus": self.corpus,
            "encoder": self.encoder and _placeless(self.encoder),
            "seeds": self.seeds,
            "rounds": self.rounds,
            "target-f1": None if self.target_f1 == default.target_f1 else self.target_f1,
            "cells": self.cells,
        }
        words = ["grandrounds reproduce", paper, target, *self.texts(), *(["--data DIR"] if self.data else [])]
        return " ".join([*words, *(f"--{name} {value}" for name, value in options.items() if value is not None)])

    def texts(self) -> list[str]:
        return [f"{key}={_placeless(value)}" for key, value in self.overrides.items()]


@dataclass(frozen=True)
class Target:
    """A table or figure of a paper."""

    title: str
    corpora: Sequence[str]
    """The paper's own; where one corpus is chosen instead, it stands in for the first."""
    make: Callable[[Study], PaperTable]


@dataclass(frozen=True)
class Paper:
    name: str
    title: str
    targets: Mapping[str, Target]
    content: Callable[[str, Wish], dict[str, Any]]
    """The protocol on a corpus, as a config's content."""
    stated: Callable[[str], Mapping[str, object]]
    """What the paper says of its settings on a corpus, under the names of TOLD."""
    repeats: str
    """How often the paper runs, and what it reports."""


class Study:
    """One target being reproduced: gives its maker results and keeps what was run."""

    def __init__(self, paper: Paper, name: str, wish: Wish, runner: Runner) -> None:
        self.paper, self.name, self.wish, self._runner = paper, name, wish, runner
        self.target = paper.targets[name]
        self.places, self.missing = places(self.target, wish)
        self.arms: dict[str, Overrides] = {}
        self.notes: list[str] = []
        self._configs: dict[str, Config] = {}

    @property
    def base(self) -> Path:
        return self.wish.data or Path()

    def config(self, corpus: str, own: Overrides | None = None) -> Config:
        """The protocol on a corpus; what an arm changes itself outweighs the overrides."""
        content, own = self.paper.content(corpus, self.wish), own or {}
        content["algorithm"] = {"name": own.get("algorithm.name", content["algorithm"]["name"])}
        return make_config(content, {**self.wish.changes(content["algorithm"]["name"]), **own})

    def run(self, corpus: str, arms: Mapping[str, Overrides]) -> dict[str, list[Run]]:
        """The arms' runs, one a seed. An arm's name is its folder's, so that targets with the same arm share it."""
        made = list(self._made(corpus, arms))
        waiting = [arm for arm in made if not _finished(arm)]
        if waiting:
            self._runner(waiting, self.base)
        runs = {name: [read_run(arm.folder) for arm in made if arm.name == name] for name in arms}
        self.arms.update(arms)
        self._note_longer(arms, runs)
        return runs

    def _made(self, corpus: str, arms: Mapping[str, Overrides]) -> Iterator[Arm]:
        self._configs[corpus] = self.config(corpus)
        for seed in range(1, self.wish.seeds + 1):
            for name, own in arms.items():
                config = self.config(corpus, {**own, "seed": seed})
                yield Arm(name, config, self.wish.out / "arms" / corpus / f"{name}-seed{seed}")

    def _note_longer(self, arms: Mapping[str, Overrides], runs: Mapping[str, Sequence[Run]]) -> None:
        for name, repeats in runs.items():
            planned = max(run.planned or 0 for run in repeats)
            if planned > self.wish.rounds and "federation.rounds" not in arms[name]:
                self.notes.append(f"{name} had already been run for {planned} rounds, which stand here.")

    def finish(self, table: PaperTable) -> PaperTable:
        """The table, with all that a reader must know to judge it."""
        return replace(
            table,
            title=f"{self.paper.title}, {self.name}: {self.target.title}",
            notes=[*self._places_told(), *table.notes, *self.notes, *self.missing],
            protocol=self._protocol(),
            arms=self.arms,
            command=self.wish.command(self.paper.name, self.name),
        )

    def _places_told(self) -> Iterator[str]:
        for theirs, ours in self.places.items():
            if theirs != ours:
                yield (
                    f"The measured numbers are of {CORPORA[ours].title}, which stands in for {CORPORA[theirs].title}: "
                    "they can't be compared with the paper's."
                )

    def _protocol(self) -> list[Setting]:
        if not self._configs:
            return []
        stated = [self.paper.stated(corpus) for corpus in self.places]
        lines = [
            Setting(name, _joined(s.get(name, "") for s in stated), _joined(map(tell, self._configs.values())))
            for name, tell in TOLD.items()
        ]
        lines.append(
            Setting("runs", self.paper.repeats, f"{self.wish.seeds}, the median" if self.wish.seeds > 1 else "1")
        )
        return [*lines, Setting("overrides", "", " ".join(self.wish.texts()))]


def places(target: Target, wish: Wish) -> tuple[dict[str, str], list[str]]:
    """Which corpus is run in whose place, and a sentence on each that is missing; an error if none is there."""
    if wish.corpus is not None:
        if wish.corpus not in CORPORA:
            raise ConfigError(unknown("corpus", wish.corpus, CORPORA))
        wanted = {wish.corpus if wish.corpus in target.corpora else target.corpora[0]: wish.corpus}
    else:
        wanted = {name: name for name in target.corpora}
    lacks = {theirs: CORPORA[ours].missing(wish.data) for theirs, ours in wanted.items()}
    missing = [sentence for sentence in lacks.values() if sentence]
    if len(missing) == len(wanted):
        raise GrandRoundsError(f"{'; '.join(missing)}; or try another one, such as --corpus synthetic")
    return {theirs: ours for theirs, ours in wanted.items() if not lacks[theirs]}, missing


def reproduce(paper: Paper, name: str, wish: Wish, runner: Runner) -> PaperTable:
    """Run a target and write it to Markdown and JSON, with its figure as SVG."""
    study = Study(paper, name, wish, runner)
    table = study.finish(study.target.make(study))
    wish.out.mkdir(parents=True, exist_ok=True)
    write_whole(wish.out / f"{name}.md", table.to_markdown().encode())
    write_whole(wish.out / f"{name}.json", (json.dumps(table.to_dict(), indent=1) + "\n").encode())
    if table.figure:
        write_whole(wish.out / f"{name}.svg", table.figure.encode())
    return table


def _finished(arm: Arm) -> bool:
    """Whether nothing is left to run; a folder that holds another config is refused before anything runs."""
    if not (arm.folder / "config.toml").exists():
        return False
    folder = RunFolder(arm.folder, arm.config, resume=True)
    try:
        return folder.result is not None and folder.result["rounds_planned"] >= arm.config.federation.rounds
    finally:
        folder.close()


def _options(algorithm: str) -> set[str]:
    cls: Any = ALGORITHMS[algorithm]  # @algorithm made it a dataclass, which mypy can't see
    return {option.name for option in fields(cls)}


def _joined(values: Any) -> str:
    return " / ".join(dict.fromkeys("" if value is None else str(value) for value in values))


def _placeless(value: Any) -> Any:
    """Without a machine's paths; a hub name has a slash too, and stays."""
    if isinstance(value, list):
        return [_placeless(item) for item in value]
    place = isinstance(value, str) and (value.startswith(("/", "~", ".")) or Path(value).exists())
    return Path(value).name if place else value
