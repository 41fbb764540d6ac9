"""Sentences as numbers, end to end: words and their letters for taggers of words, word pieces for a transformer.

A letter is a byte of UTF-8, so that the alphabet is the same everywhere and no site's text decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.metrics.spans import Span as WordSpan
from grandrounds.models.encoder import Encoder
from grandrounds.models.word_pieces import SPECIAL
from grandrounds.tasks.ner_language import LanguageStates
from grandrounds.tasks.ner_pieces import PieceText, windows_of
from grandrounds.tasks.task import Batch

LETTERS = 1 + 256
"""Bytes, after 0 for no letter."""
LONGEST_WORD = 50
"""Bytes; of a longer word, which is rather a sequence or an address, the middle is left out. As many as in ELMo."""


@dataclass(frozen=True)
class NERRows(Batch):
    lengths: Tensor
    """[sentences]: how many words."""
    targets: Tensor
    """[sentences, words], or with further dimensions: what a model learns of each word."""


@dataclass(frozen=True)
class WordRows(NERRows):
    """What models/taggers.py calls a WordBatch."""

    words: Tensor
    characters: Tensor
    language: Tensor | None


@dataclass(frozen=True)
class PieceRows(NERRows):
    """What models/taggers.py calls a PieceBatch."""

    input_ids: Tensor
    attention_mask: Tensor
    first: Tensor


@dataclass(frozen=True)
class Answers:
    """What a model learns of every sentence, and its gold mentions: more than a model can say, maybe."""

    starts: NDArray[np.int64]
    """Where each sentence's words begin, and the number of all words."""
    targets: NDArray[np.int32]
    """[words, ...]"""
    gold: Sequence[Sequence[WordSpan]]

    @classmethod
    def of(cls, targets: Sequence[NDArray[np.int32]], gold: Sequence[Sequence[WordSpan]]) -> Self:
        joined = np.concatenate(targets) if targets else np.zeros(0, dtype=np.int32)
        return cls(_starts(map(len, targets)), joined, gold)

    @cached_property
    def words(self) -> NDArray[np.int64]:
        """How many each sentence has."""
        return np.diff(self.starts)

    def gather(self, values: NDArray[np.int32], rows: NDArray[np.int64]) -> Tensor:
        """What each word of these sentences has of `values`, [sentences, words, ...], 0 past the end."""
        position = np.arange(self.words[rows].max())
        mask = position < self.words[rows][:, None]
        places = np.minimum(self.starts[rows][:, None] + position, len(values) - 1)
        found = values[places].astype(np.int64)
        found[~mask] = 0
        return torch.from_numpy(found)


@dataclass(frozen=True)
class WordFeatures:
    said: Answers
    words: NDArray[np.int32]
    """Each word's vector."""
    spellings: NDArray[np.int32]
    """Each word's place among all spellings."""
    letters: NDArray[np.uint8]
    """The bytes of all spellings, of which `ends` says where each ends."""
    ends: NDArray[np.int64]
    language: LanguageStates | None

    @classmethod
    def of(
        cls, said: Answers, sentences: Sequence[Sequence[str]], encoder: Encoder, language: LanguageStates | None
    ) -> Self:
        find = vector_finder(encoder)
        distinct = dict.fromkeys(word for words in sentences for word in words)
        number = {word: i for i, word in enumerate(distinct)}
        vector = np.array([find(word) for word in distinct], dtype=np.int32)
        spellings = np.array([number[word] for words in sentences for word in words], dtype=np.int32)
        spelt = [spell(word) for word in distinct]
        ends = np.array([len(word) for word in spelt], dtype=np.int64).cumsum()
        return cls(said, vector[spellings], spellings, np.frombuffer(b"".join(spelt), dtype=np.uint8), ends, language)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.said.words

    @property
    def answers(self) -> NDArray[np.int64]:
        """One a word."""
        return self.said.words

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> WordRows:
        index = np.asarray(rows, dtype=np.int64)
        lengths = torch.from_numpy(self.said.words[index])
        spellings = self.said.gather(self.spellings, index).numpy()
        spelt = self._letters(spellings)
        spelt[np.arange(spellings.shape[1]) >= self.said.words[index][:, None]] = 0
        return WordRows(
            index=torch.from_numpy(index),
            lengths=lengths,
            targets=self.said.gather(self.said.targets, index),
            words=self.said.gather(self.words, index),
            characters=torch.from_numpy(spelt),
            language=None if self.language is None else self.language.batch(index),
        )

    def _letters(self, spellings: NDArray[np.int64]) -> NDArray[np.int64]:
        ends = self.ends[spellings]
        starts = np.where(spellings > 0, self.ends[spellings - 1], 0)
        position = np.arange((ends - starts).max())
        places = starts[..., None] + position
        found = self.letters[np.minimum(places, len(self.letters) - 1)].astype(np.int64) + 1
        return np.where(places < ends[..., None], found, 0)


@dataclass(frozen=True)
class PieceFeatures:
    said: Answers
    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    first: NDArray[np.int32]
    """Of each word, the place of its first piece in its sentence."""
    window: int
    encoder: Encoder

    @classmethod
    def of(cls, said: Answers, texts: Sequence[PieceText], window: int, encoder: Encoder) -> Self:
        ids = np.concatenate([text.ids for text in texts])
        first = np.concatenate([text.first for text in texts]).astype(np.int32)
        return cls(said, ids, _starts(len(text.ids) for text in texts), first, window, encoder)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts) + 2

    @property
    def answers(self) -> NDArray[np.int64]:
        """One a word."""
        return self.said.words

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> PieceRows:
        index = np.asarray(rows, dtype=np.int64)
        windows = windows_of([self._text(row) for row in index.tolist()], self.window, self.encoder)
        first = self.said.gather(self.first, index)
        for row, (places, words) in enumerate(zip(windows.places, self.said.words[index].tolist(), strict=True)):
            first[row, :words] = torch.from_numpy(places)[first[row, :words]]
        return PieceRows(
            index=torch.from_numpy(index),
            lengths=torch.from_numpy(self.said.words[index]),
            targets=self.said.gather(self.said.targets, index),
            input_ids=windows.input_ids,
            attention_mask=windows.attention_mask,
            first=first,
        )

    def _text(self, row: int) -> PieceText:
        words = slice(self.said.starts[row], self.said.starts[row + 1])
        return PieceText(self.ids[self.starts[row] : self.starts[row + 1]], self.first[words].astype(np.int64))


def spell(word: str) -> bytes:
    letters = word.encode("utf-8", "replace")
    half = LONGEST_WORD // 2
    return letters if len(letters) <= LONGEST_WORD else letters[:half] + letters[-half:]


def vector_finder(encoder: Encoder) -> Callable[[str], int]:
    """Words to ids, as they are written, else in small letters, else as the vocabulary was made; never in parts."""
    tokenizer = encoder.tokenizer
    vocabulary = {word: id for word, id in tokenizer.get_vocab().items() if word not in SPECIAL}
    norm = tokenizer.backend_tokenizer.normalizer

    def find(word: str) -> int:
        for form in (word, word.lower(), norm.normalize_str(word)):
            if form in vocabulary:
                return int(vocabulary[form])
        return int(tokenizer.unk_token_id)

    return find


def _starts(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(list(lengths))]).astype(np.int64)
