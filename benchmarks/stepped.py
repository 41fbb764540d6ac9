"""A run that goes a round at a time, when told to: so that two runs can take turns in one process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from grandrounds.config.schema import Config
from grandrounds.runs.loop import Silent
from grandrounds.runs.results import Round
from grandrounds.simulation.prepare import Simulation
from grandrounds.simulation.run import run_config as run


class EnoughError(Exception):
    """Every round that was wanted has been timed."""


class SteppedRun(Silent):
    """The real loop in a thread of its own, which waits before each round. Use as a context."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._wanted, self._reached = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._enough, self._problem = False, None
        self._waited = 0.0
        self.set_up = 0.0
        """Seconds until round 1 could begin."""

    def __enter__(self) -> SteppedRun:
        began = time.perf_counter()
        self._thread.start()
        self._wait()
        self.set_up = time.perf_counter() - began
        return self

    def __exit__(self, *problem: object) -> None:
        self._enough = True
        self._wanted.release()
        self._thread.join()

    def round(self) -> float:
        """Run the next round; how many seconds it took."""
        self._wanted.release()
        self._wait()
        return self._seconds

    def started(self, simulation: Simulation, rounds: int, done: int) -> None:
        self.simulation = simulation

    def asking(self, round: int, sites: int) -> None:
        began = time.perf_counter()
        self._reached.release()
        self._wanted.acquire()
        if self._enough:
            raise EnoughError
        self._waited = time.perf_counter() - began

    def finished_round(self, round: Round) -> None:
        # The loop's clock was running while it waited for its turn.
        self._seconds = round.seconds - self._waited

    def _wait(self) -> None:
        self._reached.acquire()
        if self._problem is not None:
            raise self._problem

    def _live(self) -> None:
        try:
            run(self._config, self._folder, self._folder / "run", watcher=self)
        except EnoughError:
            pass
        except BaseException as problem:
            self._problem = problem
            self._reached.release()
