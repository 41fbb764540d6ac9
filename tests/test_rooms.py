"""Imports point downwards only, in every form that Python has for them, and nothing is ever unpickled."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import grandrounds

ROOT = Path(grandrounds.__file__).parent
PROJECT = ROOT.parents[1]
FILES = sorted(ROOT.rglob("*.py"))
DYNAMIC = {"__init__.py", "registry.py", "subprocesses.py", "maps/__init__.py"}
"""Files that import by name, which no walk over imports sees."""


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def unpickles(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [name for name in imported(tree) if name.split(".")[0] in ("pickle", "cPickle", "dill", "joblib")]
    found += [name for name in imported(tree) if name in ("torch.load", "torch.save")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            found += [name] if name in ("torch.load", "torch.save", "np.load") else []
    return found


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """import-linter with the contracts of pyproject.toml, on a copy of the package."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", str(PROJECT / "pyproject.toml")]
    place = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run([*command, "--no-cache"], cwd=source, env=place, capture_output=True, text=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled(path: Path) -> None:
    assert unpickles(path.read_text(encoding="utf-8")) == []


def test_only_doors_import_by_name() -> None:
    dynamic = {str(path.relative_to(ROOT)) for path in FILES if "import_module" in path.read_text(encoding="utf-8")}
    assert dynamic == DYNAMIC


UPWARDS = {
    "absolute": "from grandrounds.simulation import run",
    "package": "from grandrounds import simulation",
    "relative": "from ..simulation import run",
    "late": "def f():\n    import grandrounds.simulation.run",
    "typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from grandrounds.simulation.run import run",
}


@pytest.fixture(scope="module")
def upwards(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """What import-linter says of a package with a module for each form of an import upwards."""
    folder = tmp_path_factory.mktemp("upwards")
    shutil.copytree(ROOT, folder / "grandrounds", ignore=shutil.ignore_patterns("__pycache__"))
    for form, line in UPWARDS.items():
        (folder / f"grandrounds/federation/{form}.py").write_text(line + "\n", encoding="utf-8")
    return lint_imports(folder)


@pytest.mark.parametrize("form", UPWARDS)
def test_an_import_upwards_breaks_the_contract(form: str, upwards: subprocess.CompletedProcess[str]) -> None:
    assert upwards.returncode == 1
    assert f"grandrounds.federation.{form} -> grandrounds.simulation" in upwards.stdout


def test_imports_point_downwards() -> None:
    ended = lint_imports(ROOT.parent)
    assert ended.returncode == 0, ended.stdout


def test_the_walk_sees_what_it_must_refuse() -> None:
    assert unpickles("import pickle") == ["pickle"]
    assert unpickles("import torch\nx = torch.load('a')") == ["torch.load"]
    assert unpickles("from torch import load") == ["torch.load"]


def test_no_module_imports_a_test_module() -> None:
    """What several tests need is a helper or a fixture."""
    importing = re.compile(r"^\s*(from|import) tests\.\S*\btest_", re.MULTILINE)
    assert importing.search("from tests.models.test_elmo import write")
    files = sorted((PROJECT / "tests").rglob("*.py"))
    assert len(files) > 100
    assert [path.name for path in files if importing.search(path.read_text(encoding="utf-8"))] == []
