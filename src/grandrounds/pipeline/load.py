"""Saved models as one pipeline: `grandrounds.load("ner/", "re/")`, or the folder of a saved pipeline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from grandrounds.errors import GrandRoundsError
from grandrounds.pipeline.linking import Dictionary
from grandrounds.pipeline.pipeline import WINDOW, Pipeline
from grandrounds.tasks.saved import CPU, save_model
from grandrounds.tasks.saved import load as load_model

ABOUT = "pipeline.json"
VERSION = 1
DICTIONARY = "dictionary.sqlite"


class About(BaseModel):
    """pipeline.json"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = VERSION
    models: list[str] = Field(min_length=1)
    """Folders beside it."""
    threshold: float = Field(0.0, ge=0, le=1)
    window: int = Field(WINDOW, ge=1)
    assertions: bool = True
    dictionary: bool = False
    """Whether there is one, called dictionary.sqlite."""


def load(
    *folders: str | Path,
    threshold: float | None = None,
    window: int | None = None,
    assertions: bool | None = None,
    dictionary: str | Path | None = None,
    device: torch.device = CPU,
) -> Pipeline:
    """Models that runs saved under `model/` or `models/<site>/` as one extractor; or a pipeline that was saved.

    Models that find mentions (ner, joint) read first, then those that relate them. What scores below `threshold` is
    left out. A document_re model relates entities within windows of so many sentences, which overlap by half. Mentions
    that are negated, possible, of the family, historical or conditional are marked as such, unless `assertions` is
    False. `dictionary` is a file that `grandrounds link build` made of your own names; mentions get their concepts from
    it.
    """
    if not folders:
        raise GrandRoundsError("name the folder of a model: grandrounds.load('runs/first/model')")
    first = folders[0]
    saved = _about(Path(first)) if len(folders) == 1 else None
    if saved is not None:
        folders = tuple(Path(first) / name for name in saved.models)
        if saved.dictionary and dictionary is None:
            dictionary = Path(first) / DICTIONARY
    given = {"threshold": threshold, "window": window, "assertions": assertions}
    settings: dict[str, Any] = {} if saved is None else saved.model_dump(include=set(given))
    settings |= {name: value for name, value in given.items() if value is not None}
    if dictionary is not None:
        settings["dictionary"] = Dictionary.open(Path(dictionary))
    models = [load_model(folder) for folder in folders]
    taggers = [model for model in models if "mentions" in model.extraction.finds]
    relaters = [model for model in models if "mentions" not in model.extraction.finds]
    return Pipeline(taggers, relaters, device=device, **settings)


def save(pipeline: Pipeline, folder: str | Path) -> None:
    """Write a pipeline with its models, for `load`."""
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise GrandRoundsError(f"'{folder}' is not empty; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, model in enumerate([*pipeline.taggers, *pipeline.relaters], start=1):
        names.append(f"{number}-{model.task.name}")
        save_model(folder / names[-1], model.task, model.encoder, model.model, trained=model.trained)
    if pipeline.dictionary is not None:
        shutil.copyfile(pipeline.dictionary.path, folder / DICTIONARY)
    about = About(
        models=names,
        threshold=pipeline.threshold,
        window=pipeline.window,
        assertions=pipeline.assertions,
        dictionary=pipeline.dictionary is not None,
    )
    (folder / ABOUT).write_text(json.dumps(about.model_dump(), indent=1) + "\n", encoding="utf-8")


def is_model(path: Path) -> bool:
    """Whether this is the folder of a model or of a pipeline."""
    return any((path / name).is_file() for name in ("grandrounds.json", ABOUT))


def _about(folder: Path) -> About | None:
    path = folder / ABOUT
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
        version = content.get("version", VERSION) if isinstance(content, dict) else VERSION
        if isinstance(version, int) and version > VERSION:
            raise GrandRoundsError(f"'{folder}' was saved by a newer version of grandrounds; install that one")
        about = About.model_validate(content)
    except (OSError, ValueError, RecursionError) as error:
        raise GrandRoundsError(f"'{path}' is damaged; save or copy the pipeline again") from error
    if any(Path(name).name != name or name in ("", ".", "..") for name in about.models):
        raise GrandRoundsError(f"'{path}' names a folder outside of the pipeline's own; don't use it")
    return about
