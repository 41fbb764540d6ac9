"""Tasks: each is examples, features, a model, a loss and a score, and none knows that it is federated."""

from __future__ import annotations

from grandrounds.tasks.distant_re import DistantRE
from grandrounds.tasks.document_re import DocumentRE
from grandrounds.tasks.masked_lm import MaskedLM
from grandrounds.tasks.ner import NER
from grandrounds.tasks.sentence_re import SentenceRE
from grandrounds.tasks.task import Batch, Features, Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (SentenceRE, DocumentRE, DistantRE, NER, MaskedLM)}

__all__ = ["NER", "TASKS", "Batch", "DistantRE", "DocumentRE", "Features", "MaskedLM", "SentenceRE", "Task"]
