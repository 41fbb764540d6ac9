"""The top of a tagger: what it makes of its words' states."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Decoder(nn.Module, ABC):
    """States [sentences, words, width] to scores, and these to a loss and to answers. `lengths` [sentences] are the
    sentences' words, each at least 1; what stands past a sentence's end has no influence."""

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """Scores, [sentences, words, ...]."""

    @abstractmethod
    def loss(self, scores: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """What training minimises, a mean over the batch."""

    @abstractmethod
    def outputs(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """[sentences, words, width]: the best answers and how likely they are, 0 past the end."""
