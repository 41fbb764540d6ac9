"""What the sites of a federation between hosts agree on: a folder that the coordinator makes and every site gets.

federation.toml     the config, without anybody's data or paths
model/              the model before round 1: label set, tokenizer, weights
public.json         how many examples the coordinator's public set has, and its digest
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import tomli_w
import torch
from pydantic import ValidationError

from grandrounds import __version__
from grandrounds.config.schema import Config, make_config, without_none
from grandrounds.config.validation import explained
from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.learner import LearnerSpec
from grandrounds.federation.training import Training
from grandrounds.models.encoder import SHAPE, Encoder
from grandrounds.registry import ALGORITHMS, TASKS
from grandrounds.tasks.saved import load, save_start
from grandrounds.tasks.task import Task

AT_COORDINATOR = "at the coordinator"


@dataclass(frozen=True)
class Terms:
    folder: Path
    config: Config
    task: Task
    encoder: Encoder
    public: tuple[int, str]
    """Rows and digest of the coordinator's public set."""

    @cached_property
    def digest(self) -> str:
        """The same at all who hold the same terms and the same package: it is in every ask."""
        model = self.folder / "model"
        held = [model / name for name in ("grandrounds.json", "config.json", SHAPE, "model.safetensors")]
        held += sorted(path for path in model.glob("*/**/*") if path.is_file())  # a language model
        files = {str(path.relative_to(model)): _digest(path) for path in held if path.exists()}
        files["tokenizer"] = self.tokenizer
        return sha256(
            json.dumps([__version__, self.config.decisive(), self.public, files], sort_keys=True).encode()
        ).hexdigest()

    @property
    def tokenizer(self) -> str:
        return tokenizer_digest(self.encoder)

    def spec(self, training: Training, device: torch.device) -> LearnerSpec:
        start = self.folder / "model" / "model.safetensors"
        return self.config.spec(self.task, self.encoder, device, training, start)

    def task_at(self, own: Mapping[str, Any], documents: Iterable[Document]) -> Task:
        """The task of a site whose labels may be its own: those of its documents, but for what it says."""
        options = self.options_at({"labels": self.config.task.get("labels"), **own})
        return type(self.task).of(options, documents).at(self.folder / "model")

    def options_at(self, own: Mapping[str, Any]) -> Any:
        """The task's options, but for what a site says."""
        if own.get("name", self.task.name) != self.task.name or "language" in own:
            raise ConfigError("task: name and language are the federation's and the same at all sites")
        kind = type(self.task)
        try:
            return kind.Options(**{**self.task.options.model_dump(), **own})
        except ValidationError as error:
            raise explained(error, kind.Options, "task.") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def tokenizer_digest(encoder: Encoder) -> str:
    return sha256(encoder.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


def write_terms(folder: Path, config: Config, spec: LearnerSpec, public: tuple[int, str]) -> Terms:
    folder.mkdir(parents=True, exist_ok=True)
    content = without_none(_shared(config, public))
    (folder / "federation.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    save_start(folder / "model", spec.task, spec.encoder, spec.initial_model())
    (folder / "public.json").write_text(json.dumps({"rows": public[0], "digest": public[1]}) + "\n")
    return read_terms(folder)


def read_terms(folder: Path) -> Terms:
    try:
        content = tomllib.loads((folder / "federation.toml").read_text(encoding="utf-8"))
        public = json.loads((folder / "public.json").read_text(encoding="utf-8"))
        rows, digest = int(public["rows"]), str(public["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GrandRoundsError(
            f"'{folder}' does not hold the terms of a federation ({error}); ask the coordinator for the enrolment again"
        ) from error
    if "imports" in content:
        raise GrandRoundsError(
            f"'{folder / 'federation.toml'}' names modules to import; a site imports only what its own site.toml names"
        )
    _check_at_hand(content)
    start, config = load(folder / "model", str(content["task"]["name"])), make_config(content)
    encoder = replace(start.encoder, lora=config.model.lora())  # the config is in the digest, lora.json is not
    return Terms(folder, config, start.task, encoder, (rows, digest))


def _check_at_hand(content: Mapping[str, Any]) -> None:
    """Before anything of that name is loaded."""
    for registry, section in ((ALGORITHMS, "algorithm"), (TASKS, "task")):
        table = content.get(section, {})
        name = str(table.get("name", "")) if isinstance(table, dict) else ""
        if not registry.at_hand(name):
            raise GrandRoundsError(
                f"this federation's {section} '{name}' is not built in; if you trust the package that brings it, "
                'install it and name its module in site.toml: imports = ["..."]'
            )


def _shared(config: Config, public: tuple[int, str]) -> dict[str, Any]:
    """What is nobody's own: neither data nor paths, nor on what device anyone computes."""
    if config.make_algorithm().pooled:
        raise ConfigError(f"'{config.algorithm['name']}' needs all data in one place: it can only be simulated")
    content = config.complete()
    for own in ("imports", "partition", "sites", "compare", "workers", "runtime", "ray", "device"):
        content.pop(own)
    content["data"] = {"public": AT_COORDINATOR} if public[0] else {}
    content["model"]["encoder"] = Path(config.model.encoder).name
    if content["model"].get("vocabulary"):
        content["model"]["vocabulary"] = Path(content["model"]["vocabulary"]).name
    if content["task"].get("language"):  # it comes with the model
        content["task"]["language"] = Path(content["task"]["language"]).name
    content["federation"].pop("policy")
    return content
