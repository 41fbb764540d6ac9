"""Plain text, a document a file: what a model is to read, without anything marked in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

from grandrounds.data.clinical import clinical_sentences
from grandrounds.data.documents import Document
from grandrounds.data.formats.source import Format, Warnings, load
from grandrounds.data.sentences import Breaks, split_sentences
from grandrounds.errors import GrandRoundsError, unknown

CLINICAL = "clinical"
"""Breaks of a note: headings, list items and marks are seen too."""


def read(path: Path, warnings: Warnings, *, breaks: str = "paragraph") -> Iterator[Document]:
    known = (*get_args(Breaks), CLINICAL)
    if breaks not in known:
        raise GrandRoundsError(unknown("breaks", breaks, known))
    content = load(path).removeprefix("\ufeff")  # a byte order mark is no character of the note
    if breaks == CLINICAL:
        sentences = clinical_sentences(content)
    else:
        sentences = split_sentences(content, breaks=cast("Breaks", breaks))
    yield Document(path.name.removesuffix(".gz"), content, sentences)


FORMAT = Format("text", "plain text, a document a file", read, suffixes=(".txt",))
