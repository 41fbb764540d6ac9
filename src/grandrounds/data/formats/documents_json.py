"""Our own JSON lines: a Document a line, every field kept; what other formats lose, this one keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.source import Format, Notes, lines, load, save
from grandrounds.errors import DataError, unknown

T = TypeVar("T")


def read(path: Path, notes: Notes) -> Iterator[Document]:
    yield from parse(load(path), path)


def write(documents: Sequence[Document], path: Path, notes: Notes) -> None:
    save(render(documents), path)


def parse(content: str, path: Path) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    for i, line in enumerate(lines(content), start=1):
        if line.strip():
            try:
                yield _document(_load(line), "document")
            except DataError as error:
                raise error.at(path, i) from None


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


def _load(line: str) -> object:
    try:
        return json.loads(line, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON at column {error.colno} ({error.msg}); each line is one document") from None
    except RecursionError:
        raise DataError("nested too deeply to be a document") from None
    except ValueError:
        raise DataError("a number too long to be an offset") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise DataError("a key given twice; remove one")
    return dict(pairs)


def _document(value: object, where: str) -> Document:
    found = _record(value, where, Document)
    return Document(
        _string(found["id"], f"{where}.id"),
        _string(found["text"], f"{where}.text"),
        _list(found.get("sentences", []), f"{where}.sentences", _span),
        _list(found.get("mentions", []), f"{where}.mentions", _mention),
        _list(found.get("entities", []), f"{where}.entities", _entity),
        _list(found.get("relations", []), f"{where}.relations", _relation),
        _strings(found.get("attributes", {}), f"{where}.attributes"),
    )


def _mention(value: object, where: str) -> Mention:
    found = _record(value, where, Mention)
    concept = found.get("concept")
    return Mention(
        _integer(found["start"], f"{where}.start"),
        _integer(found["end"], f"{where}.end"),
        _string(found["type"], f"{where}.type"),
        _string(found["id"], f"{where}.id"),
        None if concept is None else _string(concept, f"{where}.concept"),
        _list(found.get("fragments", []), f"{where}.fragments", _span),
        _strings(found.get("attributes", {}), f"{where}.attributes"),
    )


def _entity(value: object, where: str) -> Entity:
    found = _record(value, where, Entity)
    return Entity(
        _string(found["id"], f"{where}.id"),
        _string(found["type"], f"{where}.type"),
        _list(found["mentions"], f"{where}.mentions", _integer),
    )


def _relation(value: object, where: str) -> Relation:
    found = _record(value, where, Relation)
    mentions = found.get("mentions")
    return Relation(
        _string(found["type"], f"{where}.type"),
        _string(found["head"], f"{where}.head"),
        _string(found["tail"], f"{where}.tail"),
        None if mentions is None else _pair(mentions, f"{where}.mentions"),
        _strings(found.get("attributes", {}), f"{where}.attributes"),
    )


def _record(value: object, where: str, cls: type) -> dict[str, object]:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object")
    known = [field.name for field in fields(cls)]
    for key in value:
        if key not in known:
            # A key that resembles no field may be text that slipped out of its quotes, so it is not shown.
            near = key.isidentifier() and get_close_matches(key.lower(), known, n=1, cutoff=0.5)
            raise DataError(
                unknown(f"key in {where}", key, known) if near else f"unknown key in {where}; known: {', '.join(known)}"
            )
    for field in fields(cls):
        if field.default is MISSING and field.default_factory is MISSING and field.name not in value:
            raise DataError(f"{where} lacks '{field.name}'")
    return value


def _list(value: object, where: str, item: Callable[[object, str], T]) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise DataError(f"{where} must be a list")
    return tuple(item(part, f"{where}[{i}]") for i, part in enumerate(value))


def _span(value: object, where: str) -> Span:
    return Span(*_pair(value, where))


def _pair(value: object, where: str) -> tuple[int, int]:
    numbers = _list(value, where, _integer)
    if len(numbers) != 2:
        raise DataError(f"{where} must be two whole numbers")
    return numbers[0], numbers[1]


def _integer(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where} must be a whole number")
    return value


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} must be a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        problem = f"{where} holds half of a surrogate pair, which UTF-8 can't; write the whole character"
        raise DataError(problem) from None
    return value


def _strings(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object of strings")
    return {_string(key, f"{where} key"): _string(item, f"{where} value") for key, item in value.items()}


FORMAT = Format("json", "our own JSON lines, a document a line", read, write, suffixes=(".jsonl", ".json"))
