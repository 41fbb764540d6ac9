"""Twenty kills at random moments: what `tests/test_kill.py` does twice, for as long as it takes to trust it."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import start
from tests.kills import killed_at_random

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("name", "workers"), [("fedavg", 1), ("local_only", 1), ("feded", 1), ("local_only", 2)])
def test_twenty_kills_at_random_moments_change_no_bit(federation: Any, name: str, workers: int) -> None:
    """Each run is killed up to five times on its way to the end, then another begins."""
    moments = random.Random(f"twenty moments of {name} with {workers} workers")
    killed_at_random(federation(name), 20, moments, workers)


def test_ctrl_c_reaches_workers_too_and_is_still_one_sentence(federation: Any) -> None:
    """A terminal sends it to all processes of a command at once."""
    disturbed = federation("local_only")
    folder: Path = disturbed.folder / "interrupted"
    running = start(*disturbed.command("interrupted", workers=2), fresh_workers=True)
    running.until(folder / "checkpoints" / "round-00001")
    os.killpg(running.pid, signal.SIGINT)
    assert "--resume goes on" in running.wait(5).complaint(130)
    assert running.family() == {}
    disturbed.check("interrupted", workers=2)
