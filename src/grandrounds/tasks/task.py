"""What a task is to everything above it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor, nn

from grandrounds.data.documents import Document
from grandrounds.data.partition import Unit
from grandrounds.errors import ConfigError, DataError
from grandrounds.metrics.outcomes import Outcomes
from grandrounds.metrics.score import F1, Objective
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.batching import places_of, predict_probabilities

Counts = Mapping[str, float]
PATIENT = "patient"
NONE = "None"
"""The class of what has no relation."""
NO_LABEL, NO_CLASS = "", -1
"""The label of an example that has none, and its class, which no loss can read."""


@dataclass(frozen=True)
class Batch:
    """Some rows, padded to the longest of them; `index` says which rows of the split they are. What a batch may lack
    is None."""

    index: Tensor

    def to(self, device: torch.device) -> Self:
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in held.items() if value is not None})


class Features(Protocol):
    """All examples of a corpus as numbers, made once; sites hold row indices into it."""

    @property
    def lengths(self) -> NDArray[np.int64]: ...
    @property
    def answers(self) -> NDArray[np.int64]:
        """How many answers each row has: one, or one a pair."""

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch: ...


@dataclass(frozen=True)
class Example:
    """What every task's example says of itself; where it came from is for units and for pointing back."""

    document: int
    sentence: int
    label: str


@dataclass(frozen=True)
class Reading:
    """What a model makes of each pair that a batch asks about, in order."""

    logits: Tensor
    """[pairs, outputs]"""
    pair: Tensor
    """[pairs, width]: what the last layer classifies."""
    context: Tensor | None = None
    """[pairs, width]: the localized context, where the model has one; zero where there is none in common."""


