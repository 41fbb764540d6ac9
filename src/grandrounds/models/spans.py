"""Mentions as spans: every run of up to so many words gets a class, by its first and its last word.

Named Entity Recognition as Dependency Parsing (Yu et al., ACL 2020), with any states of words for its Bi-LSTM's:

    a = FFN_first(x_first)    b = FFN_last(x_last)
    r = a^T U b + W [a; b] + c_n      a score for each class of a span of n words; class 0 is "no mention"
    p = softmax(r)                    for each span by itself, so spans may nest and overlap

Only spans of up to `longest` words are scored: the cost grows with the words of a sentence, not with their square.
The paper has one c for all lengths, and its product of a first and a last word does not know how far apart they are.
"""

from __future__ import annotations

from math import log
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.models.decoder import Decoder

MENTIONS = 0.03
"""About how many spans are mentions: an untrained head says so, instead of learning it first."""
LIKELY = 0.25
"""A span is a mention from this probability of its type on: F1 is best at half its own value (Lipton et al., 2014).
Of spans that clash only the likeliest is found."""


class SpanClassifier(Decoder):
    """Scores [sentences, words, lengths, classes]: [s, i, n] is the span of n + 1 words that begins at word i."""

    def __init__(self, width: int, classes: int, longest: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.longest = longest
        self.first, self.last = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.dropout = nn.Dropout(dropout)
        self.product = nn.Parameter(torch.empty(hidden, classes, hidden).normal_(0, 1 / hidden))
        self.of_first, self.of_last = (nn.Linear(hidden, classes, bias=False) for _ in range(2))
        self.of_length = nn.Parameter(torch.zeros(longest, classes))
        with torch.no_grad():
            self.of_length[:, 0] = log(classes / MENTIONS)

    def forward(self, states: Tensor) -> Tensor:
        lengths = min(self.longest, states.shape[1])
        a = self.dropout(self.first(states).relu())
        b = self.dropout(self.last(states).relu())
        turned = torch.einsum("swh,hck->swck", a, self.product)
        products = (turned @ _ahead(b, lengths)).transpose(2, 3)
        linear = self.of_first(a)[:, :, None] + _ahead(self.of_last(b), lengths).transpose(2, 3)
        return cast(Tensor, products + linear + self.of_length[:lengths])

    def loss(self, scores: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """The cross-entropy of all spans, as the mean over sentences; `targets` are [sentences, words, longest]."""
        inside = spans_inside(lengths, scores)
        chosen = targets[:, :, : scores.shape[2]][inside]
        return F.cross_entropy(scores[inside].float(), chosen, reduction="sum") / len(lengths)

    def outputs(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """[sentences, words, 2 longest]: the likeliest type of each span that begins at the word, 0 if not LIKELY, then
        its probability; 0 for spans that don't exist."""
        probability, type = scores.float().softmax(dim=-1)[..., 1:].max(dim=-1)  # bfloat16 can't count to 300 classes
        best = (type + 1).masked_fill(probability < LIKELY, 0)
        outside = ~spans_inside(lengths, scores)
        missing = (0, self.longest - scores.shape[2])
        return torch.cat([F.pad(part.masked_fill(outside, 0), missing) for part in (best, probability)], dim=2)


def spans_inside(lengths: Tensor, scores: Tensor) -> Tensor:
    """[sentences, words, lengths]: whether the span ends within its sentence."""
    first = torch.arange(scores.shape[1], device=lengths.device)[:, None]
    return first + torch.arange(scores.shape[2], device=lengths.device) < lengths[:, None, None]


def spans_of_words(words: int, longest: int) -> int:
    """How many spans of up to so many words there are."""
    longest = min(words, longest)
    return longest * words - longest * (longest - 1) // 2


def _ahead(values: Tensor, lengths: int) -> Tensor:
    """[sentences, words, width, lengths]: for each word its own values, the next word's, ...; 0 past the last."""
    return F.pad(values, (0, 0, 0, lengths - 1)).unfold(1, lengths, 1)
