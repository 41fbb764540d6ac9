"""A map as it was measured: what `map.json` holds, and all that its picture, table and sentence are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from grandrounds.errors import DataError

Verdict = Literal["better", "worse", "no difference can be shown"]
BETTER: Verdict = "better"
WORSE: Verdict = "worse"
NO_DIFFERENCE: Verdict = "no difference can be shown"
OFTEN = 0.1
"""From this share of an arm's runs on it is said that their best round was the last."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Axis(Part):
    name: str
    values: tuple[float, ...]


class RealCorpus(Part):
    name: str
    x: float
    y: float
    how: str


class ChosenRate(Part):
    """The learning rate of an arm."""

    chosen: float | None
    """None: the config's own, since no other was tried."""
    tried: dict[str, float | None] = {}
    """Rate -> score on validation data at the middle of the map."""
    at_edge: bool = False


class ArmScore(Part):
    """An arm in a cell: means over seeds."""

    validation: float
    test: float
    low: float
    high: float
    """With `low` the 95% interval of `test`."""
    steps: float
    examples: float
    bytes_up: float
    bytes_down: float
    rounds: tuple[int, ...]
    best_rounds: tuple[int, ...]

    @property
    def best_is_last(self) -> int:
        """In how many runs."""
        return sum(best == last for best, last in zip(self.best_rounds, self.rounds, strict=True))


class CellResult(Part):
    x: float
    y: float
    arms: dict[str, ArmScore]
    """The system first, then its rivals, then references."""
    best_rival: str
    """By validation data."""
    advantage: float
    """On test data, over the best rival; positive where the system is better, though the score be a loss."""
    low: float
    high: float
    p: float
    same_units: bool
    """Whether both were tested on the same units, so that their draws are paired."""
    verdict: Verdict
    best_is_last: int
    """Of all runs in the cell."""


class MapResult(Part):
    system: str
    system_arm: str
    """What of `arms` is the system; the others are rivals or references."""
    question: str
    sentence: str
    warnings: tuple[str, ...]
    score: str
    """What runs are judged by: F1, AUC or loss."""
    seeds: tuple[int, ...]
    x: Axis
    y: Axis
    arms: dict[str, dict[str, Any]]
    """The system and its rivals, with what differs from the config."""
    references: tuple[str, ...]
    learning_rates: dict[str, ChosenRate]
    learning_rates_at: tuple[float, float]
    """The cell in which they were chosen, with seed 0."""
    cells: tuple[CellResult, ...]
    points: tuple[RealCorpus, ...]
    config: dict[str, Any]
    commit: str | None
    command: str
    versions: dict[str, str | int]
    run_commits: tuple[str, ...]
    """Of the sources that the runs were made with; runs that were finished are not run again."""

    def cell(self, x: float, y: float) -> CellResult | None:
        return next((cell for cell in self.cells if (cell.x, cell.y) == (x, y)), None)

    def to_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"


def read_map(path: Path) -> MapResult:
    try:
        return MapResult.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("there is no map here yet; run the command without --redraw first", path=path) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(f"is not a map: {place}: {first['msg']}", path=path) from error
