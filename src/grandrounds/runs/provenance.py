"""What made a figure: the commit of the source, the command, and the versions and threads that it ran with.

Nothing of it takes part in a run's digest, and no path of the machine is in it.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import grandrounds

SOURCES = ("src", "benchmarks")
"""What of a checkout makes figures; results that are written into it change nothing."""
FOLDERS = {"--data": "DIR", "--out": "OUT"}


def provenance() -> dict[str, Any]:
    """For a JSON file of results."""
    return {"commit": commit(), "command": command(sys.argv), "versions": versions()}


def versions() -> dict[str, str | int]:
    libraries = {name: version(name) for name in ("torch", "transformers", "numpy")}
    python = {"grandrounds": grandrounds.__version__, "python": platform.python_version()}
    return {**python, **libraries, "threads": torch.get_num_threads()}


@cache
def commit(package: Path = Path(grandrounds.__file__).parent) -> str | None:
    """The full hash, with '+changes' where sources differ from it; None where the package is not in a checkout."""
    root = package.parents[1]
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root.resolve():
        return None
    changed = _git(root, "status", "--porcelain", "--", *(name for name in SOURCES if (root / name).exists()))
    head = _git(root, "rev-parse", "HEAD")
    return f"{head}+changes" if head and changed else head


def command(arguments: Sequence[str]) -> str:
    """As one would type it; folders outside of the current one are DIR and OUT, other such paths their last part."""
    program, *rest = arguments or [""]
    typed, option = [_program(program)], ""
    for word in rest:
        key, equals, value = word.rpartition("=")
        place = FOLDERS.get(key if equals else option)
        typed.append(key + equals + ((place or os.path.basename(value.rstrip("/"))) if _outside(value) else value))
        option = word
    return shlex.join(typed)


def placeless(value: Any) -> Any:
    """Without a machine's paths; a hub name has a slash too, and stays."""
    if isinstance(value, list):
        return [placeless(item) for item in value]
    place = isinstance(value, str) and (value.startswith(("/", "~", ".")) or Path(value).exists())
    return Path(value).name if place else value


def _program(path: str) -> str:
    """A command by its name, a module or script by what python was given."""
    name = Path(path).stem if Path(path).stem != "__main__" else Path(path).parent.name
    if name in ("", "-c", "-m"):
        return "python"
    return name


def _outside(path: str) -> bool:
    return os.path.isabs(path) or path.startswith(("..", "~"))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
