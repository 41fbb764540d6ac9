"""The rooms of the house: imports point downwards only, and nothing is ever unpickled."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import grandrounds

ROOT = Path(grandrounds.__file__).parent
ROOMS = (
    "cli",
    "maps",
    "papers",
    "reports",
    "deployment",
    "simulation",
    "runs",
    "setup",
    "config",
    "algorithms",
    "federation",
    "tasks",
    "models",
    "metrics",
    "data",
    "subprocesses",
    "errors",
)
DEPTH = {room: depth for depth, room in enumerate(ROOMS)}
FILES = sorted(ROOT.rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def room_of(module: str) -> str | None:
    """The room of 'grandrounds.<room>...'; None for other packages and for the package itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == "grandrounds" and len(parts) > 1 and parts[1] in DEPTH else None


def upward(source: str, room: str) -> set[str]:
    found = {room_of(module) for module in imported(ast.parse(source))} - {None, room}
    return {other for other in found if other is not None and DEPTH[other] < DEPTH[room]}


def unpickles(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [name for name in imported(tree) if name.split(".")[0] in ("pickle", "cPickle", "dill", "joblib")]
    found += [name for name in imported(tree) if name in ("torch.load", "torch.save")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            found += [name] if name in ("torch.load", "torch.save", "np.load") else []
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards_and_nothing_is_unpickled(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    source = path.read_text(encoding="utf-8")
    if room in DEPTH:
        assert upward(source, room) == set()
    assert unpickles(source) == []


def test_every_folder_is_a_room() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders <= set(ROOMS)


def test_the_walk_sees_what_it_must_refuse() -> None:
    assert upward("from grandrounds.algorithms import fedavg", "tasks") == {"algorithms"}
    assert upward("from grandrounds import cli", "runs") == {"cli"}
    assert upward("def f():\n    import grandrounds.runs.loop", "federation") == {"runs"}
    assert upward("from grandrounds.errors import DataError", "data") == set()
    assert unpickles("import pickle") == ["pickle"]
    assert unpickles("import torch\nx = torch.load('a')") == ["torch.load"]
    assert unpickles("from torch import load") == ["torch.load"]