class Task(ABC):
    """Stateless but for its options and its schema (what the labels are): both are saved with a model."""

    name: ClassVar[str]
    unit: ClassVar[str]
    """What a split deals out when the config does not say: example, sentence, document or patient."""
    whole: ClassVar[str] = PATIENT
    """What shares of train (public, validation, test, unlabelled) never tear apart: a patient's documents, and where a
    document names no patient, the document."""
    markers: ClassVar[Sequence[str]] = ()
    """Word pieces that the task reserves in the tokenizer."""
    one_class: ClassVar[bool] = True
    """Whether each row has one answer, a class of `labels`, so that predictions can be averaged and distilled."""
    labels_may_differ: ClassVar[bool] = False
    """Whether sites may have label sets of their own, where an algorithm lets them."""
    label_parts: ClassVar[Sequence[str]] = ("head",)
    """The model's parts that a label set shapes."""
    objective: ClassVar[Objective] = F1
    """What its models are judged by, and the best round is chosen by on validation data: F1, AUC or LOSS."""
    bagged: ClassVar[bool] = False
    """Whether facts have bags of sentences, of which some may be chosen."""
    calibrates: ClassVar[bool] = False
    """Whether what answers are decided by is chosen on validation data."""
    localized: ClassVar[bool] = False
    """Whether a reading has a localized context."""
    finds: ClassVar[str] = "relations"
    """What `extract` adds to a document: relations between its mentions, or mentions."""
    Options: ClassVar[type[BaseModel]]
    options: BaseModel

    @classmethod
    def private_parts(cls, options: Any, encoder: str) -> Mapping[str, Sequence[str]]:
        """The model's parts that stay at a site, where an algorithm has such, by the name of the split; `default` where
        the config names none."""
        return {"default": ("head",), "nothing": ()}

    @classmethod
    @abstractmethod
    def of(cls, options: Any, documents: Iterable[Document]) -> Self:
        """The task with the schema that the documents show."""

    @property
    @abstractmethod
    def labels(self) -> Sequence[str]: ...

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON from which `restore` makes the same task."""

    @classmethod
    @abstractmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self: ...

    def at(self, folder: Path) -> Self:
        """The same task, which looks in this folder for the files that its options name."""
        return self

    def save(self, folder: Path) -> None:  # noqa: B027  (most tasks need nothing)
        """Write what else the task needs beside a saved model."""

    @abstractmethod
    def examples(self, documents: Sequence[Document]) -> tuple[Sequence[Example], Mapping[str, int]]:
        """The documents' examples, and what was left out, counted."""

    def candidates(self, documents: Sequence[Document]) -> tuple[Sequence[Example], Mapping[str, int]]:
        """What `extract` asks the model about; the examples, unless a task trains on less than it can read."""
        return self.examples(documents)

    def answers(self, example: Any) -> Sequence[str]:
        """The labels that an example counts for: its own, or one or more a pair."""
        return (example.label,)

    @abstractmethod
    def without_answers(self, document: Document) -> Document:
        """The document as a reader would bring it who has yet to ask the model."""

    @abstractmethod
    def text(self, example: Any) -> str:
        """What a public vocabulary may learn from."""

    @abstractmethod
    def question(self, example: Any) -> dict[str, Any]:
        """JSON of all that the model is asked by, and nothing of the answer: how the public set reaches sites."""

    @abstractmethod
    def from_question(self, question: Mapping[str, Any]) -> Example:
        """The example of a question; its label says nothing, or that there is none."""

    def without_label(self, example: Any) -> Example:
        """The example with nothing of its answer, where each has one class."""
        stripped: Example = replace(example, label=NO_LABEL)
        return stripped

    @abstractmethod
    def label_counts(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """[classes]: how many of these rows have each label."""

    @abstractmethod
    def features(self, examples: Sequence[Any], encoder: Encoder) -> Features: ...

    def rows(self, features: Any, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The features' rows of these examples: one each, unless a task makes several of one."""
        return examples

    def examples_of(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The example that each row was made of."""
        return rows

    def drawn(self, features: Any, rows: NDArray[np.int64], seed: int) -> Features:
        """The features as a learner who has these rows sees them in one epoch, or with the seed 0 in a test: a task
        that hides or mixes something draws it by the seed."""
        same: Features = features
        return same

    def bags(self, features: Any, rows: NDArray[np.int64]) -> Sequence[NDArray[np.int64]] | None:
        """What of these rows must be in one training batch, as places in them; None: each row is by itself."""
        return None

    def facts(self, features: Any, rows: NDArray[np.int64]) -> Iterator[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Where the task is `bagged`: each fact as all sites name it, with the places in `rows` of its sentences."""
        raise NotImplementedError

    def confidence(self, model: nn.Module, batch: Any) -> Tensor:
        """Where the task is `bagged`: [rows, 1], the probability of each sentence's own relation."""
        raise NotImplementedError

    @abstractmethod
    def model(self, encoder: Encoder) -> nn.Module: ...

    @abstractmethod
    def read(self, model: nn.Module, batch: Any) -> Reading: ...

    @abstractmethod
    def grade(self, reading: Reading, batch: Any) -> Tensor:
        """The loss of a reading."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.grade(self.read(model, batch), batch)

    @abstractmethod
    def logits(self, model: nn.Module, batch: Any) -> Tensor:
        """[answers, classes]; what `probabilities` turns into probabilities."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor: ...

    def calibrate(
        self, model: nn.Module, logits: NDArray[np.float32], features: Any, rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Choose what answers are decided by, from logits on validation data; the logits as they are then."""
        return logits

    def uncalibrate(self, model: nn.Module) -> None:  # noqa: B027  (most tasks have nothing to undo)
        """Decide as before anything was chosen: `calibrate` begins there."""

    def knowing(self, examples: Sequence[Any], training: Iterable[Document]) -> Sequence[Any]:
        """The examples, told which of their answers stand in the training data, for scores that leave those out."""
        return examples

    @abstractmethod
    def counts(self, logits: NDArray[np.float32], features: Any, rows: NDArray[np.int64]) -> Counts:
        """Summable counts of right and wrong answers on these rows."""

    def outcomes(
        self, logits: NDArray[np.float32], features: Any, rows: NDArray[np.int64], units: NDArray[np.int64]
    ) -> Outcomes:
        """What the score on these rows is made of; `units` says of each row which unit it belongs to."""
        starts = np.concatenate([[0], features.answers[rows].cumsum()]).astype(np.int64)
        order = np.argsort(units, kind="stable")
        members = np.split(order, np.flatnonzero(np.diff(units[order])) + 1)
        return Outcomes.of_counts(self.counts(logits[places_of(starts, m)], features, rows[m]) for m in members)

    @abstractmethod
    def score(self, counts: Counts) -> dict[str, Any]:
        """Counts, or a sum of them, as precision, recall, F1 ..."""

    @abstractmethod
    def annotate(
        self,
        document: Document,
        examples: Sequence[Any],
        probabilities: NDArray[np.float32],
        threshold: float,
    ) -> Document:
        """The document with what was found in it, each with its score."""

    def find(
        self, document: Document, examples: Sequence[Any], features: Any, model: nn.Module, threshold: float
    ) -> Document:
        """The document with what the model finds in its examples; a task that can say why adds that."""
        rows = np.arange(len(examples))
        probabilities = predict_probabilities(self, model, features, rows, torch.device("cpu"))
        return self.annotate(document, examples, probabilities, threshold)

    def units(self, examples: Sequence[Example], documents: Sequence[Document], unit: str) -> list[Unit]:
        """Group examples into what must not be torn apart between sites or splits."""
        groups: dict[str, list[int]] = {}
        for row, example in enumerate(examples):
            groups.setdefault(self.unit_key(row, example, documents, unit), []).append(row)
        return [
            Unit(
                id=key,
                # A unit is what it says, if it says anything but None.
                label=max((examples[row].label for row in rows), key=lambda label: label != "None"),
                attributes=documents[examples[rows[0]].document].attributes,
                examples=tuple(rows),
                documents=tuple(documents[i] for i in dict.fromkeys(examples[row].document for row in rows)),
            )
            for key, rows in groups.items()
        ]

    def unit_key(self, row: int, example: Any, documents: Sequence[Document], unit: str) -> str:
        """Which unit of that kind an example is of."""
        match unit:
            case "example":
                return str(row)
            case "sentence":
                return f"{example.document}.{example.sentence}"
            case "document":
                return str(example.document)
            case "pair":
                raise ConfigError(f"the unit 'pair' is for distant_re; '{self.name}' has document or patient")
            case _:
                document = documents[example.document]
                patient: str = document.attributes.get(PATIENT, f"document {example.document}")
                return patient


def without_patient(documents: Iterable[Document], unit: str) -> dict[str, int]:
    """How many must stand for a patient of their own, where units are patients; ConfigError if all must."""
    if unit != PATIENT:
        return {}
    named = [PATIENT in document.attributes for document in documents]
    if not any(named):
        raise ConfigError(
            "the unit 'patient' keeps a patient's documents together, and none says whose it is: give each a field "
            "'patient', or take the unit document"
        )
    return (
        {} if all(named) else {"documents that do not say whose they are, each as a patient's own": named.count(False)}
    )


def check_relations(relations: Sequence[str], task: str) -> None:
    """DataError or ConfigError where they can't be a label set."""
    if not relations:
        raise DataError(f"the corpora hold no relation; {task} needs relations to learn from")
    if NONE in relations:
        raise ConfigError(f"'{NONE}' is the absence of a relation and can't be a relation type; rename it")
    if len(set(relations)) < len(relations):
        raise ConfigError("task.labels names a relation twice; name each once")


def no_example(task: Task, where: str, notes: Mapping[str, int]) -> DataError:
    """The error that says what was left out instead."""
    left_out = "; ".join(f"{count} {what}" for what, count in notes.items())
    return DataError(f"{where} no example of {task.name}" + (f" (left out: {left_out})" if left_out else ""))
