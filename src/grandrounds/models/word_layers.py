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
    of the window is looked up in a table, and only where there is a character, rather than up to the longest word.
    """

    def __init__(self, size: int, width: int, filters: int, window: int = 3) -> None:
        super().__init__()
        self.embedding = embedding(size, width)
        self.convolution = nn.Conv1d(width, filters, window)
        self.width = filters
        self.before, self.after = (window - 1) // 2, window // 2

    def forward(self, characters: Tensor) -> Tensor:
        there = characters > 0
        around, size = F.pad(characters, (self.before, self.after)), self.embedding.num_embeddings
        beside = around.unfold(1, self.before + 1 + self.after, 1)[there]
        rows = torch.where(beside > 0, beside + size * torch.arange(beside.shape[1], device=beside.device), 0)
        table = torch.einsum("fcp,vc->pvf", self.convolution.weight, self.embedding.weight).flatten(0, 1)
        states = F.embedding_bag(rows, table, mode="sum", padding_idx=0) + cast(Tensor, self.convolution.bias)
        word = there.nonzero()[:, :1].expand_as(states)
        # A maximum with zero: the ReLU comes with it.
        return states.new_zeros(len(there), self.width).scatter_reduce(0, word, states, "amax")


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
    """One Bi-LSTM. Sentences are turned round rather than packed: training on a CPU takes half the time, and tagging no
    longer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(width, hidden, batch_first=True)
        self.backwards = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        sentence = torch.arange(len(words), device=words.device)[:, None]
        rows = turned(lengths, words.shape[1]) + words.shape[1] * sentence
        before, _ = self.forwards(words)
        after, _ = self.backwards(_at(rows, words))
        states = torch.cat([before, _at(rows, after)], dim=-1)
        return states.masked_fill(~words_inside(lengths, words.shape[1])[:, :, None], 0)


def _at(rows: Tensor, words: Tensor) -> Tensor:
    """The words at these places of all sentences end to end."""
    return words.flatten(0, 1).index_select(0, rows.flatten()).view_as(words)


def turned(lengths: Tensor, words: int) -> Tensor:
    """[sentences, words]: each sentence's places from its last to its first, those past its end as they are."""
    place = torch.arange(words, device=lengths.device).expand(len(lengths), -1)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def slide(words: Tensor, convolution: nn.Conv1d, before: int) -> Tensor:
    """The convolution at each word, its window beginning so many words before: one matrix product for all places of the
    window, since what is moved and summed afterwards is narrower than what goes in."""
    window = convolution.kernel_size[0]
    products = F.linear(words, convolution.weight.permute(2, 0, 1).flatten(0, 1))
    products = products.reshape(*words.shape[:2], window, -1)
    around = F.pad(products, (0, 0, 0, 0, before, window - 1 - before))
    moved = [around[:, p : p + words.shape[1], p] for p in range(window)]
    return sum(moved[1:], moved[0]) + cast(Tensor, convolution.bias)
