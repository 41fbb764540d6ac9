"""The files of a run folder as values; an unfinished run gives what there is."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grandrounds.errors import DataError
from grandrounds.metrics.score import F1, Objective, Score
from grandrounds.runs.results import METRICS, RESULT, Result, Round, read_result, read_rounds

FOUNDED = "founded.toml"
"""In a federation's folder."""


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    name: str
    config_text: str
    rounds: tuple[Round, ...]
    result: Result | None
    torn: bool = False
    """The last line of metrics.jsonl is incomplete, as after a kill."""
    folder: Path = Path()

    @cached_property
    def config(self) -> dict[str, object]:
        return tomllib.loads(self.config_text)

    @property
    def algorithm(self) -> str:
        return self.result.algorithm if self.result else str(self._setting("algorithm", "name") or self.name)

    @property
    def task(self) -> str:
        return self.result.task if self.result else str(self._setting("task", "name") or "an unnamed task")

    @property
    def seed(self) -> str:
        return str(self.result.seed if self.result else self.config.get("seed", "unknown"))

    @property
    def planned(self) -> int | None:
        rounds = self._setting("federation", "rounds")
        return rounds if isinstance(rounds, int) else None

    @property
    def test(self) -> Score | None:
        """The result's score; before there is one, that of the last round that was tested."""
        return self.result.test if self.result else next((r.test for r in self.rounds[::-1] if r.test), None)

    @property
    def seconds(self) -> float:
        return self.result.seconds if self.result else sum(r.seconds for r in self.rounds)

    @property
    def bytes_up(self) -> float:
        """Per site and round."""
        if self.result:
            return self.result.bytes_up_per_site_round
        return sum(r.bytes_up for r in self.rounds) / max(1, sum(r.replies for r in self.rounds))

    @property
    def bytes_down(self) -> float:
        if self.result:
            return self.result.bytes_down_per_site_round
        return sum(r.bytes_down for r in self.rounds) / max(1, sum(len(r.sites) for r in self.rounds))

    @property
    def objective(self) -> Objective:
        return self.result.objective if self.result else self.rounds[0].objective if self.rounds else F1

    @property
    def baseline(self) -> tuple[str, float] | None:
        """The trivial baseline's name and, on the test set, its AUC or F1."""
        return self.test.trivial(self.objective) if self.test else None

    def points(self, split: str, name: str | None = None) -> list[tuple[int, float]]:
        """By round on "validation" or "test", where it was measured: what the run is judged by, or another figure."""
        name = name or self.objective.key
        scores = [(r.round, r.test if split == "test" else r.validation) for r in self.rounds]
        values = [(round, getattr(score, name, None)) for round, score in scores]
        return [(round, value) for round, value in values if value is not None]

    @property
    def kept_is_shown(self) -> bool:
        """Whether a curve has the round whose model was kept, and so a ring."""
        kept = self.result.best_round if self.result else None
        return any(round == kept for split in ("validation", "test") for round, _ in self.points(split))

    def diagnosed(self, name: str) -> list[tuple[int, float]]:
        """What the algorithm reported under this name, by round."""
        return [(r.round, r.diagnostics[name]) for r in self.rounds if name in r.diagnostics]

    def _setting(self, table: str, key: str) -> object:
        values = self.config.get(table)
        return values.get(key) if isinstance(values, dict) else None


def read_run(folder: Path) -> Run:
    config, metrics, result = (folder / name for name in ("config.toml", METRICS, RESULT))
    if not (config.is_file() or metrics.is_file() or result.is_file()):
        raise DataError("is no run folder: it has no config.toml, metrics.jsonl or result.json", path=folder)
    rounds, torn = read_rounds(folder)
    run = Run(
        run_name(folder),
        config.read_text("utf-8") if config.is_file() else "",
        tuple(rounds),
        read_result(folder) if result.is_file() else None,
        torn,
        folder,
    )
    try:
        _ = run.config
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"is not TOML: {error}", path=config) from error
    return run


def run_name(folder: Path) -> str:
    """The folder's; of a federation's run, which is always called `run`, that of the federation."""
    path = folder.resolve()
    return path.parent.name if (path.parent / FOUNDED).is_file() else path.name


def row_names(runs: Sequence[Run]) -> list[str]:
    """The algorithm, with those settings in which runs of it differ, so that only seeds are averaged."""
    settings = [dict(_flat(run.config)) for run in runs]
    names = []
    for run, own in zip(runs, settings, strict=True):
        peers = [s for r, s in zip(runs, settings, strict=True) if r.algorithm == run.algorithm]
        differ = [key for key in own if key != "seed" and any(p.get(key) != own[key] for p in peers)]
        settled = ", ".join(f"{key.split('.')[-1]} = {own[key]}" for key in differ)
        names.append(f"{run.algorithm} ({settled})" if settled else run.algorithm)
    return names


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
