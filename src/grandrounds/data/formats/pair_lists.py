"""Lists of pairs beside a corpus: a document's id and the ids of two of its entities on each line, tab-separated.

    30	D001241	D007674

CDR's negatives whose disease is a hypernym of a related one are passed on so: no examples at all, though their
mentions stay. They become the attribute `not_include` of `grandrounds.data.pairs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from grandrounds.data.documents import Document
from grandrounds.data.formats.source import Warnings, lines
from grandrounds.data.pairs import NOT_INCLUDE, Pair, list_pairs
from grandrounds.errors import DataError

UNKNOWN_DOCUMENT = "lines of the list not_include about documents that this corpus file does not have"
UNKNOWN_ENTITY = "lines of the list not_include about entities that their document does not have"
RELATED = "lines of the list not_include about related pairs, which stay included"


def rows(content: str, columns: str, path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    """The number and the columns of each line, which all must be filled; `columns` and `path` are for messages."""
    width = columns.count(",") + 1
    for i, line in enumerate(lines(content), start=1):
        if line.strip():
            found = line.split("\t")
            if len(found) != width or not all(column.strip() for column in found):
                problem = f"{len(found)} tab-separated columns, or an empty one; a line has {width}: {columns}"
                raise DataError(problem, path=path, line=i)
            yield i, found


def leave_out(documents: Iterable[Document], content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents, in which the pairs of a list's content are no examples; `path` is for messages."""
    listed: dict[str, list[Pair]] = {}
    for _, (id, head, tail) in rows(content, "document, head, tail", path):
        listed.setdefault(id, []).append((head, tail))
    unknown = set(listed)
    for document in documents:
        entities = {entity.id for entity in document.entities}
        related = {(relation.head, relation.tail) for relation in document.relations}
        kept: dict[Pair, None] = {}
        for pair in listed.get(document.id, ()):
            if not entities.issuperset(pair):
                warnings[UNKNOWN_ENTITY] += 1
            elif pair in related:
                warnings[RELATED] += 1
            else:
                kept[pair] = None
        unknown.discard(document.id)
        added = {NOT_INCLUDE: list_pairs(kept)} if kept else {}
        yield replace(document, attributes={**document.attributes, **added})
    if unknown:
        warnings[UNKNOWN_DOCUMENT] += sum(len(listed[id]) for id in unknown)
