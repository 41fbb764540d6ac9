"""Commands start at once: what is heavy is imported by the commands that need it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grandrounds.deployment.keys import make_authority
from grandrounds.deployment.signed import sign_enrolment
from tests.cli.commands import HEAVY
from tests.conftest import corpus, write_corpus

LOOK = """
import json, sys
from grandrounds.cli import main
heavy, sys.argv = sys.argv[2].split(), ["grandrounds", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as ended:
    code = ended.code
json.dump({"code": code, "heavy": [name for name in heavy if name in sys.modules]}, sys.stderr)
"""


def started(*words: str) -> dict[str, object]:
    """The exit code of a command in a process of its own, and what heavy it imported."""
    command = [sys.executable, "-c", LOOK, json.dumps(words), " ".join(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found: dict[str, object] = json.loads(done.stderr[done.stderr.rindex("{") :])
    return found


@pytest.mark.parametrize(
    "words", [("--help",), ("-h",), ("--version",), ("run", "-h"), ("site", "join", "--help")], ids=" ".join
)
def test_help_and_version_import_nothing_heavy(words: tuple[str, ...]) -> None:
    assert started(*words) == {"code": 0, "heavy": []}


def test_a_wrong_argument_imports_nothing_heavy() -> None:
    assert started("run", "--nonsense") == {"code": 2, "heavy": []}


def test_checking_a_corpus_imports_nothing_heavy(tmp_path: Path) -> None:
    assert started("data", "check", str(write_corpus(tmp_path / "notes.jsonl", corpus(4)))) == {"code": 0, "heavy": []}


def test_making_a_key_pair_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('name = "mercy"\ncoordinator = "localhost:8000"\n')
    make_authority(tmp_path, "test")
    sign_enrolment(tmp_path, "mercy", tmp_path / "ca.key")
    assert started("site", "init", str(tmp_path)) == {"code": 0, "heavy": []}
    assert (tmp_path / "mercy.pub").exists()
