"""What pydantic finds wrong, as one sentence for the author of the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from grandrounds.errors import ConfigError, near, unknown


def explained(
    error: ValidationError,
    model: type[BaseModel],
    prefix: str,
    of_mappings: type[BaseModel] | None = None,
    further: Iterable[str] = (),
) -> ConfigError:
    """The first problem as a sentence; for an unknown key, with the nearest known one. `of_mappings` is what the values
    of a mapping are, such as [sites.NAME]; `further` are keys of the file that are not in the model."""
    problems, everywhere = error.errors(), [*(prefix + leaf for leaf in leaves(model)), *further]
    # A misspelt key is also a missing one: what was written comes first.
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    path = [str(part) for part in problem["loc"] if part not in ("float", "str", "list[str]")]  # branches of a union
    where = prefix + ".".join(path)
    if problem["type"] == "extra_forbidden":
        for section in path[:-1]:
            annotation: Any = model.model_fields[section].annotation if section in model.model_fields else None
            is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
            model = annotation if is_model else of_mappings or model
        known = [prefix + ".".join([*path[:-1], name]) for name in model.model_fields]
        return unknown_key(where, known, everywhere)
    meant = [leaf for leaf in everywhere if leaf.endswith(f".{where}")]
    if problem["type"] in ("dict_type", "model_type") and meant:
        return ConfigError(f"'{where}' is a section; did you mean '{meant[0]}'?")
    message = problem["msg"].removeprefix("Value error, ")
    return ConfigError(f"{where}: {message[0].lower()}{message[1:]} (it is {problem['input']!r})")


def unknown_key(where: str, known: Sequence[str], everywhere: Sequence[str]) -> ConfigError:
    """A sentence on a key that is not among those of its section: a key of another section, or a slip of the pen."""
    by_end: dict[str, list[str]] = {}
    for leaf in dict.fromkeys(everywhere):
        by_end.setdefault(_end(leaf), []).append(leaf)
    meant = by_end.get(_end(where), [])
    if not meant and near(where, known, 0.8) is None:
        meant = by_end.get(near(_end(where), by_end, 0.75) or "", [])
    if not meant:
        return ConfigError(unknown("config key", where, known))
    return ConfigError(f"unknown config key '{where}'; did you mean {' or '.join(map(repr, meant[:3]))}?")


def leaves(model: type[BaseModel]) -> list[str]:
    """All keys that a file of this model may have, with the names of their sections."""
    found = []
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        is_section = isinstance(kind, type) and issubclass(kind, BaseModel)
        found += [f"{name}.{leaf}" for leaf in leaves(kind)] if is_section else [name]
    return found


def _end(key: str) -> str:
    return key.rpartition(".")[2]
