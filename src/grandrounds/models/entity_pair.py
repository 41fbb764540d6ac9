"""The medical relation extraction model of FedED (Sui et al., EMNLP 2020, section 3.2), and its `[CLS]`-only rival.

Eq. 1  h = h_0 + h_e1 + h_e2 (concatenated)        Eq. 2  p(y) = softmax(W h + b)
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from grandrounds.models.encoder import Encoder, last_hidden


class PairBatch(Protocol):
    """Sentences of one length with a pair each; spans holds first and past-the-last piece of e1, then of e2."""

    @property
    def input_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor: ...
    @property
    def spans(self) -> Tensor: ...


class EntityPair(nn.Module):
    """[CLS] with the sums over each mention's word pieces, one linear layer."""

    def __init__(self, encoder: Encoder, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.encoder = encoder.build()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(3 * encoder.width, classes)

    def forward(self, batch: PairBatch) -> Tensor:
        return self.classify(self.represent(batch))

    def represent(self, batch: PairBatch) -> Tensor:
        states = last_hidden(self.encoder, batch.input_ids, batch.attention_mask)
        e1, e2 = mention_sums(states, batch.spans).unbind(dim=1)
        return torch.cat([states[:, 0], e1, e2], dim=-1)  # Eq. 1

    def classify(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(h))  # Eq. 2, before the softmax
        return logits


class SentenceOnly(nn.Module):
    """[CLS] alone, as BioBERT classifies relations (Lee et al., 2020)."""

    def __init__(self, encoder: Encoder, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.encoder = encoder.build()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.width, classes)

    def forward(self, batch: PairBatch) -> Tensor:
        return self.classify(self.represent(batch))

    def represent(self, batch: PairBatch) -> Tensor:
        return last_hidden(self.encoder, batch.input_ids, batch.attention_mask)[:, 0]

    def classify(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(h))
        return logits


def mention_sums(states: Tensor, spans: Tensor) -> Tensor:
    """Sum the states of each mention's pieces: [batch, length, width], [batch, 2m] -> [batch, m, width]."""
    position = torch.arange(states.shape[1], device=states.device)
    first, past = spans[:, 0::2, None], spans[:, 1::2, None]
    inside = (position >= first) & (position < past)
    return inside.to(states.dtype) @ states
