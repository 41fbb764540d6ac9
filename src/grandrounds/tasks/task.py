"""What a task is to everything above it: examples, features, a model, a loss and a score.

Every task is a `Task`; one that finds mentions or relations in documents is an `ExtractionTask`. What only some tasks
can do besides is in abilities.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from grandrounds.tasks.batching import places_of, predict_probabilities, starts_of

Counts = Mapping[str, float]
PATIENT = "patient"
NONE = "None"
"""The class of a pair without a relation."""
NO_LABEL, NO_CLASS = "", -1
"""The label of an example that has none, and its class, which no loss can read."""


@dataclass(frozen=True)
class Batch:
    """Some rows, padded to the longest of them; `index` says which rows of the split they are. A field that the batch
    lacks is None."""

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
        """The number of answers of each row: one, or one per pair."""

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch: ...


@dataclass(frozen=True)
class Example:
    """What every task's example has: its label, and the document and sentence that it comes from."""

    document: int
    sentence: int
    label: str


@dataclass(frozen=True)
class Reading:
    """A model's forward pass over a batch: one row for each pair that the batch asks about, in order."""

    logits: Tensor
    """[pairs, outputs]"""
    pair: Tensor
    """[pairs, width]: what the last layer classifies."""


class Task(ABC):
    """A task has no state but its options and its schema (its labels); both are saved with a model.

    The abstract methods are what a new task writes; the others have a default that fits most tasks.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    """What a split assigns to sites when the config does not say: example, sentence, document or patient."""
    whole: ClassVar[str] = PATIENT
    """What shares of train (public, validation, test, unlabelled) never split: a patient's documents, or the document
    where it names no patient."""
    markers: ClassVar[Sequence[str]] = ()
    """Word pieces that the task reserves in the tokenizer."""
    objective: ClassVar[Objective] = F1
    """What its models are judged by, and the best round is chosen by on validation data: F1, AUC or LOSS."""
    Options: ClassVar[type[BaseModel]]
    options: BaseModel

    # The label set

    @classmethod
    @abstractmethod
    def of(cls, options: Any, documents: Iterable[Document]) -> Self:
        """The task with the label set that the documents show."""

    @property
    @abstractmethod
    def labels(self) -> Sequence[str]: ...

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON from which `restore` makes the same task."""

    @classmethod
    @abstractmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self: ...

    # From documents to examples

    @abstractmethod
    def examples(self, documents: Sequence[Document]) -> tuple[Sequence[Example], Mapping[str, int]]:
        """The documents' examples, and what was left out, counted."""

    @abstractmethod
    def text(self, example: Any) -> str:
        """The text that a public vocabulary may be learnt from."""

    @abstractmethod
    def question(self, example: Any) -> dict[str, Any]:
        """The example without its answer, as JSON: the public set reaches sites in this form."""

    @abstractmethod
    def from_question(self, question: Mapping[str, Any]) -> Example:
        """The example of a question, with an empty label or None."""

    # From examples to numbers

    @abstractmethod
    def features(self, examples: Sequence[Any], encoder: Encoder) -> Features: ...

    @abstractmethod
    def label_counts(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """[classes]: how many of these rows have each label."""

    # The model, its loss and its score

    @abstractmethod
    def model(self, encoder: Encoder) -> nn.Module: ...

    @abstractmethod
    def read(self, model: nn.Module, batch: Any) -> Reading:
        """One forward pass, for `grade`."""

    @abstractmethod
    def grade(self, reading: Reading, batch: Any) -> Tensor:
        """The loss of a reading."""

    @abstractmethod
    def outputs(self, model: nn.Module, batch: Any) -> Tensor:
        """[answers, width]: what `counts` scores, such as logits; one row for each answer of the batch."""

    @abstractmethod
    def counts(self, outputs: NDArray[np.float32], features: Any, rows: NDArray[np.int64]) -> Counts:
        """Summable counts of right and wrong answers on these rows."""

    @abstractmethod
    def score(self, counts: Counts) -> dict[str, Any]:
        """Counts, or a sum of them, as precision, recall, F1 ..."""

    # What has a default

    def at(self, folder: Path) -> Self:
        """The same task, which looks in this folder for the files that its options name."""
        return self

    def save(self, folder: Path) -> None:  # noqa: B027  (most tasks need nothing)
        """Write what else the task needs beside a saved model."""

    def answers(self, example: Any) -> Sequence[str]:
        """The labels that an example counts for: its own, or one or more per pair."""
        return (example.label,)

    def rows(self, features: Any, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The features' rows of these examples: one each, unless a task makes several of one."""
        return examples

    def examples_of(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The example that each row was made of."""
        return rows

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.grade(self.read(model, batch), batch)

    def outcomes(
        self, outputs: NDArray[np.float32], features: Any, rows: NDArray[np.int64], units: NDArray[np.int64]
    ) -> Outcomes:
        """The score on these rows by unit; `units` holds the unit of each row."""
        starts = starts_of(features.answers[rows])
        order = np.argsort(units, kind="stable")
        members = np.split(order, np.flatnonzero(np.diff(units[order])) + 1)
        return Outcomes.of_counts(self.counts(outputs[places_of(starts, m)], features, rows[m]) for m in members)

    def units(self, examples: Sequence[Example], documents: Sequence[Document], unit: str) -> list[Unit]:
        """Group examples into units, which are never split between sites or parts."""
        groups: dict[str, list[int]] = {}
        for row, example in enumerate(examples):
            groups.setdefault(self.unit_key(row, example, documents, unit), []).append(row)
        return [
            Unit(
                id=key,
                # A unit has the label of one of its examples, and None only if all have it.
                label=max((examples[row].label for row in rows), key=lambda label: label != "None"),
                attributes=documents[examples[rows[0]].document].attributes,
                examples=tuple(rows),
                documents=tuple(documents[i] for i in dict.fromkeys(examples[row].document for row in rows)),
            )
            for key, rows in groups.items()
        ]

    def unit_key(self, row: int, example: Any, documents: Sequence[Document], unit: str) -> str:
        """The name of the example's unit of that kind."""
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


class ExtractionTask(Task):
    """A task that finds mentions or relations in documents."""

    finds: ClassVar[str] = "relations"
    """What `extract` adds to a document: relations between its mentions, mentions, or "mentions and relations"."""

    @abstractmethod
    def without_answers(self, document: Document) -> Document:
        """The document without what the model is asked to find."""

    def candidates(self, documents: Sequence[Document]) -> tuple[Sequence[Example], Mapping[str, int]]:
        """What `extract` asks the model about: the examples, unless a task trains on less than it can read."""
        return self.examples(documents)

    def fitting(self, examples: Sequence[Any], encoder: Encoder) -> tuple[Sequence[Any], Mapping[str, int]]:
        """Those of the candidates that this encoder can read, and the others, counted; by default it can read all."""
        return examples, {}

    @abstractmethod
    def probabilities(self, outputs: Tensor) -> Tensor:
        """[answers, width]: the model's outputs as probabilities."""

    @abstractmethod
    def annotate(
        self, document: Document, examples: Sequence[Any], probabilities: NDArray[np.float32], threshold: float
    ) -> Document:
        """The document with what was found in it, each with its score."""

    def pair_types(self) -> Collection[tuple[str, str]] | None:
        """(head type, tail type) of the mentions that it relates; None: any, or it relates none."""
        return None

    def find(
        self,
        documents: Sequence[Document],
        examples: Sequence[Any],
        features: Any,
        model: nn.Module,
        threshold: float,
        device: torch.device,
    ) -> list[Document]:
        """The documents with what the model finds in their examples, which are read in batches of about equal length;
        a task that can give evidence adds it."""
        probabilities = predict_probabilities(self, model, features, np.arange(len(examples)), device)
        starts = starts_of(features.answers)
        found = list(documents)
        for document, rows in rows_by_document(examples).items():
            chosen = probabilities[places_of(starts, np.array(rows))]
            found[document] = self.annotate(documents[document], [examples[row] for row in rows], chosen, threshold)
        return found


def rows_by_document(examples: Sequence[Example]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, example in enumerate(examples):
        rows.setdefault(example.document, []).append(row)
    return rows


def without_patient(documents: Iterable[Document], unit: str) -> dict[str, int]:
    """How many documents name no patient, where units are patients; ConfigError if none does."""
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
    """DataError or ConfigError if these can't be a label set."""
    if not relations:
        raise DataError(f"the corpora hold no relation; {task} needs relations to learn from")
    if NONE in relations:
        raise ConfigError(f"'{NONE}' is the absence of a relation and can't be a relation type; rename it")
    if len(set(relations)) < len(relations):
        raise ConfigError("task.labels names a relation twice; name each once")


def no_example(task: Task, where: str, warnings: Mapping[str, int]) -> DataError:
    """The error for a corpus without examples, with what was left out."""
    left_out = "; ".join(f"{count} {what}" for what, count in warnings.items())
    return DataError(f"{where} no example of {task.name}" + (f" (left out: {left_out})" if left_out else ""))
