"""A frozen language model's states of words: ELMo's layers, or a transformer's, computed once a sentence and kept.

A sentence is read when a batch first asks for it: sites and workers pay for what they train on, and a second epoch for
nothing. Its states are a function of itself alone where the model reads one sentence at a time; with several at once,
which is faster, of itself and its companions, chosen by the corpus and not by the order of batches. They are kept as
float16, and rounded so when they are not kept: what is over `MOST` bytes is read anew each time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.errors import ConfigError
from grandrounds.models.elmo import Elmo
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.ner_pieces import pieces_of, windows_of

MOST = 2 << 30
"""Bytes that the states of a corpus may take: 350,000 words of ELMo, 2,800,000 of a transformer 384 wide."""
TOP = 4
"""Of a transformer the mean of so many layers: near the best of Devlin et al. (2019, Table 7), at the price of one."""
Half = NDArray[np.float16]


class Language(Protocol):
    """A frozen language model."""

    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int:
        """How many layers a tagger is to mix; one if they come mixed."""

    def states(self, sentences: Sequence[Sequence[str]]) -> list[Half]:
        """Of each sentence [words, width], or [words, layers, width]. Words have the space before them, if any."""

    def save(self, folder: Path) -> None: ...


def find_language(name: str, base: Path) -> Language:
    """ELMo if it is a folder with its two files, or its options file; else a transformer's folder or hub name."""
    path = base / name
    if is_elmo(name, base):
        options = [path] if path.is_file() else sorted(path.glob("*options.json"))
        if len(options) > 1:
            raise ConfigError(f"task.language = '{name}' holds several options files; name one of them")
        return FrozenElmo(options[0], _weights(options[0]))
    return FrozenTransformer(Encoder.find(str(path) if path.is_dir() else name))


def is_elmo(name: str, base: Path) -> bool:
    path = base / name
    return path.is_file() or (any(path.glob("*options.json")) and not (path / "config.json").exists())


def _weights(options: Path) -> Path:
    """What lies beside an options file: of the same name but for its end, or the only weights there."""
    named = options.with_name(options.name.removesuffix("options.json") + "weights.hdf5")
    there = [named] if named.exists() else sorted(options.parent.glob("*weights.hdf5"))
    if len(there) != 1:
        raise ConfigError(f"beside ELMo's '{options.name}' there must be its '{named.name}'; {len(there)} files fit")
    return there[0]


class FrozenElmo:
    def __init__(self, options: Path, weights: Path) -> None:
        self._files = {"options.json": options, "weights.hdf5": weights}
        self._model = Elmo.load(options, weights)
        self.width, self.layers = self._model.width, self._model.layers

    def states(self, sentences: Sequence[Sequence[str]]) -> list[Half]:
        bare = [[word.strip() for word in words] for words in sentences]
        return [rows.numpy().astype(np.float16) for rows in self._model.embed(bare)]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, file in self._files.items():
            _same_file(file, folder / name)


class FrozenTransformer:
    layers = 1

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.width = encoder, encoder.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what a checkpoint lacks is drawn
            self._model = encoder.build().eval().requires_grad_(False)

    @torch.inference_mode()
    def states(self, sentences: Sequence[Sequence[str]]) -> list[Half]:
        """A word is the mean of its pieces."""
        texts = pieces_of(sentences, self._encoder)
        windows = windows_of(texts, self._encoder.window, self._encoder)
        given = self._model(
            input_ids=windows.input_ids, attention_mask=windows.attention_mask, output_hidden_states=True
        )
        layers: list[Tensor] = list(given.hidden_states[1:][-TOP:])
        pieces = torch.stack(layers).mean(dim=0).flatten(0, 1)
        states = []
        for text, places in zip(texts, windows.places, strict=True):
            sums = np.add.reduceat(pieces[torch.from_numpy(places)].numpy(), text.first, axis=0)
            states.append((sums / text.sizes[:, None]).astype(np.float16))
        return states

    def save(self, folder: Path) -> None:
        self._encoder.save(folder)
        self._model.save_pretrained(folder)  # type: ignore[operator]  # to mypy it might be a tensor


class LanguageStates:
    """The states of a corpus's sentences, on demand."""

    def __init__(self, language: Language, sentences: Sequence[Sequence[str]], at_once: int) -> None:
        self._language, self._most = language, MOST
        distinct = sorted(set(map(tuple, sentences)), key=lambda words: (len(words), words))
        number = {words: i for i, words in enumerate(distinct)}
        self._row = np.array([number[tuple(words)] for words in sentences], dtype=np.int64)
        self._sentences, self._at_once = distinct, at_once
        self._kept: dict[int, Half] = {}
        self._bytes = 0

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        """[sentences, words, ...], zero past the end, as float16."""
        found = self._find(self._row[rows].tolist())
        longest = max(map(len, found))
        states = np.zeros((len(found), longest, *found[0].shape[1:]), dtype=np.float16)
        for place, one in zip(states, found, strict=True):
            place[: len(one)] = one
        return torch.from_numpy(states)

    def _find(self, wanted: Sequence[int]) -> list[Half]:
        here: dict[int, Half] = {}
        for sentence in wanted:
            if sentence not in self._kept and sentence not in here:
                here.update(self._read(sentence // self._at_once * self._at_once))
        return [self._kept[i] if i in self._kept else here[i] for i in wanted]

    def _read(self, start: int) -> dict[int, Half]:
        """A sentence and its companions."""
        members = range(start, min(start + self._at_once, len(self._sentences)))
        read = dict(zip(members, self._language.states([self._sentences[i] for i in members]), strict=True))
        for sentence, states in read.items():
            if sentence not in self._kept and self._bytes + states.nbytes <= self._most:
                self._kept[sentence] = states
                self._bytes += states.nbytes
        return read


def _same_file(source: Path, target: Path) -> None:
    """A second name for hundreds of megabytes, or where the disk has none a copy."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
