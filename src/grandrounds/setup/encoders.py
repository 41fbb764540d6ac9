"""The encoder that a config names: a pretrained one, or one whose vocabulary is learnt once a run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from grandrounds.config.schema import SHAPES, Model
from grandrounds.errors import ConfigError
from grandrounds.models.encoder import Encoder, Size
from grandrounds.models.word_pieces import (
    INSIDE,
    SPECIAL,
    count_strings,
    read_pieces,
    read_usage,
    usage_beside,
    write_pieces,
    write_words,
)
from grandrounds.tasks.masked_lm import MaskedLM
from grandrounds.tasks.task import Task


def resolved(encoder: str, base: Path) -> str:
    """One name for one encoder, however the config spells it."""
    return str((base / encoder).resolve()) if encoder not in LEARNT and (base / encoder).is_dir() else encoder


LEARNT = ("tiny", "words", "new")
"""Encoders whose vocabulary comes from the public text, or from a file of vectors or word pieces."""
PIECES = "pieces.txt"
"""In a run's vocabulary/: what was learnt from the sites, or the file that was named; and how often pieces are used."""
Counting = Callable[[Sequence[str], int], Mapping[str, int]]
"""What of documents is counted, if at least so many have it."""
Counted = Callable[[Counting], Mapping[str, int]]
"""What sites count so, summed."""


def find_encoder(
    name: str,
    model: Model,
    base: Path,
    task: Task,
    public: Sequence[str],
    folder: Path,
    counted: Counted | None = None,
) -> Encoder:
    """A vocabulary is learnt once a run: workers and resumed runs find it in the run folder. `counted` is what sites
    count, where that can be asked for."""
    vectors = None if model.vectors is None else base / model.vectors
    _check_options(name, model, task)
    if name not in LEARNT:
        found = Encoder.find(name, task.markers)
        found = found if model.layers is None else found.first_layers(model.layers)
        if model.vocabulary is not None:
            found = replace(found, usage=_usage(found, model, public, counted))
    else:
        learnt, part = folder / "vocabulary" / name, folder / f".vocabulary.{name}.part"
        if not learnt.exists():
            if name == "new":
                size = _size(model)
                pieces = _file_of_pieces(model, base, learnt.parent)
                if model.vocabulary == "sites":
                    pieces = _learnt_from(counted, model, learnt.parent)
                made = Encoder.new(size, public, pieces, task.markers)
            elif name == "words" and model.vocabulary not in (None, "public", "vectors", "both"):
                path = base / model.vocabulary
                if model.vocabulary == "sites":
                    path = _learnt_from(counted, model, learnt.parent)
                made = Encoder.find(name, task.markers, vectors=vectors, words=_read_words(path))
            else:
                words = None if vectors is None or model.vocabulary == "public" else model.most_words
                texts = () if model.vocabulary == "vectors" else public
                made = Encoder.find(name, task.markers, texts, vectors, words)
            made.save(part)
            learnt.parent.mkdir(exist_ok=True)
            part.rename(learnt)
        found = replace(Encoder.saved(learnt), vectors=vectors)
        if name == "new" and (usage := read_usage(learnt.parent / PIECES)) is not None:
            found = replace(found, usage=torch.tensor(usage, dtype=torch.float32))
    if model.attention_dropout is not None:
        found = found.dropping_attention(model.attention_dropout)
    return replace(found, lora=model.lora())


