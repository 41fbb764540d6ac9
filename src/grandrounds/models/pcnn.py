"""The piecewise convolutional network (Zeng et al., EMNLP 2015; FedDS, 2020, section 3.2).

A word is its vector with two embeddings of how far it stands from each entity; the maximum over each of the three
pieces that the entities cut a sentence into is what is known of it. `CNN` takes one maximum over all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.entity_pair import PairBatch

FARTHEST, POSITION_WIDTH = 100, 5


class CNN(nn.Module):
    pieces = 1

    def __init__(
        self, encoder: Encoder, classes: int, dropout: float = 0.5, filters: int = 230, width: int = 3
    ) -> None:
        super().__init__()
        self.encoder = encoder.build()
        self.position = nn.ModuleList(nn.Embedding(2 * FARTHEST + 1, POSITION_WIDTH) for _ in range(2))
        self.convolution = nn.Conv1d(encoder.width + 2 * POSITION_WIDTH, filters, width, padding=width // 2)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.pieces * filters, classes)

    def forward(self, batch: PairBatch) -> Tensor:
        return self.classify(self.represent(batch))

    def represent(self, batch: PairBatch) -> Tensor:
        words = last_hidden(self.encoder, batch.input_ids, batch.attention_mask)
        place = torch.arange(words.shape[1], device=words.device)
        far = (place - batch.spans[:, 0::2, None]).clamp(-FARTHEST, FARTHEST) + FARTHEST
        near = [embed(far[:, entity]) for entity, embed in enumerate(self.position)]
        padding = batch.attention_mask == 0
        # Padding must not stand in the windows of the last words.
        x = torch.cat([words, *near], dim=-1).masked_fill(padding[..., None], 0)
        return torch.tanh(self.pool(self.convolution(x.transpose(1, 2)), batch))

    def classify(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(h))
        return logits

    def pool(self, convolved: Tensor, batch: PairBatch) -> Tensor:
        return largest(convolved, batch.attention_mask == 1)


class PCNN(CNN):
    pieces = 3

    def pool(self, convolved: Tensor, batch: PairBatch) -> Tensor:
        place = torch.arange(convolved.shape[2], device=convolved.device)
        first, second = batch.spans[:, 0::2].sort(dim=1).values[..., None].unbind(dim=1)
        piece = (place > first).long() + (place > second)
        return largest_of_each(convolved, piece.masked_fill(batch.attention_mask == 0, self.pieces), self.pieces)


def largest(values: Tensor, inside: Tensor) -> Tensor:
    """[rows, filters, words], [rows, words] -> [rows, filters]: padding never wins, and nothing gives zero."""
    best = values.masked_fill(~inside[:, None], -torch.inf).amax(dim=2)
    return best.masked_fill(~inside.any(dim=1, keepdim=True), 0)


def largest_of_each(values: Tensor, piece: Tensor, pieces: int) -> Tensor:
    """[rows, filters, words], [rows, words] -> [rows, pieces * filters]: as `largest` of each piece, in one pass, not
    in a masked copy for each; what is of none has the number `pieces`."""
    lowest = values.new_full((*values.shape[:2], pieces + 1), -torch.inf)
    best = lowest.scatter_reduce(2, piece[:, None].expand_as(values), values, "amax")[..., :pieces]
    return best.masked_fill(best == -torch.inf, 0).transpose(1, 2).flatten(1)
