"""The reference pages that are written from the code: every key of a config, and every command."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic_core import PydanticUndefined

from grandrounds.cli.app import app
from grandrounds.config.schema import Config, SiteSection
from grandrounds.registry import ALGORITHMS, TASKS

Row = tuple[str, str, str, str]
"""A key, its type, its default, and what it is."""


def write(folder: Path) -> None:
    """config.md and cli.md, in the folder."""
    (folder / "config.md").write_text(config_page(), encoding="utf-8")
    (folder / "cli.md").write_text(cli_page(), encoding="utf-8")


def config_page() -> str:
    """Every key of a config, from the classes that check it."""
    parts = [
        "# Config\n\nA config is a TOML file. Unknown keys are refused, and the nearest is suggested. Any key can be "
        "changed on the command line: `grandrounds run CONFIG federation.rounds=5`. A key without a default is unset. "
        "[A run and its folder](runs.md) describes what a run writes. This page is generated from the code.\n\n"
        "## Top level\n",
        table(row for row in rows(Config) if row[0] not in SECTIONS),
    ]
    for name, model in SECTIONS.items():
        title = f"[{name}.NAME]" if name == "sites" else f"[{name}]"
        parts += [f"## {title}\n", *described(model), table(rows(model))]
    parts.append("## [task]\n\n`name` chooses the task; its own options follow.\n")
    for name, task in TASKS.items():
        parts += [f"### {name}\n", *described(task), table(row for row in rows(task.Options) if row[0] != "name")]
    parts.append("## [algorithm]\n\n`name` chooses the algorithm; its own options follow.\n")
    for name, algorithm in ALGORITHMS.items():
        parts += [f"### {name}\n", *described(algorithm), table(rows(algorithm))]
    return "\n".join(parts)


SECTIONS: dict[str, type] = {
    name: SiteSection if name == "sites" else type(Config.model_fields[name].default)
    for name in ("data", "partition", "sites", "model", "training", "server", "federation", "privacy")
}


def rows(model: type) -> Iterator[Row]:
    """A row for each field of a pydantic model or a dataclass."""
    described, hints = docstrings(model), get_type_hints(model)
    if dataclasses.is_dataclass(model):
        for field in dataclasses.fields(model):
            yield field.name, kind(hints[field.name]), shown(field.default), described.get(field.name, "")
        return
    fields: Mapping[str, Any] = model.model_fields  # type: ignore[attr-defined]
    for name, field in fields.items():
        yield name, kind(field.annotation), shown(field.get_default(call_default_factory=True)), described.get(name, "")


def kind(hint: Any) -> str:
    """A type as a reader of TOML knows it; that a key may be left out is seen from its default."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return kind(inner[0])
    if origin is Literal:
        return " | ".join(shown(value) for value in inner)
    if origin in (Union, UnionType):
        return " | ".join(kind(one) for one in inner if one is not NoneType)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(kind(one) for one in inner if one is not Ellipsis)}]"
    return "any" if hint is Any else str(hint.__name__)


def shown(default: Any) -> str:
    if default in (PydanticUndefined, dataclasses.MISSING):
        return "required"
    return "" if default is None else repr(default).replace("'", '"')


def docstrings(model: type) -> dict[str, str]:
    """What stands as a string below each field, the parents' too."""
    found: dict[str, str] = {}
    for cls in reversed([cls for cls in model.__mro__ if cls.__module__.startswith("grandrounds.")]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return found


def described(thing: Any) -> list[str]:
    text = thing.__doc__ or ""
    if not text or text.startswith(f"{thing.__name__}("):  # what @dataclass writes where there is no docstring
        text = inspect.getmodule(thing).__doc__ or ""
    text = re.sub(r"^\[\S+\]: (\w)", lambda match: match[1].upper(), inspect.cleandoc(text))  # the heading says it
    return [f"{cell(' '.join(text.partition(chr(10) * 2)[0].split()))}\n"] if text else []


def table(found: Iterable[Row]) -> str:
    lines = [f"| `{key}` | {code(kind)} | {code(default)} | {cell(what)} |" for key, kind, default, what in found]
    return (
        "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *lines, ""]) if lines else "No options.\n"
    )


def code(text: str) -> str:
    return "`{}`".format(text.replace("|", "\\|")) if text else ""


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def cli_page() -> str:
    """Every command with its arguments and options, from its help."""
    parts = ["# Commands\n\n`grandrounds COMMAND --help` prints the same text, from which this page is generated.\n"]
    for path, command in commands(typer.main.get_command(app), ()):
        parts += [f"## {' '.join(path)}\n", f"{inspect.cleandoc(command.help or '')}\n"]
        lines = [
            f"| {code(names(one))} | {code(default(one))} | {cell(getattr(one, 'help', None) or '')} |"
            for one in command.params
        ]
        parts += ["| option | default | meaning |", "|---|---|---|", *lines, ""]
    return "\n".join(parts)


def default(parameter: Any) -> str:
    if parameter.required or parameter.default in (None, False, [], ()):
        return ""
    return (
        ", ".join(map(str, parameter.default))
        if isinstance(parameter.default, list | tuple)
        else str(parameter.default)
    )


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands of a group, and of its groups."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from commands(below, (*path, name))


def names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.make_metavar(typer.Context(typer.main.get_command(app))))
    return ", ".join((*parameter.opts, *parameter.secondary_opts))
