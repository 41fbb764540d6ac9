"""A public knowledge base of facts, for distant supervision: tab-separated lines of head id, relation and tail id.

    MESH:D015282	chem_disease:therapeutic	MESH:D000172

Columns may be chosen, so that tables made for something else serve as they are. Lines that start with '#' are comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grandrounds.data.documents import concept_ids
from grandrounds.data.formats.pair_sentence import NA
from grandrounds.data.formats.source import Warnings, stream
from grandrounds.errors import ConfigError, DataError

COLUMNS = (1, 2, 3)
"""Where head, relation and tail stand, from 1 on."""
COMMENTS = "comment lines of the knowledge base, passed over"
TWICE = "facts given twice by the knowledge base, kept once"
HEADER = "line skipped as the header of the knowledge base"
_HEADINGS = {"head", "tail", "relation", "head_id", "tail_id", "head id", "tail id", "subject", "object", "predicate"}


@dataclass(frozen=True)
class KnowledgeBase:
    """Which relations hold from one id to another."""

    relations: dict[tuple[str, str], tuple[str, ...]]
    ignore_prefixes: bool = False

    @property
    def facts(self) -> int:
        return sum(len(found) for found in self.relations.values())

    def ids(self, concept: str | None) -> tuple[str, ...]:
        """The ids of a concept as this knowledge base has them: several are joined by '|', each counts."""
        return ids(concept, self.ignore_prefixes)


def ids(concept: str | None, ignore_prefixes: bool) -> tuple[str, ...]:
    """The ids in a concept; without prefixes MESH:D001241 is D001241: what stands after the last colon."""
    parts = concept_ids(concept)
    bare = [part.rpartition(":")[2] or part for part in parts] if ignore_prefixes else parts
    return tuple(dict.fromkeys(bare))


def read_facts(
    path: Path,
    warnings: Warnings,
    *,
    columns: Sequence[int] | None = None,
    header: bool = False,
    ignore_prefixes: bool = False,
) -> KnowledgeBase:
    """The facts of a file, gzipped or not; what is passed over is added to the notes."""
    return parse_facts(stream(path), path, warnings, columns, header, ignore_prefixes)


def parse_facts(
    lines: Iterable[str],
    path: Path,
    warnings: Warnings,
    columns: Sequence[int] | None = None,
    header: bool = False,
    ignore_prefixes: bool = False,
) -> KnowledgeBase:
    """The facts of a file's lines; `path` is for messages. Without `columns` there must be three."""
    if columns is not None and (len(columns) != 3 or min(columns) < 1 or len(set(columns)) < 3):
        raise ConfigError("columns of a knowledge base are three different numbers, of head, relation and tail: 1,2,3")
    found: dict[tuple[str, str], dict[str, None]] = {}
    first = True
    for i, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if line.startswith("#"):
            warnings[COMMENTS] += 1
            continue
        try:
            cells = _cells(line.split("\t"), columns)
            if first and header:
                warnings[HEADER] += 1
            else:
                for head, relation, tail in _facts(cells, first, ignore_prefixes):
                    known = found.setdefault((head, tail), {})
                    if relation in known:
                        warnings[TWICE] += 1
                    known[relation] = None
        except DataError as error:
            raise error.at(path, i) from None
        first = False
    if not found:
        raise DataError("no facts found; a line has head id, relation and tail id, tab-separated", path=path)
    return KnowledgeBase({pair: tuple(types) for pair, types in found.items()}, ignore_prefixes)


def _cells(row: Sequence[str], columns: Sequence[int] | None) -> list[str]:
    if columns is None and len(row) != 3:
        raise DataError(
            f"{len(row)} tab-separated columns where head id, relation and tail id should be; "
            "if there are others, name the columns of these three, as 4,2,3"
        )
    chosen = columns or COLUMNS
    if len(row) < max(chosen):
        raise DataError(f"{len(row)} tab-separated columns, but column {max(chosen)} is to be read")
    return [row[column - 1].strip() for column in chosen]


def _facts(cells: Sequence[str], first: bool, ignore_prefixes: bool) -> Iterator[tuple[str, str, str]]:
    if first and any(cell.lower() in _HEADINGS for cell in cells):
        raise DataError("a line of headings, not of a fact; say that the file has a header, or remove it")
    head, relation, tail = cells
    heads, tails = ids(head, ignore_prefixes), ids(tail, ignore_prefixes)
    if not heads or not relation or not tails:
        raise DataError("a fact without head id, relation or tail id")
    if relation == NA:
        raise DataError(f"a relation named {NA}, which is the absence of one; rename it")
    yield from ((one, relation, other) for one in heads for other in tails)
