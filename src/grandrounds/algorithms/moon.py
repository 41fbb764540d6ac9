"""MOON (Li et al., CVPR 2021): FedLCC's contrast on what the last layer classifies, the whole representation of a pair,
instead of its localized context."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from grandrounds import algorithm
from grandrounds.algorithms.fedlcc import FedLCC
from grandrounds.tasks.task import Reading


@algorithm("moon")
class Moon(FedLCC):
    needs_context: ClassVar[bool] = False
    needs_answers: ClassVar[bool] = True

    def viewed(self, reading: Reading) -> Tensor:
        return reading.pair
