"""A folder in memory, where there is one, that is gone when the process ends."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path


def scratch() -> Path:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="grandrounds-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
