"""A checkpoint that this version can't read is named, and the one before it is used."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.state import Flat
from grandrounds.federation.state_folder import write_folder
from grandrounds.runs.checkpoints import Checkpoints, Progress

STATE = {"model": Flat({"weight": torch.ones(2)}, {})}


def test_a_checkpoint_of_another_version_is_passed_over(tmp_path: Path) -> None:
    said: list[str] = []
    write_folder(tmp_path / "round-00001", STATE, asdict(Progress(round=1)))
    write_folder(tmp_path / "round-00002", STATE, {**asdict(Progress(round=2)), "best_f1": 0.5})
    progress, state = Checkpoints(tmp_path, said.append).last()
    assert progress.round == 1
    assert torch.equal(state["model"].tensors["weight"], torch.ones(2))
    assert said == ["checkpoint of round 2: it was written by another version of Grand Rounds; the one before is used"]


def test_checkpoints_of_another_version_alone_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "round-00002", STATE, {"best_f1": 0.5})
    with pytest.raises(GrandRoundsError, match="there is no whole checkpoint"):
        Checkpoints(tmp_path).last()
