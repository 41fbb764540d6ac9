"""Several runs side by side, each in a single-threaded process of its own; finished ones are not run again."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from grandrounds import subprocesses
from grandrounds.config.schema import Config, make_config
from grandrounds.errors import GrandRoundsError
from grandrounds.runs.loop import Silent
from grandrounds.simulation.run import run_config


@dataclass(frozen=True)
class Arm:
    """One run of a comparison."""

    name: str
    config: Config
    folder: Path

    def rounds_done(self) -> int:
        path = self.folder / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0


def arms_of(config: Config, algorithms: Sequence[str], seeds: Sequence[int], out: Path) -> list[Arm]:
    """An arm for each algorithm and seed; `[compare.<name>]` of the config may say what is different in one."""
    return [
        Arm(name, arm_config(config, name, {"seed": seed}), out / (name if len(seeds) == 1 else f"{name}-seed{seed}"))
        for name in algorithms
        for seed in seeds
    ]


def arm_config(config: Config, name: str, changes: Mapping[str, Any]) -> Config:
    """The config of the arm of that name, with these changes."""
    own = dict(config.compare.get(name, {}))
    algorithm = str(own.pop("algorithm.name", name))
    content = config.model_dump(exclude_none=True)
    if content["algorithm"]["name"] != algorithm:
        content["algorithm"] = {"name": algorithm}
    return make_config(content, {**own, **changes})


def run_arms(
    arms: Sequence[Arm], base: Path, processes: int, watch: Callable[[Sequence[Arm]], None], poll: float = 0.3
) -> list[dict[str, Any]]:
    """The arms' results, in their order; an arm that fails stops the rest, and what is done stays done."""
    waiting, running = list(reversed(arms)), dict[Any, Connection]()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                arm = waiting.pop()
                ours, theirs = multiprocessing.Pipe(duplex=False)
                process = subprocesses.start(_run_arm, arm.config.model_dump(), base, arm.folder, theirs)
                theirs.close()
                running[process] = ours
            for process in [process for process in running if not process.is_alive()]:
                _check(running.pop(process))
            watch(arms)
            time.sleep(poll)
    finally:
        for process in running:
            process.terminate()
    return [dict(json.loads((arm.folder / "result.json").read_text(encoding="utf-8"))) for arm in arms]


def _run_arm(content: dict[str, Any], base: Path, folder: Path, report: Connection) -> None:
    try:
        run_config(make_config(content), base, folder, resume=True, watcher=Silent())
        report.send_bytes(b"done")
    except GrandRoundsError as error:
        report.send_bytes(str(error).encode())


def _check(report: Connection) -> None:
    try:
        word = report.recv_bytes().decode()
    except EOFError as error:
        raise GrandRoundsError(
            "a run ended by itself, perhaps for want of memory; start the same command again to go on"
        ) from error
    if word != "done":
        raise GrandRoundsError(word)
