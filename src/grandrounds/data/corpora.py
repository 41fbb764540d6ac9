"""The corpora of an experiment: files in one of the formats, or synthetic hospitals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from grandrounds.data.documents import Document
from grandrounds.data.formats import each, nothing_found, read
from grandrounds.data.synthetic import synthesize
from grandrounds.data.synthetic.bags import synthesize_bags
from grandrounds.data.synthetic.documents import synthesize_documents
from grandrounds.errors import ConfigError, unknown

SYNTHETIC, SYNTHETIC_BAGS, SYNTHETIC_DOCUMENTS = "synthetic", "synthetic-bags", "synthetic-documents"
MADE_HERE: Mapping[str, Callable[..., Any]] = {
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


def read_source(source: Source, part: str, notes: Counter[str]) -> tuple[Document, ...]:
    """Its documents; what was skipped is added to the notes. `part` chooses between synthetic train and test."""
    if source.format in MADE_HERE:
        return _made_here(source.format, part, source.options)
    corpus = read(source.format, source.paths, **source.options)
    notes.update(corpus.notes)
    return corpus.documents


def stream_source(source: Source, part: str, notes: Counter[str]) -> Iterator[Document]:
    """The same one at a time, for what need not hold them all."""
    if source.format in MADE_HERE:
        yield from _made_here(source.format, part, source.options)
        return
    documents = each(source.format, source.paths, notes, **source.options)
    first = next(documents, None)
    if first is None:
        raise nothing_found(source.format, source.paths, notes)
    yield first
    yield from documents


def _made_here(format: str, part: str, options: Mapping[str, Any]) -> tuple[Document, ...]:
    known = signature(MADE_HERE[format]).parameters
    for name in options:
        if name not in known:
            raise ConfigError(f"data.options: {unknown('option', name, known)}")
        of_words = known[name].default is None
        if not (_words(options[name]) if of_words else type(options[name]) is int):
            wanted = "a list of words" if of_words else "a whole number"
            raise ConfigError(f"data.options.{name} = {options[name]!r}; it must be {wanted}")
    corpus = MADE_HERE[format](**options)
    documents: tuple[Document, ...] = corpus.test if part == "test" else corpus.train
    return documents


def _words(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(word, str) for word in given)
