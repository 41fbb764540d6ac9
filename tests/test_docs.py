"""What README and docs show is so: Python blocks run, commands exist with their options, and the cheap ones run."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from grandrounds.cli.app import app
from grandrounds.cli.demo.chapters import CHAPTERS
from grandrounds.config.schema import load_config
from grandrounds.data.formats import write
from grandrounds.registry import ALGORITHMS, FORMATS, TASKS
from tests.cli.commands import run
from tests.conftest import corpus

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
WRITTEN = ("reference/config.md", "reference/cli.md", "explanation/imports.svg")  # by the build, from the code
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if not str(page).endswith(WRITTEN) and "_build" not in page.parts]
FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>.+?) -->\n)?^```(?P<language>\S*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
INLINE = re.compile(r"`(grandrounds [^`]+)`")
SMALL = {"hospitals = 6": "hospitals = 3", "notes = 60": "notes = 4", "rounds = 20": "rounds = 1"}
"""What makes experiments/synthetic.toml run in seconds."""


COMMANDS: Any = typer.main.get_command(app)


@dataclass(frozen=True)
class Block:
    """What a page shows between fences; `why` says why it is not run."""

    language: str
    code: str
    why: str | None


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["code"], match["why"]) for match in found]


def commands(code: str) -> Iterator[list[str]]:
    """The words of each `grandrounds` line, with lines that go on joined."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("grandrounds "):
            yield shlex.split(line, comments=True)[1:]


def check_command(words: list[str]) -> None:
    """Fail where a command or an option does not exist."""
    command, words = COMMANDS, list(words)
    while words and hasattr(command, "commands"):
        word = words.pop(0)
        assert word in command.commands, f"there is no command '{word}'"
        command = command.commands[word]
    command.make_parser(typer.Context(command)).parse_args(words)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as a reader of the docs has it: a small experiment, and annotated notes."""
    text = (ROOT / "experiments/synthetic.toml").read_text(encoding="utf-8")
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/synthetic.toml").write_text(text, encoding="utf-8")
    write("brat", corpus(40), tmp_path / "notes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    yield tmp_path
    for registry in (ALGORITHMS, TASKS, FORMATS):
        for name in ("my_fedavg", "my_momentum", "renamed_re", "piped"):
            registry.pop(name, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(f"docs_{page.stem}".replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look annotations up
    names = module.__dict__
    for block in blocks(page):
        match block.language:
            case "python" if block.why is None:
                (workplace / f"{names['__name__']}.py").write_text(block.code)
                exec(compile(block.code, str(page), "exec"), names)
            case "python":
                compile(block.code, str(page), "exec")
            case "sh":
                for words in commands(block.code):
                    check_command(words)
                    if block.why is None:
                        run(*words, cwd=workplace).good()
            case "toml":
                content = tomllib.loads(block.code)
                if page.stem == "own-data":
                    (workplace / "own.toml").write_text(block.code)
                assert content
            case "{toctree}" | "{eval-rst}":
                pass
            case other:
                pytest.fail(f"a block in '{other}' is checked by nobody: use python, sh or toml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_within_sentences_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for shown in INLINE.findall(text):
        words = shlex.split(" ".join(shown.replace("...", "").split()))[1:]
        if words and words[0].islower() and "|" not in shown:
            check_command(words)


def test_a_wrong_command_or_option_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="there is no command 'rum'"):
        check_command(["rum", "x.toml"])
    with pytest.raises(Exception, match="--roundz"):
        check_command(["run", "x.toml", "--roundz", "3"])


def test_a_block_says_why_it_is_not_run() -> None:
    (shown,) = FENCE.finditer("<!-- not run: hours -->\n```sh\ngrandrounds demo\n```\n")
    assert (shown["why"], shown["language"], shown["code"]) == ("hours", "sh", "grandrounds demo\n")


@pytest.mark.parametrize("system", CHAPTERS)
def test_each_paper_has_an_experiment_without_data_whose_command_is_in_the_readme(system: str) -> None:
    path = ROOT / f"src/grandrounds/cli/demo/{system}.toml"
    assert load_config(path).algorithm["name"] in (*CHAPTERS, "fedavg")
    command = f"grandrounds demo {system}"
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith(command)
    assert f"`{command}`" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_of_readme_and_docs_lead_somewhere() -> None:
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples/README.md"]:
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
            path = page.parent / target
            if "://" not in target and not path.exists() and not str(path.resolve()).endswith(WRITTEN):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_reference_describes_every_key_of_a_config_and_every_command() -> None:
    import generate

    for section in generate.SECTIONS.values():
        assert [row[0] for row in generate.rows(section) if not row[3]] == []
    page = generate.config_page()
    for name in (*generate.SECTIONS, *TASKS, *ALGORITHMS):
        assert f"## [{name}" in page or f"### {name}\n" in page
    assert "| `rounds` | `int` | `10` |" in page
    assert '| `weight_by` | `"examples" \\| "uniform" \\| "patients" \\| "notes"` |  |' in page
    assert "### fedavg\n\nFederated averaging (McMahan et al." in page
    commands = generate.cli_page()
    assert "## site join\n" in commands
    assert "| `--out` | `runs/demo` | Where the runs go. |" in commands


def test_the_import_graph_shows_the_rooms_as_they_are() -> None:
    import rooms

    assert rooms.direct({("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 1}) == {("a", "b"), ("b", "c")}
    order = rooms.layers()
    found = rooms.imports(order)
    assert all(order.index(upper) < order.index(lower) for upper, lower in found)
    assert ("tasks", "data") in found
    assert "<title>tasks imports data: " in rooms.draw(order, found)


def test_the_notebook_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = json.loads((ROOT / "examples/first_federation.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "notebook"}
    (workplace / "examples").mkdir()
    monkeypatch.chdir(workplace / "examples")
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "first_federation.ipynb", "exec"), names)
    assert names["result"]["rounds"] == 3
    assert any(document.relations for document in names["found"])
