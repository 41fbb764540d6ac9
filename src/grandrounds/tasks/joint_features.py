"""Windows of sentences as numbers, with the mentions in them and how these are related."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.tasks.joint_examples import JointExample
from grandrounds.tasks.ner_features import PieceFeatures, PieceRows


@dataclass(frozen=True)
class JointRows(PieceRows):
    mentions: Tensor
    """[mentions, 4]: the row of the batch, the first word and the one past the last, the type."""
    facts: Tensor
    """[facts, 4]: the row of the batch, head and tail as places among the row's mentions, the relation."""
    entities: Tensor
    """[rows]: whether their mentions are annotated."""
    relations: Tensor
    """[rows]: whether their relations are."""
    asked: Tensor
    """[pairs, 5]: marked spans whose relation is asked about, as PairClassifier reads them."""


@dataclass(frozen=True)
class JointFeatures:
    pieces: PieceFeatures
    examples: Sequence[JointExample]
    mentions: Sequence[NDArray[np.int64]]
    """Of each window, [mentions, 3]: words and type."""
    facts: Sequence[NDArray[np.int64]]
    """Of each window, [facts, 3]: head, tail and relation."""
    asked: Sequence[NDArray[np.int64]]
    """Of each window, [pairs, 4]: the words of head and tail."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.pieces.lengths

    @property
    def answers(self) -> NDArray[np.int64]:
        """One a word."""
        return self.pieces.answers

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> JointRows:
        index = np.asarray(rows, dtype=np.int64)
        examples = [self.examples[row] for row in index.tolist()]
        return JointRows(
            **vars(self.pieces.batch(index)),
            mentions=_numbered([self.mentions[row] for row in index.tolist()]),
            facts=_numbered([self.facts[row] for row in index.tolist()]),
            entities=torch.tensor([example.entities for example in examples]),
            relations=torch.tensor([example.relations for example in examples]),
            asked=_numbered([self.asked[row] for row in index.tolist()]),
        )


def _numbered(parts: Sequence[NDArray[np.int64]]) -> Tensor:
    """All of them, each with the number of its row before it."""
    return torch.from_numpy(np.concatenate([np.insert(part, 0, row, axis=1) for row, part in enumerate(parts)]))
