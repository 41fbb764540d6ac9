"""A CNN over a frozen encoder's outputs, trained by ranking (Chauhan et al., 2019; dos Santos et al., 2015).

    L = log(1 + exp(g (m+ - s_y))) + log(1 + exp(g (m- + s_c))),   c the best-scored wrong class

'None' has no score of its own: its examples keep the second term only, and it is predicted where every score is
negative.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.entity_pair import PairBatch


class RankingCNN(nn.Module):
    """Logits whose class 0 (None) is fixed at zero, so that arg max is the ranking rule."""

    def __init__(
        self,
        encoder: Encoder,
        classes: int,
        dropout: float = 0.5,
        filters: int = 100,
        widths: tuple[int, ...] = (3, 4, 5),
    ) -> None:
        super().__init__()
        self.encoder = encoder.build().requires_grad_(False)
        self.position = nn.Embedding(2 * POSITIONS + 1, POSITION_WIDTH)
        channels = encoder.width + 2 * POSITION_WIDTH
        self.convolutions = nn.ModuleList(nn.Conv1d(channels, filters, width, padding="same") for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(filters * len(widths), classes - 1, bias=False)

    def train(self, mode: bool = True) -> RankingCNN:
        super().train(mode)
        self.encoder.eval()  # frozen features must not change with dropout
        return self

    def forward(self, batch: PairBatch) -> Tensor:
        return self.classify(self.represent(batch))

    def represent(self, batch: PairBatch) -> Tensor:
        with torch.no_grad():
            states = last_hidden(self.encoder, batch.input_ids, batch.attention_mask)
        place = torch.arange(states.shape[1], device=states.device)[None, :, None] - batch.spans[:, None, 0::2]
        near = self.position(place.clamp(-POSITIONS, POSITIONS) + POSITIONS).flatten(start_dim=2)
        padding = batch.attention_mask[:, None, :] == 0
        # Padding must not win the max, nor stand in the windows of the last words.
        x = torch.cat([states, near], dim=-1).transpose(1, 2).masked_fill(padding, 0)
        pooled = [F.relu(conv(x)).masked_fill(padding, 0).amax(dim=-1) for conv in self.convolutions]
        return torch.cat(pooled, dim=-1)

    def classify(self, h: Tensor) -> Tensor:
        scores = self.head(self.dropout(h))
        return torch.cat([scores.new_zeros(len(scores), 1), scores], dim=-1)


POSITIONS, POSITION_WIDTH = 50, 10


def ranking_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0, right: float = 2.5, wrong: float = 0.5) -> Tensor:
    """The mean of L over a batch; logits as RankingCNN gives them."""
    scores = logits[:, 1:]
    related = labels > 0
    target = F.one_hot((labels - 1).clamp(min=0), scores.shape[1]).bool() & related[:, None]
    push = F.softplus(gamma * (right - scores.masked_fill(~target, 0).sum(dim=1))) * related
    rival = scores.masked_fill(target, -torch.inf).amax(dim=1)  # -inf with a single class: softplus gives 0
    return (push + F.softplus(gamma * (wrong + rival))).mean()
