"""JSON from strangers, value by value: each is what it should be, or the error says where it is and what it must be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from grandrounds.errors import DataError

T = TypeVar("T")


def load(text: str, cure: str) -> object:
    """A JSON value; `cure` says what the text should have been."""
    with _reported(cure):
        return _DECODER.decode(text)


def numbered(text: str, cure: str, key: str | None = None) -> Iterator[tuple[int, object]]:
    """The parts of a JSON array one at a time, so that a long one is never held as objects all at once, each with the
    line on which it starts; with `key`, of the array that an object has under it."""
    line, counted, at = 1, 0, 0
    for at, part in _parts(text, cure) if key is None else _members(text, cure, key):
        line, counted = line + text.count("\n", counted, at), at
        yield line, part


def _parts(text: str, cure: str) -> Iterator[tuple[int, object]]:
    at = yield from _array(text, 0, cure)
    _end(text, at, cure)


def _array(text: str, at: int, cure: str) -> Generator[tuple[int, object], None, int]:
    """Where each part starts, and the part; gives where the array ends."""
    at = _past(text, at, "[", cure)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        part, after = _decode(text, at, cure)
        yield at, part
        at = _skip(text, after)
        if text[at : at + 1] == "]":
            return at + 1
        at = _past(text, at, ",", cure)


def _members(text: str, cure: str, key: str) -> Iterator[tuple[int, object]]:
    at, seen = _past(text, 0, "{", cure), False
    while text[at : at + 1] != "}":
        name, after = _decode(text, at, cure)
        if not isinstance(name, str):
            raise _not_json(json.JSONDecodeError("Expecting a key", text, at), cure)
        at = _past(text, after, ":", cure)
        if name == key:
            if seen:
                raise DataError("a key given twice; remove one")
            seen = True
            at = yield from _array(text, at, cure)
        else:
            _, at = _decode(text, at, cure)
        at = _skip(text, at)
        if text[at : at + 1] != "}":
            at = _past(text, at, ",", cure)
    if not seen:
        raise DataError(f"no '{key}'; {cure}")
    _end(text, at + 1, cure)


def _decode(text: str, at: int, cure: str) -> tuple[object, int]:
    with _reported(cure):
        return _DECODER.raw_decode(text, at)


def _end(text: str, at: int, cure: str) -> None:
    at = _skip(text, at)
    if at < len(text):
        raise _not_json(json.JSONDecodeError("Extra data", text, at), cure)


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


_SPACE = re.compile(r"[ \t\n\r]*")


def _past(text: str, at: int, sign: str, cure: str) -> int:
    """Where the value after a sign starts."""
    found = re.compile(rf"[ \t\n\r]*\{sign}[ \t\n\r]*").match(text, at)
    if not found:
        raise _not_json(json.JSONDecodeError(f"Expecting '{sign}'", text, at), cure)
    return found.end()


@contextmanager
def _reported(cure: str) -> Iterator[None]:
    """What is wrong with JSON, as errors for the reader."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise _not_json(error, cure) from None
    except RecursionError:
        raise DataError("nested too deeply to be a document") from None
    except ValueError:
        raise DataError("a number too long to be an offset") from None


def _not_json(error: json.JSONDecodeError, cure: str) -> DataError:
    return DataError(f"not JSON at column {error.colno} ({error.msg}); {cure}", line=error.lineno)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError("a key given twice; remove one")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def items(value: object, where: str, item: Callable[[object, str], T]) -> tuple[T, ...]:
    """A list, each part of it checked by `item`."""
    if not isinstance(value, list):
        raise DataError(f"{where} must be a list")
    return tuple(item(part, f"{where}[{i}]") for i, part in enumerate(value))


def pair(value: object, where: str) -> tuple[int, int]:
    match value:
        case [int() as first, int() as second] if not isinstance(first, bool) and not isinstance(second, bool):
            return first, second
    items(value, where, integer)
    raise DataError(f"{where} must be two whole numbers")


def integer(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where} must be a whole number")
    return value


def string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} must be a string")
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        problem = f"{where} holds half of a surrogate pair, which UTF-8 can't; write the whole character"
        raise DataError(problem) from None
    return value


def strings(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object of strings")
    return {string(key, f"{where} key"): string(item, f"{where} value") for key, item in value.items()}


def record(value: object, where: str, *needed: str) -> dict[str, object]:
    """An object that has these keys."""
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object")
    for key in needed:
        if key not in value:
            raise DataError(f"{where} lacks '{key}'")
    return value
