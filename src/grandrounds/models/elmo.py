"""ELMo (Peters et al., NAACL 2018) from its official files, `options.json` and `weights.hdf5`, frozen.

A word is its bytes: convolutions of several widths, each max-pooled over the word, highway layers, a projection. Upon
it stand two stacks of LSTMs, one reading forwards, one backwards. Layer 0 is the word twice, layer k the k-th states of
both stacks, so that all layers are twice the projection wide.

    highway    g f(x) + (1 - g) x,   g = sigmoid of the carry
    LSTM       gates i, j, f, o as TensorFlow orders them, forget bias 1; the cell clipped, projected, clipped again;
               from the second layer on what went in is added

The published model carries its LSTMs' states from batch to batch, so that a sentence's vectors depend on what was read
before. Here each sentence starts from zero; who wants the published numbers hands `States` from call to call.
Files are read with h5py (`grandrounds[elmo]`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.errors import ConfigError
from grandrounds.models.crf import words_inside
from grandrounds.models.word_layers import turned

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = range(256, 261)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "tanh": torch.tanh}


@dataclass
class States:
    """What the LSTMs ended with, by place in the batch; empty at first, changed by each call that is given it."""

    ends: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By direction and layer: outputs and cells, [most sentences so far, width]."""


class Elmo(nn.Module):
    """Words to states of every layer: no gradient, no dropout."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        characters, lstm = options["char_cnn"], options["lstm"]
        self.longest = int(characters["max_characters_per_token"])
        projected, highways = int(lstm["projection_dim"]), int(characters["n_highway"])
        self.words = _WordEncoder(characters, highways, projected)
        self.directions = nn.ModuleList(
            nn.ModuleList(_LSTM(projected, lstm) for _ in range(lstm["n_layers"])) for _ in range(2)
        )
        self.skips = bool(lstm["use_skip_connections"])
        self.layers, self.width = int(lstm["n_layers"]) + 1, 2 * projected
        self.requires_grad_(False)
        self.eval()

    @classmethod
    def load(cls, options: Path, weights: Path) -> Self:
        """The model of an options file and a weights file."""
        try:
            import h5py
        except ImportError:
            raise ConfigError("ELMo's weights are read with h5py; pip install 'grandrounds[elmo]'") from None
        try:
            model = cls(json.loads(options.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"'{options}' is no options file of ELMo ({_said(error)})") from error
        try:
            with h5py.File(weights, "r") as file:
                model._fill(file)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            problem = f"'{weights}' can't be read as ELMo's weights of '{options.name}' ({_said(error)})"
            raise ConfigError(problem) from error
        return model

    def embed(self, sentences: Sequence[Sequence[str]], states: States | None = None) -> list[Tensor]:
        """Each sentence's [words, layers, width]; the same whatever stands beside it, unless states are handed on."""
        given = self(*self.characters(sentences), states)
        return [rows[: len(words)] for rows, words in zip(given, sentences, strict=True)]

    def characters(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """What `forward` reads: ids [sentences, words + 2, characters], 0 past the end, and the numbers of words."""
        rows = [
            [self._marked([BEGIN_SENTENCE]), *map(self._word, words), self._marked([END_SENTENCE])]
            for words in sentences
        ]
        most = max(map(len, rows))
        ids = torch.tensor([row + [[0] * self.longest] * (most - len(row)) for row in rows])
        return ids, torch.tensor([len(words) for words in sentences])

    @torch.no_grad()
    def forward(self, characters: Tensor, lengths: Tensor, states: States | None = None) -> Tensor:
        """[sentences, words, layers, width], zero past the end."""
        lengths = lengths + 2  # with the marks of begin and end
        inside = words_inside(lengths, characters.shape[1])
        distinct, where = torch.unique(characters[inside], dim=0, return_inverse=True)
        encoded = self.words(distinct)[where]
        words = encoded.new_zeros(*inside.shape, self.width // 2)
        words[inside] = encoded
        stacks = [self._stack(direction, words, lengths, states) for direction in range(2)]
        above = [torch.cat(both, dim=-1) for both in zip(*stacks, strict=True)]
        layers = torch.stack([torch.cat([words, words], dim=-1), *above], dim=2)
        return layers[:, 1:-1].masked_fill(~words_inside(lengths - 2, layers.shape[1] - 2)[:, :, None, None], 0)

    def _stack(self, direction: int, words: Tensor, lengths: Tensor, states: States | None) -> list[Tensor]:
        """The states of each layer of one direction."""
        turn = turned(lengths, words.shape[1])[:, :, None]
        x = words.take_along_dim(turn, 1) if direction else words
        outs = []
        for layer, lstm in enumerate(self._lstms(direction)):
            out, ends = lstm(x, lengths, _start(states, (direction, layer), len(words)))
            if states is not None:
                _remember(states, (direction, layer), ends)
            x = out + x if layer and self.skips else out
            outs.append(x.take_along_dim(turn, 1) if direction else x)
        return outs

    def _lstms(self, direction: int) -> list[_LSTM]:
        return list(cast("Iterable[_LSTM]", self.directions[direction]))

    def _word(self, word: str) -> list[int]:
        return self._marked(list(word.encode("utf-8", "ignore")[: self.longest - 2]))

    def _marked(self, inner: list[int]) -> list[int]:
        ids = [BEGIN_WORD, *inner, END_WORD]
        return [id + 1 for id in ids + [PAD] * (self.longest - len(ids))]  # 0 is no word

    def _fill(self, file: Any) -> None:
        words = self.words
        table = _read(file, "char_embed")
        _set(words.embedding.weight, torch.cat([torch.zeros(1, table.shape[1]), table]))
        for i, convolution in enumerate(words.convolutions):
            _set(convolution.weight, _read(file, f"CNN/W_cnn_{i}")[0].permute(2, 1, 0))
            _set(convolution.bias, _read(file, f"CNN/b_cnn_{i}"))
        for i, highway in enumerate(words.highways):
            _set_linear(highway.carry, file, f"CNN_high_{i}", "carry")
            _set_linear(highway.transform, file, f"CNN_high_{i}", "transform")
        _set_linear(words.project, file, "CNN_proj", "proj")
        for direction in range(2):
            for i, lstm in enumerate(self._lstms(direction)):
                cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
                _set(lstm.weight, _read(file, f"{cell}/W_0").T)
                _set(lstm.bias, _read(file, f"{cell}/B"))
                _set(lstm.project, _read(file, f"{cell}/W_P_0").T)


class _WordEncoder(nn.Module):
    """Character ids, [words, characters], to [words, width]."""

    def __init__(self, options: dict[str, Any], highways: int, projected: int) -> None:
        super().__init__()
        width = int(options["embedding"]["dim"])
        filters = [(int(window), int(number)) for window, number in options["filters"]]
        every = sum(number for _, number in filters)
        self.activation = ACTIVATIONS[options["activation"]]
        self.embedding = nn.Embedding(PAD + 2, width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, number, window) for window, number in filters)
        self.highways = nn.ModuleList(_Highway(every) for _ in range(highways))
        self.project = nn.Linear(every, projected)

    def forward(self, characters: Tensor) -> Tensor:
        letters = self.embedding(characters).transpose(1, 2)
        x = torch.cat([self.activation(conv(letters).amax(dim=-1)) for conv in self.convolutions], dim=-1)
        for highway in self.highways:
            x = highway(x)
        out: Tensor = self.project(x)
        return out


class _Highway(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


class _LSTM(nn.Module):
    """One direction and layer, read from left to right."""

    def __init__(self, width: int, options: dict[str, Any]) -> None:
        super().__init__()
        hidden, projected = int(options["dim"]), int(options["projection_dim"])
        self.cell_clip, self.projection_clip = float(options["cell_clip"]), float(options["proj_clip"])
        self.width = width
        self.weight = nn.Parameter(torch.zeros(4 * hidden, width + projected))
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        self.project = nn.Parameter(torch.zeros(projected, hidden))

    def forward(
        self, x: Tensor, lengths: Tensor, start: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs, [sentences, words, projected], and each sentence's last output and cell."""
        if start is None:
            projected, hidden = self.project.shape
            start = x.new_zeros(len(x), projected), x.new_zeros(len(x), hidden)
        out, cell = start
        inside = words_inside(lengths, x.shape[1])
        from_below = F.linear(x, self.weight[:, : self.width], self.bias)  # all words at once
        outs = []
        for below, here in zip(from_below.unbind(dim=1), inside.T[:, :, None], strict=True):
            i, j, f, o = (below + F.linear(out, self.weight[:, self.width :])).chunk(4, dim=1)
            new = torch.sigmoid(f + 1) * cell + torch.sigmoid(i) * torch.tanh(j)
            new = new.clamp(-self.cell_clip, self.cell_clip)
            spoken = F.linear(torch.sigmoid(o) * torch.tanh(new), self.project)
            spoken = spoken.clamp(-self.projection_clip, self.projection_clip)
            out, cell = torch.where(here, spoken, out), torch.where(here, new, cell)
            outs.append(out)
        return torch.stack(outs, dim=1), (out, cell)


def _start(states: States | None, place: tuple[int, int], sentences: int) -> tuple[Tensor, Tensor] | None:
    """Where each sentence begins: with what stood at its place in the batch before, or with zero."""
    if states is None or place not in states.ends:
        return None
    return _rows(states.ends[place][0], sentences), _rows(states.ends[place][1], sentences)


def _remember(states: States, place: tuple[int, int], ends: tuple[Tensor, Tensor]) -> None:
    """Places that the batch did not fill keep what they had."""
    before = states.ends.get(place, ends)
    states.ends[place] = tuple(torch.cat([new, old[len(new) :]]) for new, old in zip(ends, before, strict=True))  # type: ignore[assignment]


def _rows(held: Tensor, sentences: int) -> Tensor:
    missing = max(0, sentences - len(held))
    return torch.cat([held[:sentences], held.new_zeros(missing, held.shape[1])])


def _read(file: Any, name: str) -> Tensor:
    if name not in file:
        raise ValueError(f"it has no {name}")
    return torch.from_numpy(file[name][()]).float()


def _set_linear(layer: Any, file: Any, group: str, name: str) -> None:
    _set(layer.weight, _read(file, f"{group}/W_{name}").T)
    _set(layer.bias, _read(file, f"{group}/b_{name}"))


def _set(parameter: Any, values: Tensor) -> None:
    if parameter.shape != values.shape:
        raise ValueError(f"a tensor of {list(values.shape)} where the options ask for {list(parameter.shape)}")
    parameter.data.copy_(values)


def _said(error: Exception) -> str:
    return str(error).partition("\n")[0]
