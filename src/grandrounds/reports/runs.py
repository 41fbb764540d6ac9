"""The files of a run folder as values; an unfinished run gives what there is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from grandrounds.data.partition import SiteRow
from grandrounds.errors import DataError
from grandrounds.metrics.score import Score

M = TypeVar("M", bound=BaseModel)


class Round(BaseModel):
    """A line of metrics.jsonl."""

    model_config = ConfigDict(frozen=True)

    round: int
    sites: tuple[str, ...] = ()
    replies: int = 0
    lost: dict[str, str] = {}
    abandoned: bool = False
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    validation: Score | None = None
    test: Score | None = None
    diagnostics: dict[str, float] = {}


class Result(BaseModel):
    """A finished run's result.json."""

    model_config = ConfigDict(frozen=True)

    grandrounds: str = ""
    task: str
    algorithm: str
    seed: int = 0
    rounds: int = 0
    best_round: int | None = None
    selected_by: str = "last round"
    test: Score | None = None
    validation: Score | None = None
    seconds: float = 0.0
    bytes_up_per_site_round: float = 0.0
    bytes_down_per_site_round: float = 0.0
    steps: int | None = None
    """Of the whole run, all sites and the server; so for the next three. None before they were counted."""
    examples: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    peak_memory_mb: float | None = None
    sites: tuple[SiteRow, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: dict[str, int] = {}


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    name: str
    config_text: str
    rounds: tuple[Round, ...]
    result: Result | None
    torn: bool = False
    """The last line of metrics.jsonl is incomplete, as after a kill."""

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
    def judged_by(self) -> str:
        """AUC or F1."""
        return self._judged.headline.word

    @property
    def baseline(self) -> tuple[str, float] | None:
        """The trivial baseline's name and, on the test set, its AUC or F1."""
        headline = (self.test or Score()).headline
        return None if headline.trivial is None else (headline.answer, headline.trivial)

    def points(self, split: str, name: str | None = None) -> list[tuple[int, float]]:
        """By round on "validation" or "test", where it was measured: what the run is judged by, or another figure."""
        name = name or self._judged.headline.key
        scores = [(r.round, r.test if split == "test" else r.validation) for r in self.rounds]
        values = [(round, getattr(score, name, None)) for round, score in scores]
        return [(round, value) for round, value in values if value is not None]

    def diagnosed(self, name: str) -> list[tuple[int, float]]:
        """What the algorithm told under this name, by round."""
        return [(r.round, r.diagnostics[name]) for r in self.rounds if name in r.diagnostics]

    @property
    def _judged(self) -> Score:
        """Any score of the run."""
        return self.test or next((r.validation for r in self.rounds if r.validation), Score())

    def _setting(self, table: str, key: str) -> object:
        values = self.config.get(table)
        return values.get(key) if isinstance(values, dict) else None


def read_run(folder: Path) -> Run:
    config, metrics, result = (folder / name for name in ("config.toml", "metrics.jsonl", "result.json"))
    if not (config.is_file() or metrics.is_file() or result.is_file()):
        raise DataError("is no run folder: it has no config.toml, metrics.jsonl or result.json", path=folder)
    rounds, torn = _read_rounds(metrics) if metrics.is_file() else ((), False)
    run = Run(
        folder.resolve().name,
        config.read_text("utf-8") if config.is_file() else "",
        rounds,
        _parse(Result, result.read_text("utf-8"), result) if result.is_file() else None,
        torn,
    )
    try:
        _ = run.config
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"is not TOML: {error}", path=config) from error
    return run


def row_names(runs: Sequence[Run]) -> list[str]:
    """The algorithm, with those settings in which runs of it differ, so that only seeds are averaged."""
    settings = [dict(_flat(run.config)) for run in runs]
    names = []
    for run, own in zip(runs, settings, strict=True):
        peers = [s for r, s in zip(runs, settings, strict=True) if r.algorithm == run.algorithm]
        differ = [key for key in own if key != "seed" and any(p.get(key) != own[key] for p in peers)]
        told = ", ".join(f"{key.split('.')[-1]} = {own[key]}" for key in differ)
        names.append(f"{run.algorithm} ({told})" if told else run.algorithm)
    return names


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _read_rounds(path: Path) -> tuple[tuple[Round, ...], bool]:
    """The last line of a round counts, since a resumed run repeats some; a torn end is said, not fatal."""
    lines = [(i, line) for i, line in enumerate(path.read_text("utf-8").split("\n"), 1) if line.strip()]
    rounds: dict[int, Round] = {}
    for number, line in lines:
        try:
            read = _parse(Round, line, path, number)
        except DataError:
            if (number, line) == lines[-1] and not _is_json(line):
                return tuple(rounds[i] for i in sorted(rounds)), True
            raise
        rounds[read.round] = read
    return tuple(rounds[i] for i in sorted(rounds)), False


def _parse(model: type[M], text: str, path: Path, line: int | None = None) -> M:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(f"{place}: {first['msg']}", path=path, line=line) from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
