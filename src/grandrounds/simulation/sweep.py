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
from grandrounds.runs.results import METRICS, Result, read_result
from grandrounds.simulation.run import run_config


@dataclass(frozen=True)
class Arm:
    """One run of a comparison."""

    name: str
    config: Config
    folder: Path

    def rounds_done(self) -> int:
        path = self.folder / METRICS
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
    arms: Sequence[Arm],
    base: Path,
    processes: int,
    watch: Callable[[Sequence[Arm]], None],
    poll: float = 0.3,
    reuse: bool = False,
) -> list[Result]:
    """The arms' results, in their order; an arm that fails stops the rest, and what is done stays done.

    A process runs one arm. With `reuse` it takes the next one when it is done: for many short runs, since a start takes
    seconds; the peak memory that they report is then that of all before them.
    """
    waiting, busy, idle = list(reversed(arms)), list[_Worker](), list[_Worker]()
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                worker = idle.pop() if idle else _Worker(base)
                worker.give(waiting.pop())
                busy.append(worker)
            for worker in [worker for worker in busy if worker.answered()]:
                busy.remove(worker)
                if reuse:
                    idle.append(worker)
                else:
                    worker.end()
            watch(arms)
            if waiting or busy:
                time.sleep(poll)
        for worker in idle:
            worker.end()
    finally:
        for worker in (*busy, *idle):
            worker.process.terminate()
    return [read_result(arm.folder) for arm in arms]


class _Worker:
    """A process that runs the arms it is given, one after the other."""

    def __init__(self, base: Path) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self.process = subprocesses.start(_run_given, base, theirs)
        theirs.close()

    def give(self, arm: Arm) -> None:
        self._pipe.send_bytes(json.dumps([arm.config.model_dump(mode="json"), str(arm.folder)]).encode())

    def answered(self) -> bool:
        """Whether its arm is done; GrandRoundsError if it failed."""
        if not self._pipe.poll() and self.process.is_alive():
            return False
        try:
            word = self._pipe.recv_bytes().decode()
        except (EOFError, OSError) as error:
            raise GrandRoundsError(
                "a run ended by itself, perhaps for want of memory; start the same command again to go on"
            ) from error
        if word != "done":
            raise GrandRoundsError(word)
        return True

    def end(self) -> None:
        self._pipe.close()
        self.process.join()


def _run_given(base: Path, pipe: Connection) -> None:
    """In a worker: until nothing more is given."""
    while True:
        try:
            content, folder = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            run_config(make_config(content), base, Path(folder), resume=True, watcher=Silent())
            pipe.send_bytes(b"done")
        except GrandRoundsError as error:
            pipe.send_bytes(str(error).encode())
