"""A trained model as a folder: safetensors, encoder config and tokenizer, label set, model card.

`save_model` writes it, `grandrounds.load` reads it, nothing in it is pickled and nothing is fetched.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from grandrounds.data.documents import Document
from grandrounds.data.formats import Corpus, each, nothing_found, reader_options
from grandrounds.data.formats.source import Warnings
from grandrounds.errors import GrandRoundsError
from grandrounds.models.encoder import PICKLED, SHAPE, Encoder, check_folder
from grandrounds.models.lora import without_adapters
from grandrounds.registry import TASKS, not_registered
from grandrounds.tasks.abilities import SplitsText
from grandrounds.tasks.batching import predict_outputs, predict_probabilities
from grandrounds.tasks.masked_lm import MaskedLM
from grandrounds.tasks.task import Counts, ExtractionTask, Task, no_example

CPU = torch.device("cpu")
VERSION = 1
"""Of the folder's form; a newer one is named for what it is."""
BREAKS = "breaks"
"""The option of readers that find sentences by rules."""


@dataclass(frozen=True)
class Trained:
    """How the corpus was read that a model was trained on."""

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """The reader's, without paths: they are of one corpus."""

    def as_json(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.options.items() if not (isinstance(value, str) and "/" in value)}
        return {"format": self.format, "options": kept}


