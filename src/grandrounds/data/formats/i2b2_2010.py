"""The 2010 i2b2/VA challenge: discharge summaries with concepts (.con), relations (.rel) and assertions (.ast).

    c="chest pain" 12:3 12:4||t="problem"
    c="aspirin" 12:0 12:0||r="TrAP"||c="chest pain" 12:3 12:4
    c="chest pain" 12:3 12:4||t="problem"||a="present"

Offsets are line:token, lines from 1 and tokens (between white space) from 0, both ends included. A line
of the text is a sentence. A relation's head is the concept named first. What is asserted of a problem becomes its
mention's attribute "assertion". The files may lie beside one
another or in folders, as released (`beth/txt`, `beth/concept`, `beth/rel`); a folder named after a
hospital becomes the attribute "hospital". The pairs without a relation (class None) are not stored: a
task makes them as candidate pairs of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.source import Format, Warnings, lines, load, mismatch, number, placed
from grandrounds.data.sentences import join_sentences
from grandrounds.errors import DataError

HOSPITALS = frozenset({"beth", "partners", "upmc", "upmcd", "upmcp"})
ASSERTIONS = ("present", "absent", "possible", "conditional", "hypothetical", "associated_with_someone_else")

_CONCEPT = r'c="(.*)" (\d+):(\d+) (\d+):(\d+)'
_CON = re.compile(rf'{_CONCEPT}\|\|t="([^"]*)"', re.ASCII | re.DOTALL)
_AST = re.compile(rf'{_CONCEPT}\|\|t="([^"]*)"\|\|a="([^"]*)"', re.ASCII | re.DOTALL)
_REL = re.compile(rf'{_CONCEPT}\|\|r="([^"]*)"\|\|{_CONCEPT}', re.ASCII | re.DOTALL)

UNPLACED = "relations with a concept that the .con file does not have, left out"


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    folder = path if path.is_dir() else path.parent
    found = {suffix: sorted(folder.rglob(f"*{suffix}")) for suffix in (".txt", ".con", ".rel", ".ast")}
    texts = found[".txt"] if path.is_dir() else [path.with_suffix(".txt")]
    used: set[Path] = set()
    for text in texts:
        concepts, relations, assertions = (_partner(text, found[suffix]) for suffix in (".con", ".rel", ".ast"))
        hospital = next((part.lower() for part in reversed(text.parts[:-1]) if part.lower() in HOSPITALS), None)
        files = Files(text, concepts, relations, assertions)
        for name, partner in (("concepts (.con)", concepts), ("relations (.rel)", relations)):
            if partner is None:
                warnings[f"texts without {name}, read as having none"] += 1
            else:
                used.add(partner)
        used.update({assertions} if assertions else ())
        yield parse(
            load(text),
            load(concepts) if concepts else "",
            load(relations) if relations else "",
            files,
            warnings,
            {"hospital": hospital} if hospital else {},
            load(assertions) if assertions else "",
        )
    if path.is_dir():
        for orphan in (*found[".con"], *found[".rel"], *found[".ast"]):
            if orphan not in used:
                raise DataError("no text of this name found; put its .txt beside it or in a folder 'txt'", path=orphan)


@dataclass(frozen=True)
class Files:
    """Where a document's parts come from; for ids and messages."""

    text: Path
    concepts: Path | None
    relations: Path | None
    assertions: Path | None = None


def _partner(text: Path, candidates: Sequence[Path]) -> Path | None:
    """The annotation file of a text: beside it, else in a folder beside its own, else the only one."""
    named = [path for path in candidates if path.stem == text.stem]
    beside = [path for path in named if path.parent == text.parent]
    sibling = [path for path in named if path.parent.parent == text.parent.parent]
    for some in (beside, sibling, named):
        if len(some) == 1:
            return some[0]
    if named:
        raise DataError(
            f"{len(named)} {named[0].suffix} files may belong to this text; read each hospital alone",
            path=text,
        )
    return None


