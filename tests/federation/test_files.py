"""Locks end with their process, and looking at one keeps nobody out."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

from grandrounds.federation.files import lock, locked


def test_a_lock_is_one_processes_at_a_time(tmp_path: Path) -> None:
    assert not locked(tmp_path / ".lock")
    with lock(tmp_path / ".lock") as held:  # type: ignore[union-attr]
        assert held is not None
        assert locked(tmp_path / ".lock")
        assert lock(tmp_path / ".lock") is None
    assert not locked(tmp_path / ".lock")


def test_who_only_looks_is_waited_for(tmp_path: Path) -> None:
    path, looking = tmp_path / ".lock", threading.Event()
    path.touch()

    def look() -> None:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            looking.set()
            time.sleep(0.02)

    thread = threading.Thread(target=look)
    thread.start()
    looking.wait()
    held = lock(path)
    thread.join()
    assert held is not None
    held.close()
