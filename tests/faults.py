"""Faults of a machine, for a while: a disk that is full or read-only, a clock that has jumped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT, Outcome

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@contextmanager
def small_disk(folder: Path, megabytes: int = 64) -> Iterator[Path]:
    """The folder, with what is in it, on a disk of its own; gives a file to fill it with."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    aside = folder.with_name(f"{folder.name}.aside")
    folder.mkdir(exist_ok=True)
    shutil.copytree(folder, aside)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)])
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield folder / "ballast"
        shutil.rmtree(aside)
        shutil.copytree(folder, aside)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    shutil.copytree(aside, folder, dirs_exist_ok=True)


def fill(ballast: Path) -> None:
    """Until not a byte more fits."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"\0" * 65536):
            pass


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """From now on nothing in it can be opened for writing."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a disk read-only")
    folder.mkdir(exist_ok=True)
    if subprocess.run(["mount", "--bind", str(folder), str(folder)]).returncode != 0:
        pytest.skip("this machine does not let us mount a disk")
    try:
        for _ in range(50):  # it is busy while somebody writes
            if subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)]).returncode == 0:
                break
            time.sleep(0.1)
        else:
            pytest.fail("the disk was never idle, so it could not be made read-only")
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# Where libfaketime leaves the monotonic clock alone, it refuses to sleep until a moment of it, as Python does.
SLEEP = """
import select, time
time.sleep = lambda seconds: select.select([], [], [], max(0, seconds)) and None
"""


class Clocked:
    """A command in a new interpreter, whose clock jumps when we say so; what is measured in seconds goes on."""

    def __init__(self, folder: Path, name: str, *arguments: str | Path) -> None:
        if FAKETIME is None:
            pytest.skip("no libfaketime here: apt-get install libfaketime")
        self._clock, self._out, self._err = (folder / f"{name}.{what}" for what in ("clock", "out", "err"))
        self.jump(0)
        (folder / "clocked").mkdir(exist_ok=True)
        (folder / "clocked" / "sitecustomize.py").write_text(SLEEP)
        paths = [str(folder / "clocked"), *filter(None, [os.environ.get("PYTHONPATH")])]
        faked = {
            "PYTHONPATH": os.pathsep.join(paths),
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "grandrounds", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **ENVIRONMENT, **faked},
                start_new_session=True,
            )

    def jump(self, seconds: int) -> None:
        """This far from the true time, at once."""
        part = self._clock.with_suffix(".part")
        part.write_text(f"{seconds:+d}\n")
        part.replace(self._clock)

    def said(self) -> str:
        return self._err.read_text("utf-8")

    def ended(self, timeout: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout or 0.001)
        return self._process.poll() is not None

    def wait(self, timeout: float = 300) -> Outcome:
        assert self.ended(timeout), self.said()
        return Outcome(self._process.returncode, self._out.read_text("utf-8"), self.said())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)


def sentences(said: str, words: Sequence[str]) -> list[str]:
    """What was said with one of these words in it, each sentence once; the time before it is left out."""
    lines = [" ".join(line.split()) for line in said.splitlines() if any(word in line for word in words)]
    return list(dict.fromkeys(line[9:] if line[2:3] == line[5:6] == ":" else line for line in lines))


def pause(process: int, seconds: float) -> None:
    """Stop the processes of a command for a while, as a machine that is suspended."""
    os.killpg(process, signal.SIGSTOP)
    time.sleep(seconds)
    os.killpg(process, signal.SIGCONT)
