"""A config for the corpus in a folder: its format, what can be learnt from it, labels, parts, sites and an encoder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from grandrounds.config.schema import make_config
from grandrounds.data.detect import Detected, detect
from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from grandrounds.errors import DataError, unknown

SITE = ("hospital", "site", "institution", "centre", "center", "silo", "platform", "specialty")
"""Attributes of documents that tell where they come from."""
DISTANT = ("nre", "bere", "opennre")
"""Formats of sentences that a knowledge base labelled."""
SITES = 5
FROM_SCRATCH = {"epochs": 1, "batch_size": 8, "learning_rate": 5e-4}
PRETRAINED = {"epochs": 1, "batch_size": 8, "learning_rate": 5e-5}


@dataclass(frozen=True)
class Proposal:
    content: dict[str, Any]
    """Of the config."""
    found: Detected
    documents: int
    tasks: Sequence[str]
    """All that the corpus allows; the config has the first."""


def propose(
    folder: Path, config: Path, *, format: str | None = None, task: str | None = None, encoder: str | None = None
) -> Proposal:
    """A config that runs, whose paths start at the folder of the file `config`."""
    found = detect(folder, format)
    documents = {part: read(paths, found.format).documents for part, paths in found.parts.items()}
    held = [document for part in documents.values() for document in part]
    tasks = tasks_of(held, found.format)
    chosen = task or tasks[0]
    if chosen not in tasks:
        raise DataError(f"{unknown('task', chosen, tasks)}; the documents allow no other", path=folder)
    content: dict[str, Any] = {
        "seed": 1,
        "task": {"name": chosen, **_options(chosen, held)},
        "data": _data(found, config),
        "partition": _sites(documents["train"]),
        "model": {
            "encoder": encoder or ("words" if chosen == "distant_re" else "new" if chosen == "masked_lm" else "tiny")
        },
        "training": FROM_SCRATCH if encoder is None else PRETRAINED,
        "federation": {"rounds": 10},
        "algorithm": {"name": "fedavg"},
    }
    make_config(content)
    return Proposal(content, found, len(held), tasks)


def tasks_of(documents: Sequence[Document], format: str) -> list[str]:
    """What can be learnt from them, the likeliest first."""
    relations = [relation for document in documents for relation in document.relations]
    tasks = []
    if relations and all(_one_pair(document) for document in documents):
        tasks += ["distant_re", "sentence_re"] if format in DISTANT else ["sentence_re", "distant_re"]
    elif relations:
        of_mentions = 2 * sum(relation.mentions is not None for relation in relations) >= len(relations)
        tasks += ["sentence_re"] if of_mentions else ["document_re"]
    if any(document.mentions for document in documents) and not _blinded(documents):
        tasks.append("ner")
    return [*tasks, "masked_lm"]


def _one_pair(document: Document) -> bool:
    return len(document.mentions) == 2 and len(document.relations) <= 1


def _blinded(documents: Sequence[Document]) -> bool:
    """Whether names are replaced by signs such as @GENE$: then there is nothing to find."""
    return all(document.surface(m).startswith("@") for document in documents for m in document.mentions)


def _options(task: str, documents: Sequence[Document]) -> dict[str, Any]:
    if task == "masked_lm":
        return {}
    if task == "ner":
        types = sorted({mention.type for document in documents for mention in document.mentions})
        return {"labels": types, **({"tagger": "spans"} if any(map(_overlap, documents)) else {})}
    return {"labels": sorted({relation.type for document in documents for relation in document.relations})}


def _overlap(document: Document) -> bool:
    ordered = sorted(document.mentions, key=lambda mention: (mention.start, -mention.end))
    return any(one.end > other.start for one, other in pairwise(ordered))


def _data(found: Detected, config: Path) -> dict[str, Any]:
    paths = {
        part: [Path(os.path.relpath(path.resolve(), config.resolve().parent)).as_posix() for path in held]
        for part, held in found.parts.items()
    }
    files = {part: held[0] if len(held) == 1 else held for part, held in paths.items()}
    return {"format": found.format, "public": 0.1, "validation": 0.1, "test": 0.2, **files}


def _sites(documents: Sequence[Document]) -> dict[str, Any]:
    """By an attribute that names at least two sites in every document, else at random."""
    for name in SITE:
        values = Counter(document.attributes.get(name) for document in documents)
        if None not in values and len(values) > 1:
            return {"scheme": "by", "by": name}
    return {"scheme": "iid", "sites": max(min(SITES, len(documents) // 2), 1), "unit": "document"}
