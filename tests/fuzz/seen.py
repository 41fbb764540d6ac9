"""What fuzzing saw of a target."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Crash:
    place: str
    what: str
    file: str
    """The input, in the target's folder."""


@dataclass
class Seen:
    group: str
    target: str
    cpu_seconds: float = 0.0
    executions: int = 0
    crashes: int = 0
    slowest: float = 0.0
    """CPU seconds of the slowest input."""
    slowest_bytes: int = 0
    kept: list[Crash] = field(default_factory=list)
    """One crash for each place."""

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Seen:
        plain = json.loads(text)
        return cls(**{**plain, "kept": [Crash(**crash) for crash in plain["kept"]]})