def _check_options(name: str, model: Model, task: Task) -> None:
    """ConfigError where the config says of an encoder what only another has."""
    for key in SHAPES:
        if name != "new" and getattr(model, key) is not None and not (key == "layers" and name not in LEARNT):
            fitting = "'new' or a pretrained one" if key == "layers" else "'new'"
            raise ConfigError(f"model.{key} is for model.encoder = {fitting}; another has its own")
    if name != "words" and model.vectors is not None:
        raise ConfigError("model.vectors is for model.encoder = 'words'; another has its own")
    if name not in LEARNT and task.name == MaskedLM.name:
        if model.vocabulary not in (None, "public", "sites"):
            raise ConfigError(
                f"model.vocabulary = '{model.vocabulary}': encoder '{name}' keeps its own word pieces; 'public' or "
                "'sites' says whose text tells how common they are"
            )
    elif name not in ("words", "new") and model.vocabulary is not None:
        raise ConfigError("model.vocabulary is for model.encoder = 'words' or 'new'; another has its own")
    if model.vocabulary in ("vectors", "both") and model.vectors is None:
        raise ConfigError(f"model.vocabulary = '{model.vocabulary}' needs a file of vectors: give model.vectors")


def _size(model: Model) -> Size:
    width = model.width or 256
    heads = model.heads or max(width // 64, 1)
    dropout = 0.1 if model.dropout is None else model.dropout
    return Size(model.layers or 4, width, heads, model.pieces or 8000, dropout)


def _file_of_pieces(model: Model, base: Path, folder: Path) -> Path | None:
    """The file that is named, and a copy in the folder if it comes with how often pieces are used."""
    if model.vocabulary in (None, "public", "sites"):
        return None
    path = base / model.vocabulary
    if read_usage(path) is not None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / PIECES)
        shutil.copyfile(usage_beside(path), usage_beside(folder / PIECES))
    return path


def _learnt_from(counted: Counted | None, model: Model, folder: Path) -> Path:
    """Word pieces as a file, with how often each is used."""
    if counted is None:
        raise ConfigError(
            "model.vocabulary = 'sites' is for simulations; between hosts sites count with 'grandrounds vocabulary "
            "count', the coordinator merges, and model.vocabulary is the file that comes out"
        )
    whole = partial(count_strings, whole=model.encoder == "words")
    counts = _enough(counted(whole), model)
    folder.mkdir(parents=True, exist_ok=True)
    if model.encoder == "words":
        write_words(folder / PIECES, counts, model.most_words)
    else:
        write_pieces(folder / PIECES, counts, _size(model).pieces)
    return folder / PIECES


def _read_words(path: Path) -> list[str]:
    """A word a line, as 'grandrounds vocabulary merge --words' writes them."""
    try:
        words = [word for word in read_pieces(path) if word and word not in SPECIAL]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"model.vocabulary: '{path}' can't be read ({error})") from error
    if not words or any(word.startswith(INSIDE) or len(word.split()) != 1 for word in words):
        raise ConfigError(
            f"model.vocabulary: '{path}' must have a whole word a line for model.encoder = 'words'; make it with "
            "'grandrounds vocabulary count --words' and 'merge --words'"
        )
    return words


def _usage(encoder: Encoder, model: Model, public: Sequence[str], counted: Counted | None) -> torch.Tensor:
    """[word embeddings]: how often each word piece of a pretrained encoder occurs at sites or in public text."""
    if model.vocabulary == "public":
        counts: Mapping[str, int] = encoder.count_pieces(public, least=1)
        if not counts:
            raise ConfigError("model.vocabulary = 'public' counts word pieces of the public set: raise data.public")
    elif counted is None:
        raise ConfigError(
            "model.vocabulary = 'sites' is for simulations; between hosts set model.vocabulary = 'public', or leave it "
            "out"
        )
    else:
        counts = _enough(counted(encoder.count_pieces), model)
    usage = torch.zeros(encoder.config.vocab_size)
    usage[encoder.tokenizer.convert_tokens_to_ids(list(counts))] = torch.tensor([*counts.values()], dtype=usage.dtype)
    return usage


def _enough(counts: Mapping[str, int], model: Model) -> Mapping[str, int]:
    if not counts:
        least = model.vocabulary_documents
        raise ConfigError(f"no string is in {least} documents of a site; lower model.vocabulary_documents")
    return counts
