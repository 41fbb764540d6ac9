"""Notes as JSON lines: `text`, an `id` or none, and further fields, such as specialty, to partition by."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from grandrounds.data.clinical import clinical_sentences
from grandrounds.data.documents import Document
from grandrounds.data.formats.json_values import load as load_json
from grandrounds.data.formats.json_values import record, string
from grandrounds.data.formats.source import Format, Warnings, placed, stream

EMPTY = "notes without text, left out"
NESTED = "fields that are lists or objects, left out"


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    for i, line in enumerate(stream(path), start=1):
        if line.strip():
            with placed(path, i, warnings):
                if document := _document(line, f"{path.stem}-{i}", warnings):
                    yield document


def _document(line: str, number: str, warnings: Warnings) -> Document | None:
    fields = record(load_json(line, "each line is one note"), "the note", "text")
    text = string(fields.pop("text"), "text")
    id = _plain(fields.pop("id", None))
    attributes = {name: plain for name, value in fields.items() if (plain := _plain(value)) is not None}
    nested = sum(isinstance(value, list | dict) for value in fields.values())
    if nested:
        warnings[NESTED] += nested
    if not text.strip():
        warnings[EMPTY] += 1
        return None
    return Document(number if id is None else id, text, clinical_sentences(text), attributes=attributes)


def _plain(value: object) -> str | None:
    """A string, number or truth value as text; None for what is not there (an empty string, a table's NaN), and for
    what has parts. 12.0 is 12: a column with gaps has no whole numbers."""
    match value:
        case str():
            return string(value, "a field").strip() or None
        case bool():
            return str(value).lower()
        case float() if not isfinite(value):
            return None
        case float() if value.is_integer():
            return str(int(value))
        case int() | float():
            return str(value)
    return None


FORMAT = Format("notes-json", "JSON lines, a note's text and its fields a line", read, suffixes=(".jsonl", ".json"))
