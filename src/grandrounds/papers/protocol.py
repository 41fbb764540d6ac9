"""A paper's protocol, run: what to reproduce, on which corpora, in arms that targets share and none runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, make_config
from grandrounds.errors import ConfigError, GrandRoundsError, unknown
from grandrounds.federation.files import write_whole
from grandrounds.papers.corpora import Place
from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.paper import PaperTable, Setting
from grandrounds.papers.settings import NOT_SAID, TRAINING, At, Ran, Tell, joined, settings
from grandrounds.reports.runs import Run, read_run
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.provenance import placeless, provenance
from grandrounds.runs.results import read_result
from grandrounds.simulation.sweep import Arm

Runner = Callable[[Sequence[Arm], Path], object]
"""Runs arms to their end in their folders; the path is where data starts."""

SETTINGS: Mapping[str, Tell] = {
    "encoder": At("model.encoder", lambda encoder: Path(encoder).name),  # a folder's place is nobody's business
    "warm-up epochs": At("model.warm_up"),
    "partition": At("partition.scheme"),
    "sites, K": At("partition.sites"),
    "fraction a round, C": At("federation.fraction"),
    "batch size, B": At("training.batch_size"),
    "local epochs, E": At("training.epochs"),
    "server's share of train": At("data.public"),
    "dropout": At("task.dropout"),
    "rounds": At("federation.rounds"),
    **TRAINING,
}
FACTORS = (1 / 3, 1, 3)
"""Of the protocol's learning rate: what a search tries."""
TRIAL: Overrides = {
    "federation.stop_at_f1": 0.0,
    "federation.evaluate_on": ["validation"],
    "federation.keep_models": False,
}
HELD_OUT = 0.1
"""What a search takes of train to choose by, where the protocol has no validation data."""


@dataclass(frozen=True)
class Target:
    """A table or figure of a paper."""

    title: str
    corpora: Sequence[str]
    """The paper's own; where one corpus is chosen instead, it stands in for the one it is nearest to, or the first."""
    make: Callable[[Study], PaperTable]
    asked: bool = False
    """Run only where somebody names it."""
    rounds: int | None = None
    """Where nobody wishes otherwise; None: the paper's."""


@dataclass(frozen=True)
class Left:
    """In an arm's overrides: a folder that another arm leaves, of the same seed where none is named."""

    corpus: str
    arm: str
    path: str
    seed: int | None = None

    def __str__(self) -> str:
        return f"{self.arm}/{self.path}"


@dataclass(frozen=True)
class Paper:
    name: str
    title: str
    targets: Mapping[str, Target]
    content: Callable[[str, ReproduceOptions], dict[str, Any]]
    """The protocol on a corpus, as a config's content."""
    stated: Callable[[str], Mapping[str, object]]
    """What the paper says of its settings on a corpus, under the names of `reported`."""
    repeats: str
    """How often the paper runs, and what it reports."""
    corpora: Mapping[str, Place]
    """Those that it can be run on."""
    reported: Mapping[str, Tell] = field(default_factory=lambda: SETTINGS)
    """The settings to be reported, and what a config says of each."""
    rounds: int = 30
    target_f1: float | None = 0.72
    """Where nobody wishes otherwise; None: it counts no rounds to a target."""
    average: str = "median"
    """Of runs that differ in their seed alone."""
    overrides: Callable[[str, Overrides], Overrides] = lambda corpus, given: given
    """Those of the command line that are meant for runs on a corpus."""


