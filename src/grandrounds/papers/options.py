"""What the command line asks of a reproduction: on which data, how often, how long, and what is changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from shlex import quote
from typing import Any

from grandrounds.errors import ConfigError, unknown
from grandrounds.registry import ALGORITHMS
from grandrounds.runs.provenance import placeless

Overrides = Mapping[str, Any]

OPTION_FOR = {
    "seed": "--seeds",
    "model.encoder": "--encoder",
    "task.language": "--encoder",
    "federation.rounds": "--rounds",
    "federation.stop_at_f1": "--target-f1",
    "data.format": "--corpus",
}


@dataclass(frozen=True)
class ReproduceOptions:
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
    search: bool = False
    """Choose each arm's learning rate on validation data first."""

    def __post_init__(self) -> None:
        for key in self.overrides:
            if key in OPTION_FOR:
                raise ConfigError(f"'{key}' has an option of its own here; give {OPTION_FOR[key]} instead")
        options = {option for name in ALGORITHMS for option in _options(name)}
        for key in self._algorithm_keys():
            if key not in options:
                raise ConfigError(unknown("option of an algorithm", key, options))

    @property
    def encoder_place(self) -> str | None:
        """--encoder as a config takes it."""
        return None if self.encoder is None else self.place(self.encoder)

    def place(self, name: str) -> str:
        """A path from here as a config takes it, which looks under --data; a hub name stays."""
        here = Path(name).exists() and not (self.data and (self.data / name).exists())
        return str(Path(name).resolve()) if here else name

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
        default = ReproduceOptions(self.out)
        options = {
            "corpus": self.corpus,
            "encoder": self.encoder and ",".join(map(placeless, self.encoder.split(","))),
            "seeds": self.seeds,
            "rounds": self.rounds,
            "target-f1": None if self.target_f1 == default.target_f1 else self.target_f1,
            "cells": self.cells,
        }
        words = [
            "grandrounds reproduce",
            paper,
            target,
            *map(quote, self.texts()),
            *(["--data DIR"] if self.data else []),
            *(["--search"] if self.search else []),
        ]
        return " ".join([*words, *(f"--{name} {value}" for name, value in options.items() if value is not None)])

    def texts(self) -> list[str]:
        reported = {key: placeless(value) for key, value in self.overrides.items()}
        return [f"{key}={json.dumps(v) if isinstance(v, list) else v}" for key, v in reported.items()]


def _options(algorithm: str) -> set[str]:
    cls: Any = ALGORITHMS[algorithm]  # @algorithm made it a dataclass, which mypy can't see
    return {option.name for option in fields(cls)}
