"""From documents to examples, and from examples to the splits that learners use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grandrounds.data.corpora import UNLABELLED
from grandrounds.data.documents import Document
from grandrounds.errors import DataError
from grandrounds.federation.learner import Split
from grandrounds.federation.payloads import PublicSet
from grandrounds.models.encoder import Encoder
from grandrounds.setup.corpora import Corpora
from grandrounds.tasks.abilities import Distillable
from grandrounds.tasks.task import PATIENT, Example, Features, Task, no_example

Rows = Mapping[str, Sequence[int]]
"""Which examples each part has."""


@dataclass(frozen=True)
class Examples:
    """What a task sees in documents."""

    task: Task
    documents: Sequence[Document]
    all: Sequence[Example]

    def within(self, documents: range) -> list[int]:
        return [row for row, example in enumerate(self.all) if example.document in documents]

    def counts(self, rows: Sequence[int]) -> dict[str, int]:
        """What a site registers of its training data."""
        held = {self.all[row].document for row in rows}
        counts = {"examples": len(rows), "notes": len(held)}
        patients = {self.documents[i].attributes.get(PATIENT) for i in held}
        return counts if None in patients else {**counts, "patients": len(patients)}

    def patients(self, documents: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """A number for each document's patient; None where some document does not say whose it is."""
        numbers: dict[str | None, int] = {}
        named = {i: self.documents[i].attributes.get(PATIENT) for i in np.unique(documents).tolist()}
        for patient in named.values():
            numbers.setdefault(patient, len(numbers))
        if None in numbers:
            return None
        return np.array([numbers[named[i]] for i in documents.tolist()], dtype=np.int64)

    def answers(self) -> list[Sequence[str]]:
        return [self.task.answers(example) for example in self.all]

    def without_labels(self, rows: Sequence[int]) -> Examples:
        """The same, these without their labels: nothing that is made of them can tell."""
        hidden = frozenset(rows)
        if not hidden:
            return self
        assert isinstance(self.task, Distillable)  # the config refuses data.unlabelled for other tasks
        strip = self.task.without_label
        return replace(self, all=[strip(one) if row in hidden else one for row, one in enumerate(self.all)])

    def public_texts(self, served: Rows) -> list[str]:
        """What a public vocabulary may be learnt from."""
        return [self.task.text(self.all[row]) for row in _asked(served)]

    def public_set(self, served: Rows) -> PublicSet | None:
        """What sites get of the server's examples."""
        rows = _asked(served)
        return PublicSet([self.task.question(self.all[row]) for row in rows]) if rows else None

    def encode(self, encoder: Encoder) -> EncodedExamples:
        return EncodedExamples(self, self.task.features(self.all, encoder))


@dataclass(frozen=True)
class EncodedExamples:
    """Examples as numbers, made once; splits are rows of them."""

    examples: Examples
    features: Features

    def split(self, rows: Sequence[int]) -> Split:
        task, made = self.examples.task, np.array(rows, dtype=np.int64)
        made = task.rows(self.features, made)
        origins = task.examples_of(self.features, made)
        documents = np.array([self.examples.all[i].document for i in origins.tolist()], dtype=np.int64)
        patients = self.examples.patients(documents)
        return Split(self.features, made, documents=documents, examples=origins, patients=patients)

    def splits(self, rows: Rows) -> dict[str, Split]:
        """By part; DataError where no row can be made of a part, which otherwise would show after the training."""
        made = {part: self.split(some) for part, some in rows.items() if some}
        for part, split in made.items():
            if not len(split):
                raise DataError(
                    f"of the {part} data no row can be made for {self.examples.task.name}: give other documents"
                )
        return made

    def server_splits(self, served: Rows, public: PublicSet | None) -> dict[str, Split]:
        """The server's data; the public set has the labelled rows first, then the others."""
        splits = self.splits({**served, "public": _asked(served), UNLABELLED: ()})
        if public is not None:
            labelled = np.arange(len(served["public"])) if served.get(UNLABELLED) else None
            splits["public"] = replace(splits["public"], digest=public.digest, labelled=labelled)
        return splits


def examples_by_part(task: Task, corpora: Corpora) -> tuple[Examples, dict[str, list[int]]]:
    """All examples, and which of them each part has; DataError where a part has none."""
    found, left_out = task.examples(corpora.documents)
    corpora.warnings.update(left_out)
    examples = Examples(task, corpora.documents, found)
    rows = {part: examples.within(members) for part, members in corpora.parts.items()}
    for part, some in rows.items():
        if not some:
            raise no_example(task, f"the {part} data hold", left_out)
    return examples.without_labels(rows.get(UNLABELLED, ())), rows


def _asked(served: Mapping[str, Sequence[Any]]) -> list[Any]:
    """The examples of the public set in its order: those with a label, then the others."""
    return [*served.get("public", ()), *served.get(UNLABELLED, ())]
