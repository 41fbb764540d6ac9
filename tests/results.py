"""A result as a small run writes it, for tests that train nothing."""

from __future__ import annotations

from typing import Any

from grandrounds.metrics.score import F1
from grandrounds.runs.results import Result

DEFAULTS: dict[str, Any] = {
    "grandrounds": "0.1.0",
    "task": "sentence_re",
    "algorithm": "fedavg",
    "encoder": "tiny",
    "seed": 1,
    "rounds": 10,
    "rounds_planned": 10,
    "best_round": None,
    "selected_by": "last round",
    "objective": F1,
    "test": None,
    "validation": None,
    "seconds": 60.0,
    "steps": 480,
    "examples": 12_345,
    "server_steps": 0,
    "server_examples": 0,
    "bytes_up": 48_000_000,
    "bytes_down": 52_000_000,
    "bytes_up_per_site_round": 1_200_000.0,
    "bytes_down_per_site_round": 1_300_000.0,
    "peak_memory_mb": 912,
    "sites": (),
    "left_out": (),
    "warnings": {},
    "audit_head": "0" * 64,
    "commit": "abc",
    "command": "grandrounds run",
    "versions": {"python": "3.11", "threads": 1},
}


def made_result(**changes: Any) -> Result:
    return Result.model_validate(DEFAULTS | changes)
