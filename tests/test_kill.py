"""Killed at any moment and resumed until it ends, a run gives the same bits as one that nobody disturbed."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from tests.cli.commands import run, start
from tests.kills import SETTINGS, end, killed_at_random, metrics

KILLED_AT_SYNC = """
import os, signal
sync, count = os.fsync, 0
def fsync(descriptor):
    global count
    count += 1
    if count == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = fsync
"""


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(federation: Any, name: str) -> None:
    disturbed = federation(name)
    killed_at_random(disturbed, 2, random.Random(f"two moments of {name}"))


@pytest.mark.parametrize("number", [1, 2, 9, 12, 13])
def test_a_run_killed_while_it_writes_ends_with_the_same_bits(federation: Any, number: int) -> None:
    """Of the config, of the checkpoint before round 1, of later ones and of private states."""
    disturbed = federation("local_only")
    name = f"killed-at-{number}"
    ended = run(*disturbed.command(name), prelude=KILLED_AT_SYNC.format(number=number))
    assert ended.code == -signal.SIGKILL
    disturbed.check(name)


def test_a_run_killed_while_it_saves_its_vocabulary_learns_it_again(federation: Any) -> None:
    disturbed = federation("fedavg")
    prelude = """
import os, signal
from transformers import BertConfig
BertConfig.save_pretrained = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(*disturbed.command("unlearnt"), prelude=prelude).code == -signal.SIGKILL
    assert not list((disturbed.folder / "unlearnt").glob("checkpoints/*"))
    disturbed.check("unlearnt")


def test_a_run_killed_between_checkpoint_and_progress_has_every_round_once(federation: Any) -> None:
    disturbed = federation("fedavg")
    prelude = """
import os, signal
from grandrounds.cli.console import Live
Live.finished_round = lambda self, round: round.round == 3 and os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(*disturbed.command("unsaid"), prelude=prelude).code == -signal.SIGKILL
    assert len(metrics(disturbed.folder / "unsaid")) == 3
    disturbed.check("unsaid")


def test_killed_with_two_workers_it_ends_with_the_bits_of_one_and_leaves_no_process(federation: Any) -> None:
    disturbed = federation("local_only")
    running = start(*disturbed.command("two-workers", workers=2), fresh_workers=True)
    running.until(disturbed.folder / "two-workers" / "checkpoints" / "round-00002")
    assert sum("spawn_main" in command for command in running.family().values()) == 2
    assert end(running)
    disturbed.check("two-workers", workers=2)
