"""What a run finds: `Round`, a line of metrics.jsonl, and `Result`, result.json; and while it goes on, who takes part:
`Participants`, sites.json, and `Presence`, presence.json. All write and read them here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from grandrounds.data.partition import SiteRow
from grandrounds.errors import DataError
from grandrounds.metrics.score import Objective, Score

SCHEMA = 1
"""Of result.json. It rises with every change of a key."""
RESULT, METRICS = "result.json", "metrics.jsonl"
PARTICIPANTS, PRESENCE = "sites.json", "presence.json"
CURE = "the run was made by another version of Grand Rounds, or the file was edited: run it again in another folder"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return self.model_dump(mode="json", exclude_unset=True)


class Round(_Record):
    """A line of metrics.jsonl."""

    round: int
    sites: tuple[str, ...]
    """The sites that were asked."""
    replies: int
    lost: dict[str, str]
    """Site -> why its reply does not count."""
    abandoned: bool
    seconds: float
    bytes_up: int
    bytes_down: int
    steps: int
    """Optimizer steps of all sites and the server together; `examples` likewise."""
    examples: int
    server_steps: int
    server_examples: int
    objective: Objective
    validation: Score | None = None
    """None if this round was not evaluated; the same holds for `test`."""
    test: Score | None = None
    diagnostics: dict[str, float] = {}
    norms: dict[str, float] = {}
    """Site -> the largest norm of its updates, where federation.aggregate is not the mean."""
    epsilon: dict[str, float] = {}
    """Site -> what it has spent on privacy so far, of the sites that were asked. Between hosts only the site knows."""
    outliers: dict[str, float] = {}
    """Site -> how many times as large as the median its update was."""


class Participants(_Record):
    """sites.json, from before round 1 on."""

    sites: tuple[SiteRow, ...]
    """What each holds."""
    shares: dict[str, float]
    """Site -> its share of a mean over all sites."""
    left_out: tuple[str, ...]


class SiteState(_Record):
    """What a coordinator between hosts knows of a site's whereabouts. Times are seconds since 1970; 0: never."""

    online: bool
    seen: float
    asked: float
    """When it was asked the last time, and in `answered` when its last answer came."""
    answered: float
    doing: str
    """What it is asked for and has not answered yet."""
    refused: str
    """Why it takes no part; empty: it does."""


class Presence(_Record):
    """presence.json, which a coordinator between hosts writes anew while it waits for answers."""

    time: float
    sites: dict[str, SiteState]


class Result(_Record):
    """A finished run's result.json."""

    grandrounds: str
    """The version that made it."""
    task: str
    algorithm: str
    encoder: str
    seed: int
    rounds: int
    rounds_planned: int
    best_round: int | None
    selected_by: str
    objective: Objective
    test: Score | None
    """None if no site returned a score."""
    validation: Score | None
    seconds: float
    steps: int
    """Optimizer steps of the whole run, all sites and the server together; the next five are sums of the same kind."""
    examples: int
    server_steps: int
    server_examples: int
    bytes_up: int
    bytes_down: int
    bytes_up_per_site_round: float
    bytes_down_per_site_round: float
    peak_memory_mb: int
    sites: tuple[SiteRow, ...]
    left_out: tuple[str, ...]
    """Sites without an example, which took no part."""
    warnings: dict[str, int]
    """What was skipped or changed while reading, and how often."""
    audit_head: str
    commit: str | None
    command: str
    versions: dict[str, str | int]

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **super().to_dict()}


R = TypeVar("R", bound=_Record)


def read_result(folder: Path) -> Result:
    """The result of the finished run in the folder."""
    path = folder / RESULT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("is missing: the run has not finished; go on with it by --resume", path=path) from error
    except ValueError as error:
        raise DataError(f"is not JSON; {CURE}", path=path) from error
    found = content.pop("schema", None) if isinstance(content, dict) else None
    if found != SCHEMA:
        raise DataError(f"has schema {found}, and schema {SCHEMA} is read here; {CURE}", path=path)
    return _parse(Result, json.dumps(content), path)


def read_participants(folder: Path) -> Participants | None:
    return _read(Participants, folder / PARTICIPANTS)


def read_presence(folder: Path) -> Presence | None:
    return _read(Presence, folder / PRESENCE)


def read_rounds(folder: Path) -> tuple[list[Round], bool]:
    """The rounds of the run in the folder, in order, and whether the last line is incomplete, as after a kill.

    A resumed run may repeat a round; its last line counts.
    """
    path = folder / METRICS
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    torn = bool(lines) and not text.endswith("\n") and not _is_json(lines[-1][1])
    rounds = {read.round: read for read in (_parse(Round, line, path, n) for n, line in lines[: len(lines) - torn])}
    return [rounds[number] for number in sorted(rounds)], torn


def _read(kind: type[R], path: Path) -> R | None:
    return _parse(kind, path.read_text(encoding="utf-8"), path) if path.exists() else None


def _parse(kind: type[R], text: str, path: Path, line: int | None = None) -> R:
    try:
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(f"{place}: {first['msg']}; {CURE}", path=path, line=line) from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
