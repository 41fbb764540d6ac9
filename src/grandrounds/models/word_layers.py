"""The layers that taggers are built of: characters to words, words to states (FedNER, section 3.1).

Words are [sentences, words, width] and `lengths` [sentences]; every layer takes zeros past a sentence's end and gives
zeros there, so that a sentence reads the same alone and beside longer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from grandrounds.models.crf import words_inside


def embedding(size: int, width: int) -> nn.Embedding:
    """Vectors for ids, that of 0 (padding) fixed at zero; uniform as in Ma and Hovy (2016)."""
    table = nn.Embedding(size, width, padding_idx=0)
    with torch.no_grad():
        table.weight[1:].uniform_(-sqrt(3 / width), sqrt(3 / width))
    return table


class CharacterCNN(nn.Module):
    """A word is the maximum over its characters of a convolution: e^c of FedNER, as in Ma and Hovy (2016).

    Characters are [words, characters], 0 past a word's end. Since there are few of them, what each adds at each place
    of the window is looked up in a table; and words are read end to end, zeros between them for the window to look
    into, rather than padded to the longest. On a CPU a step costs an eighth of conv1d's.
    """

    def __init__(self, size: int, width: int, filters: int, window: int = 3) -> None:
        super().__init__()
        self.embedding = embedding(size, width)
        self.convolution = nn.Conv1d(width, filters, window)
        self.width = filters
        self.before, self.after = (window - 1) // 2, window // 2

    def forward(self, characters: Tensor) -> Tensor:
        gap = max(1, self.after)
        room = (characters > 0).sum(dim=1) + gap
        ids = F.pad(characters, (0, gap))
        flat = ids[words_inside(room, ids.shape[1])]
        around = F.pad(flat, (self.before, self.after))
        tables = torch.einsum("fcp,vc->pvf", self.convolution.weight, self.embedding.weight)
        seen = [F.embedding(around[p : p + len(flat)], table, padding_idx=0) for p, table in enumerate(tables)]
        states = F.relu(torch.stack(seen).sum(dim=0) + cast(Tensor, self.convolution.bias)).masked_fill(
            flat[:, None] == 0, 0
        )
        word = torch.arange(len(room), device=flat.device).repeat_interleave(room)[:, None].expand_as(states)
        return states.new_zeros(len(room), self.width).scatter_reduce(0, word, states, "amax")


class CharacterLSTM(nn.Module):
    """A word is the last states of a Bi-LSTM over its characters (Lample et al., 2016)."""

    def __init__(self, size: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = embedding(size, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.width = 2 * hidden

    def forward(self, characters: Tensor) -> Tensor:
        lengths = (characters > 0).sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(self.embedding(characters), lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return cast(Tensor, last).transpose(0, 1).flatten(start_dim=1)


class LayerMix(nn.Module):
    """A language model's layers as one: scale * sum_j softmax(weight)_j h_j (Peters et al., 2018, Eq. 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, states: Tensor) -> Tensor:
        """[sentences, words, layers, width] -> [sentences, words, width]"""
        return self.scale * torch.einsum("l,abld->abd", self.weight.softmax(dim=0), states)


class WordCNN(nn.Module):
    """The words round a word: a convolution over the sentence."""

    def __init__(self, width: int, filters: int, window: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, filters, window)
        self.width, self.before = filters, (window - 1) // 2

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        states = F.relu(slide(words, self.convolution, self.before))
        return states.masked_fill(~words_inside(lengths, words.shape[1])[:, :, None], 0)


class GramCNN(nn.Module):
    """Of the n-grams that hold a word, for each n the maximum of their convolution (Zhu et al., 2017).

    An n-gram lies wholly within its sentence; a sentence shorter than n has zeros for that n.
    """

    def __init__(self, width: int, filters: int, grams: Sequence[int] = (1, 2, 3, 4, 5)) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(width, filters, n) for n in grams)
        self.grams, self.width = tuple(grams), filters * len(grams)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        maxima = []
        for n, convolution in zip(self.grams, self.convolutions, strict=True):
            begun_here = torch.tanh(slide(words, cast(nn.Conv1d, convolution), 0))
            runs_past = ~words_inside(lengths - n + 1, words.shape[1])[:, :, None]
            begun_here = begun_here.masked_fill(runs_past, NONE)
            best = F.pad(begun_here, (0, 0, n - 1, 0), value=NONE).unfold(1, n, 1).amax(dim=-1)
            maxima.append(best.masked_fill(best == NONE, 0))
        states = torch.cat(maxima, dim=-1)
        return states.masked_fill(~words_inside(lengths, words.shape[1])[:, :, None], 0)


NONE = -2.0  # below any tanh


class BiLSTM(nn.Module):
    """What stands before and after a word: Bi-LSTMs, one upon the other."""

    def __init__(self, width: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_BothWays(2 * hidden if below else width, hidden) for below in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.width = 2 * hidden

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        for below, layer in enumerate(self.layers):
            words = layer(self.dropout(words) if below else words, lengths)
        return words


class _BothWays(nn.Module):
    """One Bi-LSTM. Sentences are turned round rather than packed: training on a CPU takes two thirds of the time."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(width, hidden, batch_first=True)
        self.backwards = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        turn = turned(lengths, words.shape[1])[:, :, None]
        before, _ = self.forwards(words)
        after, _ = self.backwards(words.take_along_dim(turn, dim=1))
        states = torch.cat([before, after.take_along_dim(turn, dim=1)], dim=-1)
        return states.masked_fill(~words_inside(lengths, words.shape[1])[:, :, None], 0)


def turned(lengths: Tensor, words: int) -> Tensor:
    """[sentences, words]: each sentence's places from its last to its first, those past its end as they are."""
    place = torch.arange(words, device=lengths.device).expand(len(lengths), -1)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def slide(words: Tensor, convolution: nn.Conv1d, before: int) -> Tensor:
    """The convolution at each word, its window beginning so many words before. A matrix product for each place of the
    window: over ELMo's width this takes less than half of conv1d's time on a CPU."""
    window = convolution.kernel_size[0]
    around = F.pad(words, (0, 0, before, window - 1 - before))
    places = range(window)
    parts = [F.linear(around[:, p : p + words.shape[1]], convolution.weight[:, :, p]) for p in places]
    return torch.stack(parts).sum(dim=0) + cast(Tensor, convolution.bias)
