"""What the server holds before round 1, wherever its sites are: a model's spec, its data, what it may expect."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import torch as safetensors
from torch import nn

from grandrounds.config.schema import SHAPES, Config, Data, Model, Paths
from grandrounds.data.corpora import UNLABELLED, Source
from grandrounds.data.labels import LabelMap
from grandrounds.data.partition import SiteRow
from grandrounds.errors import ConfigError, DataError
from grandrounds.federation.contract import Algorithm
from grandrounds.federation.files import write_whole
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.payloads import Expected, PublicSet
from grandrounds.federation.rows import table_names
from grandrounds.federation.state import unfrozen
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
from grandrounds.tasks.abilities import SingleLabel
from grandrounds.tasks.masked_lm import MaskedLM
from grandrounds.tasks.task import Example, Features, Task


@dataclass(frozen=True)
class ServerSetup:
    spec: LearnerSpec
    model: nn.Module
    splits: Mapping[str, Split]
    """The server's: public, validation, test."""
    public: PublicSet | None
    """What of it sites may get."""
    expected: Expected
    table: Sequence[SiteRow]
    left_out: Sequence[str]
    warnings: Mapping[str, int]
    at_sites: frozenset[str] = frozenset()
    """Parts that each site has for itself: validation, test."""

    @property
    def scored(self) -> frozenset[str]:
        """What learners can be scored on."""
        return self.at_sites | self.splits.keys()


def documents_of(
    task: Task, features: Features, rows: NDArray[np.int64], examples: Sequence[Example]
) -> NDArray[np.int64]:
    """The document of each row of what was made of these examples."""
    return np.array([examples[i].document for i in task.examples_of(features, rows).tolist()], dtype=np.int64)


def split_of(
    task: Task, features: Features, examples: NDArray[np.int64], part: str, all_examples: Sequence[Example]
) -> Split:
    """These examples' rows; DataError where nothing of them can be read, which else would show after the training."""
    rows = task.rows(features, examples)
    if not len(rows):
        raise DataError(f"of the {part} data no row can be made for {task.name}: give other documents")
    return Split(features, rows, documents=documents_of(task, features, rows, all_examples))


def unlabelled_source(data: Data, base: Path, labels: LabelMap) -> Source | None:
    """The corpus of unlabelled text, if it is one by itself."""
    if not data.unlabelled_corpus:
        return None
    format = data.unlabelled_format or data.format
    options = {**(data.options if format == data.format else {}), **(data.unlabelled_options or {})}
    paths = paths_of(data.unlabelled if isinstance(data.unlabelled, str | list) else None, base)
    return Source(format, paths, options, data.lenient, labels)


def asked(served: Mapping[str, Sequence[int]]) -> list[int]:
    """The examples of the public set in its order: those with a label, then the others."""
    return [*served.get("public", ()), *served.get(UNLABELLED, ())]


def public_set(task: Task, examples: Sequence[Example], served: Mapping[str, Sequence[int]]) -> PublicSet | None:
    """What sites get of the server's examples."""
    rows = asked(served)
    return PublicSet([task.question(examples[row]) for row in rows]) if rows else None


def strip(task: Task, examples: Sequence[Example], served: Mapping[str, Sequence[int]]) -> Sequence[Example]:
    """The examples, those that are unlabelled without their labels: nothing that is made of them can tell."""
    hidden = frozenset(served.get(UNLABELLED, ()))
    if not hidden:
        return examples
    assert isinstance(task, SingleLabel)  # the config refuses data.unlabelled for other tasks
    return [task.without_label(example) if row in hidden else example for row, example in enumerate(examples)]


def server_splits(
    task: Task,
    examples: Sequence[Example],
    features: Features,
    served: Mapping[str, Sequence[int]],
    public: PublicSet | None,
) -> dict[str, Split]:
    """The server's data, by which of the examples each part has."""
    held = {**served, "public": asked(served), UNLABELLED: ()}
    splits = {
        part: split_of(task, features, np.array(rows, dtype=np.int64), part, examples)
        for part, rows in held.items()
        if rows
    }
    if public is not None:
        labelled = np.arange(len(served["public"])) if served.get(UNLABELLED) else None
        splits["public"] = replace(splits["public"], digest=public.digest, labelled=labelled)
    return splits


def manifest_of(model: nn.Module, algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
    """Shapes of what the algorithm shares."""
    algorithm.check(model.state_dict().keys())
    return {name: tuple(value.shape) for name, value in unfrozen(model).items() if algorithm.shared(name)}


def expected_of(
    model: nn.Module,
    manifest: Mapping[str, tuple[int, ...]],
    task: Task,
    public: tuple[int, str],
    algorithm: Algorithm,
) -> Expected:
    counters = frozenset(name for name, value in model.state_dict().items() if not value.is_floating_point())
    trained = frozenset(name for name, p in model.named_parameters() if name in manifest and p.requires_grad)
    tables = frozenset(table_names(model)) & manifest.keys()
    own = algorithm.tensors({name: shape for name, shape in manifest.items() if name in trained})
    return Expected(manifest, len(task.labels), public, integers=counters, trained=trained, tables=tables, tensors=own)


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
            elif name == "words" and model.vocabulary not in (None, "public", "vectors"):
                path = base / model.vocabulary
                if model.vocabulary == "sites":
                    path = _learnt_from(counted, model, learnt.parent)
                made = Encoder.find(name, task.markers, vectors=vectors, words=_read_words(path))
            else:
                words = None if vectors is None or model.vocabulary == "public" else model.most_words
                made = Encoder.find(name, task.markers, public, vectors, words)
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
    if model.vocabulary == "vectors" and model.vectors is None:
        raise ConfigError("model.vocabulary = 'vectors' needs a file of them: give model.vectors")


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


def warmed_up(config: Config, spec: LearnerSpec, splits: Mapping[str, Split], folder: Path) -> LearnerSpec:
    """The spec with the start that model.warm_up asks for; made once a run, as the vocabulary is."""
    if not config.model.warm_up:
        return spec
    start = folder / "start.safetensors"
    if not start.exists():
        server = Server(spec, splits, spec.initial_model())
        server.train("public", epochs=config.model.warm_up)
        write_whole(start, safetensors.save(server.model.state_dict()))
    return replace(spec, start=start)


def paths_of(given: Paths | None, base: Path) -> list[Path]:
    return [base / path for path in ([given] if isinstance(given, str) else given or [])]


def find_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name in there and not there[name]():
        raise ConfigError(f"device = '{name}', which this machine or this torch does not have; set device = 'auto'")
    return torch.device(name)
