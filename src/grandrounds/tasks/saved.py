"""A trained model as a folder: safetensors, encoder config and tokenizer, label set, model card.

`save_model` writes it, `grandrounds.load` reads it, nothing in it is pickled and nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from grandrounds.data.documents import Document
from grandrounds.errors import GrandRoundsError
from grandrounds.models.encoder import Encoder
from grandrounds.models.lora import without_adapters
from grandrounds.registry import TASKS, not_registered
from grandrounds.tasks.batching import predict_outputs, predict_probabilities
from grandrounds.tasks.task import ExtractionTask, Task, no_example


@dataclass(frozen=True)
class Extractor:
    """A trained model that reads documents."""

    task: Task
    encoder: Encoder
    model: nn.Module

    @property
    def extraction(self) -> ExtractionTask:
        """The task, if it finds something in documents."""
        if not isinstance(self.task, ExtractionTask):
            raise GrandRoundsError(
                f"a '{self.task.name}' model finds nothing in a document: "
                "give its folder as model.encoder of another task"
            )
        return self.task

    def extract(self, document: Document, threshold: float = 0.0) -> Document:
        """The document with what the model finds in place of what it came with; scores are in `attributes`."""
        task = self.extraction
        bare = task.without_answers(document)
        examples, _ = task.candidates([bare])
        if not examples:
            return bare
        features = task.features(examples, self.encoder)
        return task.find(bare, examples, features, self.model, threshold)

    def left_out(self, documents: Sequence[Document]) -> Mapping[str, int]:
        """What `extract` passes over in these documents, counted."""
        task = self.extraction
        return task.candidates([task.without_answers(document) for document in documents])[1]

    def probabilities(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """[examples, classes]"""
        features = self.task.features(examples, self.encoder)
        rows = np.arange(len(examples))
        return predict_probabilities(self.extraction, self.model, features, rows, torch.device("cpu"))

    def evaluate(self, documents: Sequence[Document]) -> tuple[dict[str, Any], Mapping[str, int]]:
        """The score on annotated documents, and what was left out."""
        examples, warnings = self.task.examples(documents)
        if not examples:
            raise no_example(self.task, "the corpus holds", warnings)
        features = self.task.features(examples, self.encoder)
        rows = self.task.rows(features, np.arange(len(examples)))
        if not len(rows):
            raise no_example(
                self.task, "the corpus holds", {**warnings, "documents without a word piece": len(examples)}
            )
        outputs = predict_outputs(self.task, self.model, features, rows, torch.device("cpu"))
        return self.task.score(self.task.counts(outputs, features, rows)), warnings


def save_model(folder: Path, task: Task, encoder: Encoder, model: nn.Module, card: str = "") -> None:
    """In standard form: adapters are added to the weights that they adapt."""
    _save(folder, task, replace(encoder, lora=None), without_adapters(model), card)


def save_start(folder: Path, task: Task, encoder: Encoder, model: nn.Module) -> None:
    """As it is trained, with adapters where it has them."""
    _save(folder, task, encoder, model.state_dict(), "")


def _save(folder: Path, task: Task, encoder: Encoder, state: Mapping[str, Tensor], card: str) -> None:
    encoder.save(folder)
    task.save(folder)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    try:
        safetensors.save_file(weights, folder / "model.safetensors")
    except SafetensorError as error:
        raise GrandRoundsError(f"the model could not be written to '{folder}': {error}; is the disk full?") from error
    about = {"task": task.name, "schema": task.schema()}
    (folder / "grandrounds.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card or f"# A `{task.name}` model\n", encoding="utf-8")


def load(folder: str | Path, task_name: str | None = None) -> Extractor:
    """The model that a run saved under `model/` or `models/<site>/`; with `task_name`, only if it is of that task."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "grandrounds.json").read_text(encoding="utf-8"))
        weights = safetensors.load_file(folder / "model.safetensors")
        if about["task"] not in TASKS:
            raise GrandRoundsError(f"'{folder}': {not_registered('task', about['task'], TASKS)}")
        if task_name is not None and about["task"] != task_name:
            raise GrandRoundsError(f"'{folder}' is a model of the task '{about['task']}', not of '{task_name}'")
        task = TASKS[about["task"]].restore(about["schema"]).at(folder)
        encoder = Encoder.saved(folder)
        model = task.model(encoder)
        model.load_state_dict(weights)
    except FileNotFoundError as error:
        missing = Path(error.filename or "model.safetensors").name  # safetensors does not name its file
        raise GrandRoundsError(
            f"'{folder}' is not a saved model: it has no {missing}; give the model/ folder of a finished run"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        why = str(error).partition("\n")[0]
        raise GrandRoundsError(f"the model in '{folder}' is damaged; train or copy it again ({why})") from error
    return Extractor(task, encoder, model.eval())
