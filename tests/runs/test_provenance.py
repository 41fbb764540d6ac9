"""Where a figure comes from, without a path of the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import grandrounds
from grandrounds.runs.provenance import command, commit, versions


@pytest.mark.parametrize(
    ("typed", "reported"),
    [
        (
            [
                "/opt/bin/grandrounds",
                "run",
                "/home/me/gad.toml",
                "--data",
                "/home/me/data",
                "--out",
                "/tmp/x",
                "seed=2",
            ],
            "grandrounds run gad.toml --data DIR --out OUT seed=2",
        ),
        (
            ["/lib/grandrounds/__main__.py", "run", "a.toml", "--data=../data", "--out", "runs/a"],
            "grandrounds run a.toml --data=DIR --out runs/a",
        ),
        (["grandrounds", "run", "a.toml", "model.encoder=/m/minilm/"], "grandrounds run a.toml model.encoder=minilm"),
        (["-c"], "python"),
    ],
)
def test_a_command_is_as_typed_but_for_the_paths_of_the_machine(typed: list[str], reported: str) -> None:
    assert command(typed) == reported


def test_the_commit_is_that_of_the_checkout_with_its_changes(tmp_path: Path) -> None:
    package = tmp_path / "checkout" / "src" / "package"
    package.mkdir(parents=True)
    (package / "a.py").write_text("a = 1\n")

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *who, *words], cwd=package, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert commit.__wrapped__(package) is None
    git("init", str(tmp_path / "checkout"))
    git("add", ".")
    git("commit", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert commit.__wrapped__(package) == head
    (tmp_path / "checkout" / "results.json").write_text("{}")
    assert commit.__wrapped__(package) == head
    (package / "b.py").write_text("b = 1\n")
    assert commit.__wrapped__(package) == f"{head}+changes"
    assert commit.__wrapped__(package / "site-packages" / "package") is None


def test_versions_name_what_computes() -> None:
    assert versions().keys() == {"grandrounds", "python", "torch", "transformers", "numpy", "threads"}
    assert versions()["grandrounds"] == grandrounds.__version__
