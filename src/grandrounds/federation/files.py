"""Files that are whole or absent: written beside their place, synced, then renamed. And locks, which end with their
process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import TextIO

from grandrounds.errors import GrandRoundsError

LOCK = ".lock"
"""Of a run's folder, or a site's: the process that writes there holds it."""


class DiskError(GrandRoundsError):
    """A disk that is full, read-only or broken: nothing that follows could be kept."""


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, data: bytes) -> None:
    """One file, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # workers may write the same file at the same time
    try:
        write_synced(part, data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise disk_error(error, path) from error


def lock(path: Path) -> TextIO | None:
    """The file, locked until it is closed; None where another process has it for longer than `locked` takes to ask."""
    file = path.open("w")
    for patience in (0.05, 0.2, 0.0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            time.sleep(patience)
    file.close()
    return None


def locked(path: Path) -> bool:
    """Whether a process has the lock of this file."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_error(error: OSError, path: Path) -> DiskError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError(
            f"the disk is full: '{path.name}' could not be written; what was saved before is intact, so free some "
            "space and go on (a run with --resume, a site by joining again)"
        )
    return DiskError(
        f"'{path.name}' could not be written: {error.strerror}; what was saved before is intact, so mend that and go "
        "on (a run with --resume, a site by joining again)"
    )
