"""Our own JSON lines: a Document a line, every field kept; what other formats lose, this one keeps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.json_values import integer, items, pair, string, strings
from grandrounds.data.formats.json_values import load as load_json
from grandrounds.data.formats.source import Format, Warnings, lines, placed, save, stream
from grandrounds.errors import DataError, unknown


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from _parsed(stream(path), path, warnings)


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save(render(documents), path)


def parse(content: str, path: Path) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    return _parsed(lines(content), path, Counter())


def _parsed(lines: Iterable[str], path: Path, warnings: Warnings) -> Iterator[Document]:
    for i, line in enumerate(lines, start=1):
        if line.strip():
            with placed(path, i, warnings):
                yield _document(load_json(line, "each line is one document"), "document")


def render(documents: Iterable[Document]) -> str:
    """The content of a file; fields at their defaults are left out."""
    return "".join(json.dumps(_plain(document), ensure_ascii=False) + "\n" for document in documents)


def _plain(value: Document | Mention | Entity | Relation) -> dict[str, Any]:
    kept = {}
    for field in fields(value):
        item = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if item != default:
            nested = isinstance(item, tuple) and item and isinstance(item[0], Mention | Entity | Relation)
            kept[field.name] = [_plain(part) for part in item] if nested else item
    return kept


def _document(value: object, where: str) -> Document:
    found = _record(value, where, Document)
    return Document(
        string(found["id"], f"{where}.id"),
        string(found["text"], f"{where}.text"),
        items(found.get("sentences", []), f"{where}.sentences", _span),
        items(found.get("mentions", []), f"{where}.mentions", _mention),
        items(found.get("entities", []), f"{where}.entities", _entity),
        items(found.get("relations", []), f"{where}.relations", _relation),
        strings(found.get("attributes", {}), f"{where}.attributes"),
    )


def _mention(value: object, where: str) -> Mention:
    found = _record(value, where, Mention)
    concept = found.get("concept")
    return Mention(
        integer(found["start"], f"{where}.start"),
        integer(found["end"], f"{where}.end"),
        string(found["type"], f"{where}.type"),
        string(found["id"], f"{where}.id"),
        None if concept is None else string(concept, f"{where}.concept"),
        items(found.get("fragments", []), f"{where}.fragments", _span),
        strings(found.get("attributes", {}), f"{where}.attributes"),
    )


def _entity(value: object, where: str) -> Entity:
    found = _record(value, where, Entity)
    return Entity(
        string(found["id"], f"{where}.id"),
        string(found["type"], f"{where}.type"),
        items(found["mentions"], f"{where}.mentions", integer),
    )


def _relation(value: object, where: str) -> Relation:
    found = _record(value, where, Relation)
    mentions = found.get("mentions")
    return Relation(
        string(found["type"], f"{where}.type"),
        string(found["head"], f"{where}.head"),
        string(found["tail"], f"{where}.tail"),
        None if mentions is None else pair(mentions, f"{where}.mentions"),
        strings(found.get("attributes", {}), f"{where}.attributes"),
    )


def _record(value: object, where: str, cls: type) -> dict[str, object]:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object")
    known, needed = _keys(cls)
    for key in value:
        if key not in known:
            # A key that resembles no field may be text that slipped out of its quotes, so it is not shown.
            near = key.isidentifier() and get_close_matches(key.lower(), known, n=1, cutoff=0.5)
            raise DataError(
                unknown(f"key in {where}", key, known) if near else f"unknown key in {where}; known: {', '.join(known)}"
            )
    for key in needed:
        if key not in value:
            raise DataError(f"{where} lacks '{key}'")
    return value


@cache
def _keys(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that a record may have, and those that it must have."""
    known = fields(cls)
    needed = (field for field in known if field.default is MISSING and field.default_factory is MISSING)
    return tuple(field.name for field in known), tuple(field.name for field in needed)


def _span(value: object, where: str) -> Span:
    return Span(*pair(value, where))


FORMAT = Format("json", "our own JSON lines, a document a line", read, write, suffixes=(".jsonl", ".json"))