class Study:
    """One target being reproduced: gives its maker results and keeps what was run."""

    def __init__(self, paper: Paper, name: str, options: ReproduceOptions, runner: Runner) -> None:
        self.paper, self.name, self.options, self._runner = paper, name, options, runner
        self.target = paper.targets[name]
        self.places, self.missing = places(paper, name, options)
        self.arms: dict[str, Overrides] = {}
        self.footnotes: list[str] = []
        self.search: dict[str, dict[str, Any]] = {}
        self._ran: dict[tuple[str, str], Ran] = {}

    @property
    def base(self) -> Path:
        return self.options.data or Path()

    @property
    def seeds(self) -> Sequence[int]:
        return range(1, self.options.seeds + 1)

    def config(self, corpus: str, own: Overrides | None = None) -> Config:
        """The protocol on a corpus; what an arm changes itself outweighs the overrides."""
        content, own = self.paper.content(corpus, self.options), own or {}
        options = replace(self.options, overrides=self.paper.overrides(corpus, self.options.overrides))
        if own.get("algorithm.name", content["algorithm"]["name"]) != content["algorithm"]["name"]:
            content["algorithm"] = {"name": own["algorithm.name"]}
        return make_config(content, {**options.changes(content["algorithm"]["name"]), **own})

    def run(
        self, corpus: str, arms: Mapping[str, Overrides], seeds: Sequence[int] | None = None, by_round: bool = False
    ) -> dict[str, list[Run]]:
        """The arms' runs, one a seed. An arm's name is its folder's, so that targets with the same arm share it; one
        that has been run for longer is reported, unless the target looks up rounds by their number."""
        if self.options.search:
            arms = self._searched(corpus, arms, (seeds or self.seeds)[0])
        made = list(self._made(corpus, arms, seeds or self.seeds))
        self._finish(made)
        runs = {name: [read_run(arm.folder) for arm in made if arm.name == name] for name in arms}
        self.arms.update({name: _reported(own) for name, own in arms.items()})
        if not by_round:
            self._note_longer(arms, runs)
        return runs

    def _finish(self, arms: Sequence[Arm]) -> None:
        waiting = [arm for arm in arms if not _finished(arm)]
        if waiting:
            self._runner(waiting, self.base)

    def _searched(self, corpus: str, arms: Mapping[str, Overrides], seed: int) -> dict[str, Overrides]:
        """The arms with the learning rates that do best on validation data, by one seed's runs."""
        trials: dict[str, dict[float, Arm]] = {}
        for name, own in arms.items():
            config = self._config_at(corpus, own, seed)
            held_out = {} if config.data.validation else {"data.validation": HELD_OUT}
            trials[name] = {}
            for rate in (float(f"{factor * config.training.learning_rate:.2g}") for factor in FACTORS):
                changed = {**own, **TRIAL, **held_out, "training.learning_rate": rate}
                folder = self.options.out / "search" / corpus / f"{name}-rate{rate:g}-seed{seed}"
                trials[name][rate] = Arm(folder.name, self._config_at(corpus, changed, seed), folder)
        self._finish([arm for rates in trials.values() for arm in rates.values()])
        found = dict[str, Overrides]()
        for name, own in arms.items():
            results = {rate: read_result(arm.folder) for rate, arm in trials[name].items()}
            objective = next(iter(results.values())).objective
            scores = {rate: r.validation.value(objective) for rate, r in results.items() if r.validation}
            best = min(scores, key=lambda rate: objective.rank(scores[rate]))
            tried = {f"{rate:g}": score for rate, score in scores.items()}
            self.search[name] = {"tried": tried, "chosen": f"{best:g}"}
            found[name] = {**own, "training.learning_rate": best}
        return found

    def folder(self, corpus: str, arm: str, seed: int) -> Path:
        return self.options.out / "arms" / corpus / f"{arm}-seed{seed}"

    def _made(self, corpus: str, arms: Mapping[str, Overrides], seeds: Sequence[int]) -> Iterator[Arm]:
        theirs = next((theirs for theirs, ours in self.places.items() if ours == corpus), next(iter(self.places)))
        for seed in seeds:
            for name, own in arms.items():
                config = self._config_at(corpus, own, seed)
                keys = own.keys() - ({"training.learning_rate"} if self.options.search else set())
                self._ran[corpus, name] = Ran(name, corpus, config, keys, self.paper.stated(theirs))
                yield Arm(name, config, self.folder(corpus, name, seed))

    def _config_at(self, corpus: str, own: Overrides, seed: int) -> Config:
        found = {key: self.place(v, seed) if isinstance(v, Left) else v for key, v in own.items()}
        return self.config(corpus, {**found, "seed": seed})

    def place(self, left: Left, seed: int) -> str:
        own = seed if left.seed is None else left.seed
        return str((self.folder(left.corpus, left.arm, own) / left.path).resolve())

    def _note_longer(self, arms: Mapping[str, Overrides], runs: Mapping[str, Sequence[Run]]) -> None:
        for name, repeats in runs.items():
            planned = max(run.planned or 0 for run in repeats)
            if planned > arms[name].get("federation.rounds", self.options.rounds):
                self.footnotes.append(f"{name} had already been run for {planned} rounds, which stand here.")

    def finish(self, table: PaperTable) -> PaperTable:
        """The table, with all that a reader must know to judge it."""
        return replace(
            table,
            title=f"{self.paper.title}, {self.name}: {self.target.title}",
            footnotes=[*self._describe_places(), *table.footnotes, *self.footnotes, *self.missing],
            protocol=self._protocol(),
            arms=self.arms,
            search=self.search,
            command=self.options.command(self.paper.name, self.name),
        )

    def _describe_places(self) -> Iterator[str]:
        titles = {name: corpus.title for name, corpus in self.paper.corpora.items()}
        for theirs, ours in self.places.items():
            if theirs != ours:
                yield (
                    f"The measured numbers are of {titles[ours]}, which stands in for {titles[theirs]}: "
                    "they can't be compared with the paper's."
                )

    def _protocol(self) -> list[Setting]:
        if not self._ran:
            return []
        seeds = self.options.seeds
        repeats = f"{seeds}, the {self.paper.average}" if seeds > 1 else "1"
        titles = {name: corpus.title for name, corpus in self.paper.corpora.items()}
        theirs, ours = (joined(titles[name] for name in names) for names in (self.places, self.places.values()))
        return [
            Setting("corpus", theirs, ours, theirs != ours),
            *settings(self.paper.reported, list(self._ran.values())),
            Setting("runs", self.paper.repeats, repeats, self.paper.repeats not in (NOT_SAID, repeats)),
            Setting("overrides", "", " ".join(self.options.texts())),
        ]


