"""One target in a process of its own: atheris mutates what has reached new code.

`python -m tests.fuzz.guided GROUP NAME SECONDS FOLDER` writes what it saw to FOLDER/seen.json; a crash is kept there
and does not end it. Time is CPU time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import sys
import time
import traceback
from hashlib import sha256
from pathlib import Path

import atheris

from tests.fuzz.seen import Crash, Seen

OURS = 0.5
"""How often the target's own mutator is used."""
LONGEST = 1 << 14
"""Bytes of an input."""
SLOW = 1.0
"""CPU seconds from which on an input counts as a crash: the files are small."""


OFTEN = 10.0
"""Seconds between two notes of what was seen: whoever ends the process early still has them."""


class Watched:
    """Runs the target, and keeps what it saw."""

    def __init__(self, group: str, name: str, seconds: float, folder: Path) -> None:
        from tests.fuzz.targets import make

        self.target, self.folder, self.limit = make(group, name), folder, seconds
        self.seen = Seen(group, name)
        self.began = self.saved = time.process_time()

    def __call__(self, data: bytes) -> None:
        began = time.process_time()
        try:
            self.target.run(data)
        except Exception as problem:
            self._crashed(data, problem)
        now = time.process_time()
        self.seen.executions += 1
        if now - began > self.seen.slowest:
            self.seen.slowest, self.seen.slowest_bytes = now - began, len(data)
            (self.folder / "slowest").write_bytes(data)
            if now - began > SLOW:
                self._keep(data, f"slow: {now - began:.1f} s", "slow")
        if now - self.saved >= OFTEN:
            self.save(now)
        if now - self.began >= self.limit:
            self.save(now)
            atexit._run_exitfuncs()
            os._exit(0)  # libFuzzer would go on

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < OURS:
            return self.target.mutate(data, draw)[:most]
        return bytes(atheris.Mutate(data, most))

    def save(self, now: float) -> None:
        self.saved, self.seen.cpu_seconds = now, now - self.began
        (self.folder / "seen.json").write_text(self.seen.dumps())

    def _crashed(self, data: bytes, problem: Exception) -> None:
        frames = traceback.extract_tb(problem.__traceback__)
        ours = [frame for frame in frames if "grandrounds" in frame.filename] or frames
        place = f"{type(problem).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno}"
        self._keep(
            data, f"{place}: {problem}"[:300], place if not isinstance(problem, AssertionError) else str(problem)[:60]
        )

    def _keep(self, data: bytes, what: str, place: str) -> None:
        self.seen.crashes += 1
        if not any(crash.place == place for crash in self.seen.kept):
            name = f"crash-{sha256(data).hexdigest()[:12]}"
            (self.folder / name).write_bytes(data)
            self.seen.kept.append(Crash(place, what, name))


def main(group: str, name: str, seconds: str, folder: str) -> None:
    place = Path(folder)
    seeds = place / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["grandrounds"]):
        watched = Watched(group, name, float(seconds), place)
        for i, seed in enumerate(watched.target.seeds()):
            (seeds / str(i)).write_bytes(seed)
            watched(seed)  # what it imports late is imported here
        for crashed in sorted(place.glob("crash-*")):
            data = crashed.read_bytes()
            crashed.unlink()  # kept again if it still crashes
            watched(data)
    watched.began = time.process_time()
    with contextlib.redirect_stdout(None):
        options = [f"-max_len={LONGEST}", "-timeout=600", "-rss_limit_mb=4096", "-verbosity=0", "-print_final_stats=0"]
        atheris.Setup([sys.argv[0], *options, str(seeds)], watched, custom_mutator=watched.mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
