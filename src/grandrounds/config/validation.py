"""What pydantic finds wrong, as one sentence for the author of the file."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from grandrounds.errors import ConfigError, near, unknown


def explained(
    error: ValidationError, model: type[BaseModel], prefix: str, of_mappings: type[BaseModel] | None = None
) -> ConfigError:
    """The first problem as a sentence; for an unknown key, with the nearest known one. `of_mappings` is what the values
    of a mapping are, such as [sites.NAME]."""
    problems, top = error.errors(), model
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
        elsewhere = [] if near(where, known, 0.8) else _elsewhere(top, path[-1])
        if elsewhere:
            return ConfigError(f"unknown config key '{where}'; did you mean '{prefix}{elsewhere[0]}'?")
        return ConfigError(unknown("config key", where, known))
    message = problem["msg"].removeprefix("Value error, ")
    return ConfigError(f"{where}: {message[0].lower()}{message[1:]} (it is {problem['input']!r})")


def _elsewhere(model: type[BaseModel], name: str) -> list[str]:
    """The keys of this name in the model's sections."""
    sections = {section: field.annotation for section, field in model.model_fields.items()}
    models = {key: kind for key, kind in sections.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}
    return [f"{section}.{name}" for section, kind in models.items() if name in kind.model_fields]
