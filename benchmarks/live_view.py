"""What the page of `grandrounds view` costs the run that it follows: in one run, every other round with somebody
watching. The page is served by a process of its own, whose CPU time is counted with the run's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.corpus import federation
from benchmarks.measuring import Row, Settings, ratio
from benchmarks.stepped import EnoughError
from grandrounds.runs.loop import Silent
from grandrounds.runs.results import Round
from grandrounds.simulation.run import run_config as run

GOAL = 1.01
READ = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1] + "events", headers={"Authorization": "Bearer " + sys.argv[2]})
with urllib.request.urlopen(asked) as stream:
    for line in stream:
        if line.startswith(b"data:"):
            print(len(line), flush=True)
"""


def measure(settings: Settings) -> Iterator[Row]:
    sites, per_site, pairs = (4, 16, 1) if settings.quick else (20, 80, 6)
    folder = settings.folder / "live-view"
    shown = {"federation.evaluate_on": ["test"], "federation.evaluate_every": 1, "federation.checkpoint_every": 1}
    watched = Watched(folder / "run", pairs, settings.say)
    try:
        with suppress(EnoughError):
            run(federation(folder, "tiny", sites, per_site, **shown), folder, folder / "run", watcher=watched)
    finally:
        watched.end()
    yield from watched.rows({"sites": sites, "sentences_per_site": per_site, "rounds": 2 * pairs})


class Watched(Silent):
    """The first round warms up; after it, somebody watches every other one."""

    def __init__(self, folder: Path, pairs: int, say: Any) -> None:
        self.folder, self.pairs, self.say = folder, pairs, say
        self.alone, self.seen, self.served, self.wall = list[float](), list[float](), list[float](), list[float]()
        self.server: subprocess.Popen[str] | None = None
        self.reader: subprocess.Popen[str] | None = None

    def asking(self, round: int, sites: int) -> None:
        if round > 2 * self.pairs + 1:
            raise EnoughError
        self.say("warm-up" if round == 1 else f"round {round - 1} of {2 * self.pairs}")
        if self.server is None:
            self.server = _python("-m", "grandrounds", "view", str(self.folder), "--port", "0")
            self.place, _, self.token = _line(self.server).partition("?token=")
            self.started = _cpu(self.server.pid)
        if round > 1 and round % 2 == 0:
            self.reader = _python("-c", READ, self.place, self.token)
            _line(self.reader)  # the page is there
        self.mark = time.perf_counter(), time.process_time(), _cpu(self.server.pid)

    def finished_round(self, round: Round) -> None:
        assert self.server
        wall, ours, theirs = self.mark
        ours, theirs = time.process_time() - ours, _cpu(self.server.pid) - theirs
        if self.reader is not None:
            self.reader.kill()
            self.reader.wait()
            self.reader = None
            self.seen.append(ours)
            self.served.append(theirs)
            self.wall.append(time.perf_counter() - wall)
        elif round.round > 1:
            self.alone.append(ours)

    def end(self) -> None:
        for process in (self.reader, self.server):
            if process is not None:
                process.kill()
                process.wait()

    def rows(self, detail: dict[str, Any]) -> Iterator[Row]:
        together = [ours + theirs for ours, theirs in zip(self.seen, self.served, strict=True)]
        yield ratio(
            "a run with somebody watching over one without",
            together,
            self.alone,
            GOAL,
            note=f"CPU time of run and server over {len(self.alone)} pairs of rounds",
            detail={**detail, "of_the_run_alone": median(a / b for a, b in zip(self.seen, self.alone, strict=True))},
        )
        shares = [theirs / ours for ours, theirs in zip(self.seen, self.served, strict=True)]
        yield Row(
            "the page's server over the run that it follows",
            sum(self.served) / sum(self.seen),  # of all rounds: the clock of another process ticks every 10 ms
            round(GOAL - 1, 3),
            low=min(shares),
            high=max(shares),
            note=f"CPU time while somebody watches, in rounds of {median(self.wall):.1f} s",
            detail={
                **detail,
                "seconds_a_round": median(self.wall),
                "cpu_seconds_a_round": median(self.seen),
                "of_one_processor": sum(self.served) / sum(self.wall),
            },
        )
        yield Row("to start the page's server", self.started, unit="s", note="CPU time, once")


def _python(*words: str) -> subprocess.Popen[str]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=quiet, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def _cpu(process: int) -> float:
    """Seconds that a process has computed so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
