"""MOON (Li et al., CVPR 2021): FedLCC's contrast on what the last layer classifies, the whole representation of a pair,
instead of its localized context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from grandrounds import algorithm
from grandrounds.algorithms.fedlcc import FedLCC
from grandrounds.tasks.task import ExtractionTask, Reading, Task


@algorithm("moon")
class Moon(FedLCC):
    needs: ClassVar[Sequence[type]] = (ExtractionTask,)  # of what it finds, each answer has a representation

    def viewed(self, task: Task, reading: Reading) -> Tensor:
        return reading.pair
