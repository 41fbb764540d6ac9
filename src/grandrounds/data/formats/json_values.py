"""JSON from strangers, value by value: each is what it should be, or the error says where it is and what it must be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from grandrounds.errors import DataError

T = TypeVar("T")


def load(text: str, cure: str) -> object:
    """A JSON value; `cure` says what the text should have been."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON at column {error.colno} ({error.msg}); {cure}", line=error.lineno) from None
    except RecursionError:
        raise DataError("nested too deeply to be a document") from None
    except ValueError:
        raise DataError("a number too long to be an offset") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise DataError("a key given twice; remove one")
    return dict(pairs)


def items(value: object, where: str, item: Callable[[object, str], T]) -> tuple[T, ...]:
    """A list, each part of it checked by `item`."""
    if not isinstance(value, list):
        raise DataError(f"{where} must be a list")
    return tuple(item(part, f"{where}[{i}]") for i, part in enumerate(value))


def pair(value: object, where: str) -> tuple[int, int]:
    numbers = items(value, where, integer)
    if len(numbers) != 2:
        raise DataError(f"{where} must be two whole numbers")
    return numbers[0], numbers[1]


def integer(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where} must be a whole number")
    return value


def string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} must be a string")
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
