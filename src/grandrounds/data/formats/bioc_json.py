"""BioC as JSON: a collection with its documents, as PubTator and the `bioc` package write it.

    {"source", "date", "key", "infons", "documents": [{"id", "infons", "passages", "annotations", "relations"}]}

`bioc_documents` says what a document holds. Documents are read one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from grandrounds.data.documents import Document
from grandrounds.data.formats.bioc_documents import from_bioc, to_bioc
from grandrounds.data.formats.json_values import numbered
from grandrounds.data.formats.source import Format, Warnings, load, placed, save

_CURE = "the file is one BioC collection, an object with 'documents'"


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(load(path), path, warnings)


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save("".join(render(documents, warnings)), path)


def parse(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    with placed(path, None, warnings):
        for i, (line, value) in enumerate(numbered(content.removeprefix("\ufeff"), _CURE, "documents")):
            with placed(path, line, warnings):
                yield from_bioc(value, f"documents[{i}]", path, line, warnings)


def render(documents: Iterable[Document], warnings: Warnings) -> Iterator[str]:
    """The content of a file, in pieces."""
    yield '{"source": "", "date": "", "key": "", "version": "1.0", "infons": {}, "documents": ['
    for i, document in enumerate(documents):
        yield (",\n" if i else "\n") + json.dumps(to_bioc(document, warnings), ensure_ascii=False)
    yield "\n]}\n"


FORMAT = Format("bioc-json", "BioC's JSON: a collection of documents with passages", read, write, suffixes=(".json",))
