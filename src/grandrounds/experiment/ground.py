"""What the server holds before round 1, wherever its sites are: a model's practice, its data, what it may expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import torch as safetensors
from torch import nn

from grandrounds.data.partition import SiteRow
from grandrounds.errors import ConfigError
from grandrounds.experiment.config import Config, Model, Paths
from grandrounds.federation.contract import Algorithm
from grandrounds.federation.files import write_whole
from grandrounds.federation.learner import Practice, Server, Split
from grandrounds.federation.payloads import Expected, PublicSet
from grandrounds.federation.state import unfrozen
from grandrounds.models.encoder import Encoder
from grandrounds.tasks import Task
from grandrounds.tasks.task import Features


@dataclass(frozen=True)
class Ground:
    practice: Practice
    model: nn.Module
    splits: Mapping[str, Split]
    """The server's: public, validation, test."""
    public: PublicSet | None
    """What of it sites may get."""
    expected: Expected
    table: Sequence[SiteRow]
    left_out: Sequence[str]
    notes: Mapping[str, int]
    at_sites: frozenset[str] = frozenset()
    """Parts that each site has for itself: validation, test."""

    @property
    def scored(self) -> frozenset[str]:
        """What learners can be scored on."""
        return self.at_sites | self.splits.keys()


def server_splits(
    features: Features, served: Mapping[str, Sequence[int]], public: PublicSet | None
) -> dict[str, Split]:
    """The server's data, by the rows that each part has."""
    splits = {part: Split(features, np.array(rows, dtype=np.int64)) for part, rows in served.items() if rows}
    if public is not None:
        splits["public"] = replace(splits["public"], digest=public.digest)
    return splits


def manifest_of(model: nn.Module, algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
    """Shapes of what the algorithm shares."""
    algorithm.check(model.state_dict().keys())
    return {name: tuple(value.shape) for name, value in unfrozen(model).items() if algorithm.shared(name)}


def expected_of(
    model: nn.Module, manifest: Mapping[str, tuple[int, ...]], task: Task, public: tuple[int, str]
) -> Expected:
    counters = frozenset(name for name, value in model.state_dict().items() if not value.is_floating_point())
    trained = frozenset(name for name, p in model.named_parameters() if name in manifest and p.requires_grad)
    return Expected(manifest, len(task.labels), public, integers=counters, trained=trained)


def resolved(encoder: str, base: Path) -> str:
    """One name for one encoder, however the config spells it."""
    return str((base / encoder).resolve()) if encoder != "tiny" and (base / encoder).is_dir() else encoder


LEARNT = ("tiny", "words")
"""Encoders whose vocabulary comes from the public text, or from a file of vectors."""


def find_encoder(name: str, model: Model, base: Path, task: Task, public: Sequence[str], folder: Path) -> Encoder:
    """A vocabulary is learnt once a run: workers and resumed runs find it in the run folder."""
    vectors = None if model.vectors is None else base / model.vectors
    if name != "words" and (vectors is not None or model.vocabulary is not None):
        raise ConfigError("model.vectors and model.vocabulary are for model.encoder = 'words'; another has its own")
    if model.vocabulary == "vectors" and vectors is None:
        raise ConfigError("model.vocabulary = 'vectors' needs a file of them: give model.vectors")
    if name not in LEARNT:
        found = Encoder.find(name, task.markers)
    else:
        learnt, part = folder / "vocabulary" / name, folder / f".vocabulary.{name}.part"
        if not learnt.exists():
            words = None if vectors is None or model.vocabulary == "public" else model.most_words
            Encoder.find(name, task.markers, public, vectors, words).save(part)
            learnt.parent.mkdir(exist_ok=True)
            part.rename(learnt)
        found = replace(Encoder.saved(learnt), vectors=vectors)
    if model.attention_dropout is not None:
        found = found.dropping_attention(model.attention_dropout)
    return replace(found, lora=model.lora())


def warmed_up(config: Config, practice: Practice, splits: Mapping[str, Split], folder: Path) -> Practice:
    """The practice with the start that model.warm_up asks for; made once a run, as the vocabulary is."""
    if not config.model.warm_up:
        return practice
    start = folder / "start.safetensors"
    if not start.exists():
        server = Server(practice, splits, practice.initial_model())
        server.train("public", epochs=config.model.warm_up)
        write_whole(start, safetensors.save(server.model.state_dict()))
    return replace(practice, start=start)


def paths_of(given: Paths | None, base: Path) -> list[Path]:
    return [base / path for path in ([given] if isinstance(given, str) else given or [])]


def find_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name in there and not there[name]():
        raise ConfigError(f"device = '{name}', which this machine or this torch does not have; set device = 'auto'")
    return torch.device(name)
