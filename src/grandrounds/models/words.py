"""An encoder of word vectors alone: words of a public vector file, or of the public text, each with its vector.

It is a Hugging Face model of type `words`, so that it is named, saved, loaded and exchanged as any other encoder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from math import sqrt
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from grandrounds.errors import DataError
from grandrounds.models.word_pieces import SPECIAL

Vectors = dict[str, NDArray[np.float32]]
DEVIATION = 0.02
"""Of what transformers draw an embedding with."""
_NAME = re.compile(r"[^\W_]+(?:_[^\W_]+)+")
"""Words joined by underscores, as corpora of distant supervision write names: karl_lagerfeld."""


class WordsConfig(PreTrainedConfig):
    model_type: ClassVar[str] = "words"

    def __init__(
        self,
        vocab_size: int = 0,
        hidden_size: int = 50,
        pad_token_id: int = 0,
        drawn_by_word: bool = False,
        **more: Any,
    ) -> None:
        """`drawn_by_word`: what a word begins with depends on the seed and the word, not on its place among others."""
        super().__init__(**more)
        self.vocab_size, self.hidden_size, self.pad_token_id = vocab_size, hidden_size, pad_token_id
        self.drawn_by_word = drawn_by_word
        self.max_position_embeddings = 1 << 16  # a word's vector does not depend on its place


class Words(PreTrainedModel):
    """Its last hidden states are the words' vectors."""

    config_class = WordsConfig

    def __init__(self, config: WordsConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.post_init()  # type: ignore[no-untyped-call]  # untyped in transformers

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings = value  # type: ignore[assignment]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.embeddings(input_ids))


AutoConfig.register("words", WordsConfig)
AutoModel.register(WordsConfig, Words)


def word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """Whole words in small letters; what is not among them is [UNK]. A name with underscores that is not among them is
    the words that it joins."""
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_tokens([AddedToken(word, single_word=True) for word in vocabulary if _NAME.fullmatch(word)])
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def words_of(texts: Iterable[str], at_least: int = 2) -> list[str]:
    """The words that occur so often, commonest first."""
    splitter, norm = pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=True)
    counts = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(norm.normalize_str(text)))
    kept = [word for word, number in counts.items() if number >= at_least]
    return sorted(kept, key=lambda word: (-counts[word], word))


def names_of(texts: Iterable[str], vectors: Path) -> list[str]:
    """The names with underscores that occur in the texts and have a vector in the file."""
    names = {name.lower() for text in texts for name in _NAME.findall(text)}
    return sorted(_scan(vectors, names)) if names else []


def read_vectors(path: Path, wanted: Collection[str] | None = None, most: int | None = None) -> Vectors:
    """Vectors of a GloVe text or word2vec binary file: of the words wanted, or all; at most so many. Streamed."""
    found = _scan(path, wanted, most)
    if not found:
        raise DataError(f"word vectors '{path}' hold none of the words wanted; is it a GloVe or word2vec file?")
    return found


def _scan(path: Path, wanted: Collection[str] | None, most: int | None = None) -> Vectors:
    try:
        with path.open("rb") as file:
            first = file.readline()
            header = first.split()
            counted = len(header) == 2 and all(part.isdigit() for part in header)
            if counted and not _is_text(file):
                read = _binary(file, int(header[0]), int(header[1]), wanted, path)
            else:
                read = _text(file if counted else chain([first], file), wanted, path, 2 if counted else 1)
            return dict(islice(read, most))
    except OSError as error:
        raise DataError(f"word vectors '{path}' can't be read: {error.strerror}; check the path") from error


def _is_text(file: BinaryIO) -> bool:
    """Whether what follows a header is a line of numbers; the file is put back."""
    place = file.tell()
    line = file.readline(1 << 20).split()
    file.seek(place)
    try:
        return len(line) > 2 and all(np.isfinite(float(part)) for part in line[1:])
    except ValueError:
        return False


def _text(
    lines: Iterable[bytes], wanted: Collection[str] | None, path: Path, number: int
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    width = 0
    for i, line in enumerate(lines, start=number):
        word, _, rest = line.rstrip(b"\n").partition(b" ")
        width = width or len(rest.split())
        name = word.decode("utf-8", errors="replace")
        if not word or (wanted is not None and name not in wanted):
            continue
        numbers = rest.split()
        try:
            vector = np.array(numbers, dtype=np.float32)
        except ValueError as error:
            if len(numbers) > width:
                continue  # ". . ." in glove.840B: a name of several words, which no text is cut into
            raise DataError(f"{path}, line {i}: not a word and its numbers; is it a GloVe text file?") from error
        if len(vector) != width or not width:
            raise DataError(f"{path}, line {i}: a vector of {len(vector)} numbers, and others have {width}")
        yield name, vector


def _binary(
    file: BinaryIO, words: int, width: int, wanted: Collection[str] | None, path: Path
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    size = 4 * width
    for i in range(words):
        letters = bytearray()
        while (letter := file.read(1)) not in (b" ", b""):
            if letter != b"\n":
                letters += letter
        values = file.read(size)
        if len(values) < size:
            raise DataError(f"{path} ends within word {i + 1} of {words}; fetch it again")
        name = letters.decode("utf-8", errors="replace")
        if wanted is None or name in wanted:
            yield name, np.frombuffer(values, dtype="<f4").astype(np.float32)


@lru_cache(maxsize=1)
def _vectors_of(path: Path, changed: int, words: frozenset[str]) -> Vectors:
    """Each site's model begins with the same ones: the file, as long as it has not changed, is read once."""
    return read_vectors(path, words)


def draw_by_word(table: Tensor, tokenizer: Any, deviation: float) -> None:
    """Draw each word's row, uniform with this standard deviation, from torch's seed and the word alone."""
    for word, row in tokenizer.get_vocab().items():
        if row != tokenizer.pad_token_id:
            digest = blake2b(f"{torch.initial_seed()} {word}".encode(), digest_size=8).digest()
            drawn = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big"))).uniform(-1, 1, table.shape[1])
            with torch.no_grad():
                table[row] = torch.from_numpy(drawn * deviation * sqrt(3)).to(table.dtype)


def fill_vectors(table: Tensor, tokenizer: Any, path: Path) -> None:
    """Put the file's vectors in place of what was drawn, for the words that it has; the others keep theirs."""
    vocabulary = tokenizer.get_vocab()
    vectors = _vectors_of(path, path.stat().st_mtime_ns if path.exists() else 0, frozenset(vocabulary))
    rows = torch.tensor([vocabulary[word] for word in vectors])
    with torch.no_grad():
        table[rows] = torch.from_numpy(np.stack(list(vectors.values())))
