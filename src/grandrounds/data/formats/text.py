"""Plain text, a document a file: what a model is to read, without anything marked in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

from grandrounds.data.documents import Document
from grandrounds.data.formats.source import Format, Notes, load
from grandrounds.data.sentences import Breaks, split_sentences
from grandrounds.errors import GrandRoundsError, unknown


def read(path: Path, notes: Notes, *, breaks: str = "paragraph") -> Iterator[Document]:
    if breaks not in get_args(Breaks):
        raise GrandRoundsError(unknown("breaks", breaks, get_args(Breaks)))
    content = load(path)
    sentences = split_sentences(content, breaks=cast("Breaks", breaks))
    yield Document(path.name.removesuffix(".gz"), content, sentences)


FORMAT = Format("text", "plain text, a document a file", read, suffixes=(".txt",))
