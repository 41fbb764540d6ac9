"""What the server holds before round 1, wherever its sites are: a model's spec, its data, what it may expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import torch as safetensors
from torch import nn

from grandrounds.config.schema import Config
from grandrounds.data.partition import SiteRow
from grandrounds.errors import ConfigError
from grandrounds.federation.contract import Algorithm
from grandrounds.federation.files import write_whole
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.payloads import Expected, PublicSet
from grandrounds.federation.rows import table_names
from grandrounds.federation.state import unfrozen
from grandrounds.models.lora import LORA_A, LORA_B, adapted_layers
from grandrounds.tasks.abilities import Distillable
from grandrounds.tasks.task import Task


@dataclass(frozen=True)
class ServerSetup:
    spec: LearnerSpec
    model: nn.Module
    splits: Mapping[str, Split]
    """The server's: public, validation, test."""
    public: PublicSet | None
    """What of it sites may get."""
    expected: Expected
    warnings: Mapping[str, int]
    table: Sequence[SiteRow] = ()
    """What each site holds."""
    left_out: Sequence[str] = ()
    """Sites without an example."""
    at_sites: frozenset[str] = frozenset()
    """Parts that each site has for itself: validation, test."""

    @property
    def scored(self) -> frozenset[str]:
        """What learners can be scored on."""
        return self.at_sites | self.splits.keys()


def set_up(
    spec: LearnerSpec,
    splits: Mapping[str, Split],
    public: PublicSet | None,
    algorithm: Algorithm,
    warnings: Mapping[str, int],
) -> ServerSetup:
    """The server with its model and what it may expect; who the sites are comes later."""
    model = spec.initial_model()
    manifest = manifest_of(model, algorithm)
    expected = expected_of(model, manifest, spec.task, asked(spec.task, splits.get("public")), algorithm)
    return ServerSetup(spec, model, splits, public, expected, dict(warnings))


def asked(task: Task, public: Split | None) -> tuple[int, str]:
    """How many questions the public set asks, and its digest: by these sites and server know that they mean the same
    one."""
    if public is None:
        return 0, ""
    questions = task.questions(public.features, public.rows).sum() if isinstance(task, Distillable) else len(public)
    return int(questions), public.digest


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
    adapters = {name: tuple(p.shape) for name, p in model.named_parameters() if name.endswith((LORA_A, LORA_B))}
    own = algorithm.tensors({name: shape for name, shape in manifest.items() if name in trained} | adapters)
    adapted = {name: tuple(layer.base_layer.weight.shape) for name, layer in adapted_layers(model).items()}
    return Expected(
        manifest,
        task.classes() if isinstance(task, Distillable) else len(task.labels),
        public,
        integers=counters,
        trained=trained,
        tables=tables,
        tensors=own,
        adapted=adapted,
        labels=len(task.labels),
    )


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


def find_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device = '{name}'; it must be auto, cpu, cuda or mps")
    there: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name in there and not there[name]():
        raise ConfigError(f"device = '{name}', which this machine or this torch does not have; set device = 'auto'")
    return torch.device(name)