@dataclass(frozen=True)
class Extractor:
    """A trained model that reads documents."""

    task: Task
    encoder: Encoder
    model: nn.Module
    trained: Trained | None = None
    """None where it is not known: between hosts each site reads its own."""

    def read(self, paths: Sequence[Path], format: str, options: Mapping[str, Any]) -> Corpus:
        """Files as the training data were read, but for what the options say."""
        warnings = Counter[str]()
        return Corpus(tuple(self.each(paths, format, options, warnings)), dict(warnings))

    def each(
        self, paths: Sequence[Path], format: str, options: Mapping[str, Any], warnings: Warnings
    ) -> Iterator[Document]:
        """The same one at a time; DataError where there is none. Sentences that a reader finds by rules are left to a
        task that knows better."""
        same = self.trained is not None and self.trained.format == format
        given = {**(self.trained.options if self.trained and same else {}), **options}
        by_rules = not same and BREAKS not in given and BREAKS in reader_options(format)
        documents = each(format, paths, warnings, **given)
        first = next(documents, None)
        if first is None:
            raise nothing_found(format, paths, warnings)
        for document in chain([first], documents):
            yield replace(document, sentences=()) if by_rules and isinstance(self.task, SplitsText) else document

    @cached_property
    def _task(self) -> Task:
        return self.task.as_trained() if isinstance(self.task, SplitsText) else self.task

    @property
    def extraction(self) -> ExtractionTask:
        """The task, if it finds something in documents."""
        task = self._task
        if not isinstance(task, ExtractionTask):
            raise GrandRoundsError(
                f"a '{self.task.name}' model finds nothing in a document: "
                "give its folder as model.encoder of another task"
            )
        return task

    def extract(self, document: Document, threshold: float = 0.0) -> Document:
        """The document with what the model finds in place of what it came with; scores are in `attributes`."""
        return self.extract_all([document], threshold)[0][0]

    def extract_all(
        self, documents: Sequence[Document], threshold: float = 0.0, device: torch.device = CPU
    ) -> tuple[list[Document], Mapping[str, int]]:
        """The same for several, which are read together; and what was passed over, counted."""
        task = self.extraction
        bare = [task.without_answers(document) for document in documents]
        examples, left_out = task.candidates(bare)
        examples, too_long = task.fitting(examples, self.encoder)
        left_out = {**left_out, **too_long}
        if not examples:
            return bare, left_out
        features = task.features(examples, self.encoder)
        return task.find(bare, examples, features, self.model.to(device), threshold, device), left_out

    def probabilities(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """[examples, classes]"""
        features = self.task.features(examples, self.encoder)
        rows = np.arange(len(examples))
        return predict_probabilities(self.extraction, self.model, features, rows, CPU)

    def evaluate(
        self, documents: Sequence[Document], device: torch.device = CPU
    ) -> tuple[dict[str, Any], Mapping[str, int]]:
        """The score on annotated documents, and what was left out."""
        counts, warnings = self.count(documents, device)
        if not counts:
            raise no_example(self.task, "the corpus holds", warnings)
        return self.task.score(counts), warnings

    def count(self, documents: Sequence[Document], device: torch.device = CPU) -> tuple[Counts, Mapping[str, int]]:
        """What the score is of, and what was left out; no counts where there is no example."""
        examples, warnings = self._task.examples(documents)
        if not examples:
            return {}, warnings
        features = self.task.features(examples, self.encoder)
        rows = self.task.rows(features, np.arange(len(examples)))
        if not len(rows):
            return {}, {**warnings, "documents without a word piece": len(examples)}
        outputs = predict_outputs(self.task, self.model.to(device), features, rows, device)
        return self.task.counts(outputs, features, rows), warnings


def save_model(
    folder: Path, task: Task, encoder: Encoder, model: nn.Module, card: str = "", trained: Trained | None = None
) -> None:
    """In standard form: adapters are added to the weights that they adapt."""
    _save(folder, task, replace(encoder, lora=None), without_adapters(model), card, trained)


def save_start(folder: Path, task: Task, encoder: Encoder, model: nn.Module) -> None:
    """As it is trained, with adapters where it has them."""
    _save(folder, task, encoder, model.state_dict())


def _save(
    folder: Path,
    task: Task,
    encoder: Encoder,
    state: Mapping[str, Tensor],
    card: str = "",
    trained: Trained | None = None,
) -> None:
    encoder.save(folder)
    if not isinstance(task, MaskedLM):  # under its own name transformers would fill the encoder with random weights
        (folder / "config.json").rename(folder / SHAPE)
    task.save(folder)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    try:
        safetensors.save_file(weights, folder / "model.safetensors")
    except SafetensorError as error:
        raise GrandRoundsError(f"the model could not be written to '{folder}': {error}; is the disk full?") from error
    about = {"version": VERSION, "task": task.name, "schema": task.schema(), "trained": trained and trained.as_json()}
    (folder / "grandrounds.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card or f"# A `{task.name}` model\n", encoding="utf-8")


def load(folder: str | Path, task_name: str | None = None) -> Extractor:
    """The model that a run saved under `model/` or `models/<site>/`; with `task_name`, only if it is of that task."""
    folder = Path(folder)
    check_folder(folder, PICKLED)  # a stranger's model is data, and nothing of it is run
    try:
        about = json.loads((folder / "grandrounds.json").read_text(encoding="utf-8"))
        if about.get("version", VERSION) > VERSION:
            raise GrandRoundsError(f"'{folder}' was saved by a newer version of grandrounds; install that one")
        weights = safetensors.load_file(folder / "model.safetensors")
        if about["task"] not in TASKS:
            raise GrandRoundsError(f"'{folder}': {not_registered('task', about['task'], TASKS)}")
        if task_name is not None and about["task"] != task_name:
            raise GrandRoundsError(f"'{folder}' is a model of the task '{about['task']}', not of '{task_name}'")
        task = TASKS[about["task"]].restore(about["schema"]).at(folder)
        encoder = Encoder.saved(folder)
        model = task.model(encoder)
        model.load_state_dict(weights)
        trained = about["trained"] and Trained(str(about["trained"]["format"]), dict(about["trained"]["options"]))
    except FileNotFoundError as error:
        missing = Path(error.filename or "model.safetensors").name  # safetensors does not name its file
        raise GrandRoundsError(
            f"'{folder}' is not a saved model: it has no {missing}; give the model/ folder of a finished run"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, SafetensorError) as error:
        why = str(error).partition("\n")[0]
        raise GrandRoundsError(f"the model in '{folder}' is damaged; train or copy it again ({why})") from error
    return Extractor(task, encoder, model.eval(), trained)
