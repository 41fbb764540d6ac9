"""Mentions and the relations between them in one network: the span head, and a class for each pair of spans.

    p(t | s)      = softmax of the span head (models/spans.py)
    h(s1, s2)     = relu(V [sum of s1; sum of s2; mean between] + d)      d by which comes first and how far apart
    p(r | s1, s2) = softmax(W h + b)                                      class 0 is "no relation"

A pair is represented as in FedED's Eq. 1, by sums over its mentions' states. No markers stand in the text, which is
read once for all of its pairs; so the place of [CLS] is taken by the words between the two, and a layer lets the three
interact. A pair's score does not depend on the types of its mentions: tasks/joint_decoding.py joins the two.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.models.encoder import Encoder
from grandrounds.models.initialization import initialized_as
from grandrounds.models.taggers import SpanTagger

APART = (1, 2, 4, 8, 16, 32, 64)
"""Words between two mentions, where a class of distances ends and the next begins."""


class JointModel(SpanTagger):
    def __init__(
        self, encoder: Encoder, types: int, relations: int, longest: int, hidden: int = 200, dropout: float = 0.1
    ) -> None:
        """Both numbers of classes count the one for none."""
        super().__init__(encoder, types, longest, hidden, dropout)
        with initialized_as("relations"):
            self.relations = PairClassifier(encoder.width, relations, hidden, dropout)


class PairClassifier(nn.Module):
    def __init__(self, width: int, classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.mix = nn.Linear(3 * width, hidden)
        self.distance = nn.Parameter(torch.zeros(2 * (len(APART) + 1), hidden))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden, classes)

    def represent(self, states: Tensor, pairs: Tensor) -> Tensor:
        """h: [sentences, words, width], [pairs, 5] -> [pairs, hidden]. A pair is its sentence, then the first word and
        the one past the last of its head and of its tail."""
        row, head, head_end, tail, tail_end = pairs.unbind(dim=1)
        total = F.pad(states.cumsum(dim=1), (0, 0, 1, 0))  # before each word
        gap, past = torch.minimum(head_end, tail_end), torch.maximum(head, tail)
        apart = (past - gap).clamp(min=0)  # mentions that overlap have nothing between them
        between = (total[row, gap + apart] - total[row, gap]) / apart.clamp(min=1)[:, None]
        sums = [total[row, end] - total[row, first] for first, end in ((head, head_end), (tail, tail_end))]
        far = torch.bucketize(apart, apart.new_tensor(APART), right=True) + (tail < head) * (len(APART) + 1)
        mixed = self.mix(torch.cat([*sums, between], dim=1)) + self.distance[far]
        return cast(Tensor, mixed.relu())

    def forward(self, h: Tensor) -> Tensor:
        """[pairs, classes], before the softmax."""
        logits: Tensor = self.output(self.dropout(h))
        return logits
