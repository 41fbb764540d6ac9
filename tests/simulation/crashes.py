"""A watcher that ends a run after a round, as a power cut would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grandrounds
from grandrounds.runs.loop import Silent
from grandrounds.runs.results import Round


class PowerCut(Exception):  # noqa: N818
    pass


class Watch(Silent):
    """Remembers what it heard; `cut_after` ends the run after that round."""

    def __init__(self, cut_after: int | None = None) -> None:
        self.cut_after = cut_after
        self.said: list[str] = []
        self.rounds: list[Round] = []
        self.answers: list[str] = []
        self.done_before: int | None = None

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def started(self, simulation: Any, rounds: int, done: int) -> None:
        self.done_before = done

    def answered(self, site: str) -> None:
        self.answers.append(site)

    def finished_round(self, round: Round) -> None:
        self.rounds.append(round)
        if round.round == self.cut_after:
            raise PowerCut


def cut(config: Mapping[str, Any], out: Path, after: int, resume: bool = False) -> Watch:
    watch = Watch(after)
    try:
        grandrounds.run(config, out=out, watcher=watch, resume=resume)
    except PowerCut:
        return watch
    raise AssertionError(f"round {after} never came")


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(out: Path) -> bytes:
    return (out / "model" / "model.safetensors").read_bytes()


def timeless(value: Any) -> Any:
    """Without what depends on the clock and the process."""
    ignored = ("seconds", "peak_memory_mb", "audit_head", "time")
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in ignored}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def models(out: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(out)): path.read_bytes() for path in out.glob("model*/**/model.safetensors")}
    assert found
    return found
