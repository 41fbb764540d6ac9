"""The corpora of an experiment: files in one of the formats, or synthetic hospitals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import Any

from grandrounds.data.documents import Document
from grandrounds.data.formats import each, nothing_found, read
from grandrounds.data.formats.source import Lenient
from grandrounds.data.labels import LabelMap
from grandrounds.data.synthetic import synthesize
from grandrounds.data.synthetic.bags import synthesize_bags
from grandrounds.data.synthetic.documents import synthesize_documents
from grandrounds.errors import ConfigError, DataError, unknown

UNLABELLED = "unlabelled"
"""The part of an experiment's corpora whose labels nobody reads."""
SYNTHETIC, SYNTHETIC_BAGS, SYNTHETIC_DOCUMENTS = "synthetic", "synthetic-bags", "synthetic-documents"
GENERATED: Mapping[str, Callable[..., Any]] = {
    SYNTHETIC: synthesize,
    SYNTHETIC_BAGS: synthesize_bags,
    SYNTHETIC_DOCUMENTS: synthesize_documents,
}
"""Formats without files: notes of hospitals, and noisy bags of sentences; data.options say how many."""


@dataclass(frozen=True)
class Source:
    """Where a corpus lies."""

    format: str
    paths: Sequence[Path]
    options: Mapping[str, Any]
    lenient: bool = False
    """Whether what breaks the format is left out and counted, instead of refused."""
    labels: LabelMap = field(default_factory=lambda: LabelMap({}))
    """Other names for types of mentions and relations."""


def read_source(source: Source, part: str, warnings: Counter[str]) -> tuple[Document, ...]:
    """Its documents; what was skipped is added to the notes. `part` chooses between synthetic train and test, and
    unlabelled documents come without relations."""
    if source.format in GENERATED:
        documents = _generated(source.format, part, source.options)
    else:
        corpus = read(source.paths, source.format, lenient=source.lenient, **source.options)
        warnings.update(corpus.warnings)
        documents = corpus.documents
    documents = source.labels.apply(documents, warnings)
    return tuple(replace(document, relations=()) for document in documents) if part == UNLABELLED else documents


def check_apart(unlabelled: Sequence[Document], others: Iterable[Document]) -> None:
    """DataError where a document is among both: its label would be known after all, or it would be tested on."""
    known = {(document.id, document.text) for document in others}
    both = sum((document.id, document.text) in known for document in unlabelled)
    if both:
        raise DataError(
            f"{both} of {len(unlabelled)} documents of data.unlabelled are in another corpus of this run too: take "
            "others (of synthetic hospitals, such that data.unlabelled_options.first is after the last that trains)"
        )


def stream_source(source: Source, part: str, warnings: Counter[str]) -> Iterator[Document]:
    """The same one at a time, for what need not hold them all."""
    if source.format in GENERATED:
        yield from _generated(source.format, part, source.options)
        return
    counted = Lenient() if source.lenient else warnings
    documents = each(source.format, source.paths, counted, **source.options)
    first = next(documents, None)
    if first is None:
        raise nothing_found(source.format, source.paths, counted)
    yield first
    yield from documents
    if counted is not warnings:
        warnings.update(counted)


def _generated(format: str, part: str, options: Mapping[str, Any]) -> tuple[Document, ...]:
    known = signature(GENERATED[format]).parameters
    key = "data.unlabelled_options" if part == UNLABELLED else "data.options"
    for name in options:
        if name not in known:
            raise ConfigError(f"{key}: {unknown('option', name, known)}")
        of_words = known[name].default is None
        if not (_words(options[name]) if of_words else type(options[name]) is int):
            wanted = "a list of words" if of_words else "a whole number"
            raise ConfigError(f"{key}.{name} = {options[name]!r}; it must be {wanted}")
    corpus = _make(format, json.dumps(dict(options), sort_keys=True))
    documents: tuple[Document, ...] = corpus.test if part == "test" else corpus.train
    return documents


@lru_cache(maxsize=1)
def _make(format: str, options: str) -> Any:
    """The last one is kept: train and test are read one after the other, and so are the arms of a map."""
    return GENERATED[format](**json.loads(options))


def _words(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(word, str) for word in given)
