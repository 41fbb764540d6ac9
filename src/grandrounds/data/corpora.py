"""The corpora of an experiment: files in one of the formats, or synthetic hospitals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from grandrounds.data.synthetic import synthesize
from grandrounds.errors import ConfigError, unknown

SYNTHETIC = "synthetic"
"""A format without files: data.options say how many hospitals and notes."""


@dataclass(frozen=True)
class Source:
    """Where a corpus lies."""

    format: str
    paths: Sequence[Path]
    options: Mapping[str, Any]


def read_source(source: Source, part: str, notes: Counter[str]) -> tuple[Document, ...]:
    """Its documents; what was skipped is added to the notes. `part` chooses between synthetic train and test."""
    if source.format == SYNTHETIC:
        return _synthetic(part, source.options)
    corpus = read(source.format, source.paths, **source.options)
    notes.update(corpus.notes)
    return corpus.documents


def _synthetic(part: str, options: Mapping[str, Any]) -> tuple[Document, ...]:
    known = signature(synthesize).parameters
    for name in options:
        if name not in known:
            raise ConfigError(f"data.options: {unknown('option', name, known)}")
        if not isinstance(options[name], int) or isinstance(options[name], bool):
            raise ConfigError(f"data.options.{name} = {options[name]!r}; it must be a whole number")
    corpus = synthesize(**options)
    return corpus.test if part == "test" else corpus.train