def places(paper: Paper, name: str, options: ReproduceOptions) -> tuple[dict[str, str], list[str]]:
    """Which corpus is run in whose place, and a sentence on each that is missing; an error if none is there."""
    own, corpora = paper.targets[name].corpora, paper.corpora
    if options.corpus is not None:
        if options.corpus not in corpora:
            raise ConfigError(unknown("corpus", options.corpus, corpora))
        near = (name for name in own if options.corpus in (name, corpora[name].nearest))
        wanted = {next(near, own[0]): options.corpus}
    else:
        wanted = {name: name for name in own}
    lacks = {theirs: corpora[ours].missing(options.data) for theirs, ours in wanted.items()}
    missing = [sentence for sentence in lacks.values() if sentence]
    if len(missing) == len(wanted):
        nearest = corpora[next(iter(wanted.values()))].nearest
        reported = "; ".join(dict.fromkeys(part for sentence in missing for part in sentence.split("; ")))
        raise GrandRoundsError(f"{reported}; or try another one, such as --corpus {nearest}")
    return {theirs: ours for theirs, ours in wanted.items() if not lacks[theirs]}, missing


def reproduce(paper: Paper, name: str, options: ReproduceOptions, runner: Runner) -> PaperTable:
    """Run a target and write it to Markdown and JSON, with its figure as SVG."""
    study = Study(paper, name, options, runner)
    table = study.finish(study.target.make(study))
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(options.out / f"{name}.md", table.to_markdown().encode())
    write_whole(
        options.out / f"{name}.json", (json.dumps({**provenance(), **table.to_dict()}, indent=1) + "\n").encode()
    )
    if table.figure:
        write_whole(options.out / f"{name}.svg", table.figure.encode())
    return table


def _finished(arm: Arm) -> bool:
    """Whether nothing is left to run; a folder that holds another config is refused before anything runs."""
    if not (arm.folder / "config.toml").exists():
        return False
    folder = RunFolder(arm.folder, arm.config, resume=True)
    try:
        return folder.finished is not None
    finally:
        folder.close()


def _reported(own: Overrides) -> Overrides:
    return {key: str(value) if isinstance(value, Left) else placeless(value) for key, value in own.items()}
