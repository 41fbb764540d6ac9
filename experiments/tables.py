"""Write the tables of README and docs from the JSON of docs/results, and the ledger of claims from its TOML:

    python -m experiments.tables            # or: make tables
    python -m experiments.tables --check    # write nothing; exit 1 where a file does not say what the JSON says

A table lies between two comments of a Markdown file:

    <!-- compare: FILE.json -->     rows of what `grandrounds compare` or `demo` wrote
    <!-- table: NAME -->            the block of that name in docs/results/tables.jinja
    <!-- value: EXPRESSION -->      one value within a sentence, a Jinja expression
    ...
    <!-- end -->
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.ledger import CLAIMS, LEDGER, Ledger
from experiments.render import Renderer
from jinja2 import TemplateError

ROOT = Path(__file__).parents[1]
CURE = "run: make tables"
BLOCK = re.compile(r"(<!-- (compare|table|value): (.+?) -->)(.*?)(<!-- end -->)", re.DOTALL)
OPENING = re.compile(r"<!-- (?:compare|table|value): ")


@dataclass(frozen=True)
class Problem:
    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def filled(text: str, render: Renderer) -> tuple[str, list[tuple[int, str]]]:
    """The text with what belongs between the comments, and by line what was not so."""
    problems: list[tuple[int, str]] = []

    def fill(match: re.Match[str]) -> str:
        opening, kind, what, old, closing = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        try:
            new = getattr(render, kind)(what.strip())
        except (ValueError, KeyError, TypeError, TemplateError) as problem:
            problems.append((line, f"{kind} '{what}' can't be written: {problem}"))
            return match.group()
        new = new if kind == "value" else f"\n{new}\n"
        if new != old:
            problems.append((line, f"{kind} '{what}' is not what its JSON says; {CURE}"))
        return f"{opening}{new}{closing}"

    done = BLOCK.sub(fill, text)
    rest = BLOCK.sub(lambda match: "\n" * match.group().count("\n"), text)
    for match in OPENING.finditer(rest):
        line = rest.count("\n", 0, match.start()) + 1
        problems.append((line, "a table is opened and not ended; add <!-- end -->"))
    return done, problems


def markdown(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def problems(root: Path, write: bool = False) -> Iterator[Problem]:
    """What differs in any Markdown file or in the ledger; if asked, it is then written as it should be."""
    render = Renderer(root / "docs/results")
    ledger = Ledger.read(root)
    yield from (Problem(Path(CLAIMS), line, what) for line, what in ledger.problems())
    for path in markdown(root):
        old = path.read_text(encoding="utf-8")
        own = path.relative_to(root)
        if str(own) == LEDGER:
            new = ledger.to_markdown()
            found = [(_first_difference(old, new), f"it is not what {CLAIMS} says; {CURE}")] if new != old else []
        else:
            new, found = filled(old, render)
        yield from (Problem(own, line, what) for line, what in found)
        if write and new != old:
            path.write_text(new, encoding="utf-8")


def _first_difference(old: str, new: str) -> int:
    pairs = zip(old.splitlines(), new.splitlines(), strict=False)
    alike = next((i for i, (a, b) in enumerate(pairs) if a != b), min(old.count("\n"), new.count("\n")))
    return alike + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something differs")
    check = parser.parse_args().check
    found = list(problems(ROOT, write=not check))
    for problem in found if check else [problem for problem in found if CURE not in problem.what]:
        print(problem, file=sys.stderr)
    if (check and found) or any(CURE not in problem.what for problem in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