def parse(
    text: str,
    concepts: str,
    relations: str,
    files: Files,
    warnings: Warnings,
    attributes: dict[str, str] | None = None,
    assertions: str = "",
) -> Document:
    """A document from the contents of its files."""
    grid = _token_grid(text)
    mentions: dict[tuple[int, int, str], Mention] = {}
    for i, row in _rows(concepts):
        with placed(files.concepts or files.text, i, warnings):
            found = _CON.fullmatch(row)
            if not found:
                raise DataError('not a concept line; expected c="..." 12:3 12:5||t="problem"')
            start, end = _locate(found.groups()[:5], text, grid)
            mention = Mention(start, end, found.group(6), f"T{len(mentions) + 1}")
            if (start, end, mention.type) in mentions:
                warnings["concepts given twice, kept once"] += 1
            else:
                mentions[start, end, mention.type] = mention
    for i, row in _rows(assertions):
        with placed(files.assertions or files.text, i, warnings):
            key, value = _assertion(row, text, grid)
            if key not in mentions:
                raise DataError(f"an assertion of the concept {key[0]}-{key[1]}, which the .con file does not have")
            if mentions[key].attributes.get("assertion", value) != value:
                warnings["assertions that contradict an earlier one, which was kept"] += 1
            else:
                mentions[key] = replace(mentions[key], attributes={"assertion": value})
    listed = tuple(mentions.values())
    by_span: dict[tuple[int, int], int] = {}
    for index, mention in enumerate(listed):
        by_span.setdefault((mention.start, mention.end), index)
    related: list[Relation] = []
    for i, row in _rows(relations):
        with placed(files.relations or files.text, i, warnings):
            relation = _relation(row, text, grid, by_span, listed)
            if relation is None:
                warnings[UNPLACED] += 1
            elif relation in related:
                warnings["relations given twice, kept once"] += 1
            else:
                related.append(relation)
    spans = [Span(mention.start, mention.end) for mention in listed]
    sentences = [Span(tokens[0].start, tokens[-1].end) for tokens in grid if tokens]
    entities = tuple(Entity(mention.id, mention.type, (index,)) for index, mention in enumerate(listed))
    try:
        return Document(
            files.text.stem,
            text,
            join_sentences(sentences, spans),
            listed,
            entities,
            tuple(related),
            attributes or {},
        )
    except DataError as error:
        raise error.at(files.text) from None


def _rows(content: str) -> Iterator[tuple[int, str]]:
    return ((i, line.strip()) for i, line in enumerate(lines(content), start=1) if line.strip())


def _token_grid(text: str) -> list[list[Span]]:
    """The tokens of each line, as spans of the whole text."""
    grid: list[list[Span]] = []
    start = 0
    for line in text.split("\n"):
        grid.append([Span(start + m.start(), start + m.end()) for m in re.finditer(r"\S+", line)])
        start += len(line) + 1
    return grid


def _assertion(row: str, text: str, grid: Sequence[Sequence[Span]]) -> tuple[tuple[int, int, str], str]:
    found = _AST.fullmatch(row)
    if not found:
        raise DataError('not an assertion line; expected c="..." 12:3 12:5||t="problem"||a="present"')
    start, end = _locate(found.groups()[:5], text, grid)
    if found.group(7) not in ASSERTIONS:
        raise DataError(f"an assertion that i2b2-2010 does not have; it has {', '.join(ASSERTIONS)}")
    return (start, end, found.group(6)), found.group(7)


def _relation(
    row: str,
    text: str,
    grid: Sequence[Sequence[Span]],
    by_span: dict[tuple[int, int], int],
    mentions: Sequence[Mention],
) -> Relation | None:
    """None where one of the two concepts is not in the .con file."""
    found = _REL.fullmatch(row)
    if not found:
        raise DataError('not a relation line; expected c="..." 12:3 12:5||r="TrAP"||c="..." 12:8 12:9')
    parts = found.groups()
    spans = _locate(parts[:5], text, grid), _locate(parts[6:], text, grid)
    if not by_span.keys() >= set(spans):
        return None
    head, tail = (by_span[span] for span in spans)
    return Relation(parts[5], mentions[head].id, mentions[tail].id, (head, tail))


def _locate(parts: Sequence[str], text: str, grid: Sequence[Sequence[Span]]) -> Span:
    """The characters of a concept; its text is compared without regard to case, as the release lowers it."""
    stated, *digits = parts
    numbers = [number(d) for d in digits]
    first_line, first_token, last_line, last_token = (-1 if n is None else n for n in numbers)
    try:
        if min(first_line, last_line) < 1 or min(first_token, last_token) < 0:
            raise IndexError
        start = grid[first_line - 1][first_token].start
        end = grid[last_line - 1][last_token].end
    except IndexError:
        raise DataError(f"line:token offsets outside the text, which has {len(grid)} lines") from None
    if start >= end:
        raise DataError(f"inverted offsets {first_line}:{first_token} to {last_line}:{last_token}")
    there = " ".join(text[start:end].split())
    given = " ".join(stated.split())
    if there.lower() != given.lower():
        raise mismatch(start, end, given, there)
    return Span(start, end)


FORMAT = Format("i2b2-2010", "folders with .txt, .con, .rel and .ast files", read, source="folder")
