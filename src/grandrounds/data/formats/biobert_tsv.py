"""BioBERT's TSV of GAD and EU-ADR: a sentence with its two entities blinded, and whether they are related.

Train files have no header (sentence TAB label), test files have one (index, sentence, label). Each row is
a document of one sentence with mentions at its two placeholders (`@GENE$`, `@DISEASE$`) and, for label 1,
a relation from the gene to the disease (from the first placeholder to the second where none is a gene).
All 10,660 rows of both GAD folds and all of EU-ADR hold exactly one placeholder of each kind, so a row
that does not is refused rather than guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.source import Format, Warnings, lines, load, placed
from grandrounds.errors import DataError

_PLACEHOLDER = re.compile(r"@([A-Za-z][\w-]*)\$")
_HEADER = ["index", "sentence", "label"]


def read(path: Path, warnings: Warnings, *, relation: str = "associated") -> Iterator[Document]:
    yield from parse(load(path), path, warnings, relation)


def parse(content: str, path: Path, warnings: Warnings, relation: str = "associated") -> Iterator[Document]:
    """The documents of a file's content; `path` is for ids and messages."""
    width = 2
    for i, line in enumerate(lines(content), start=1):
        if not line.strip():
            continue
        columns = line.split("\t")
        if i == 1 and columns[-1].strip().lower() == "label":
            if [name.strip().lower() for name in columns] not in (_HEADER, _HEADER[1:]):
                problem = "a header with other columns than index, sentence and label; rename or remove columns"
                raise DataError(problem, path=path, line=i)
            width = len(columns)
            continue
        with placed(path, i, warnings):
            yield _document(f"{path.name}:{i}", columns, width, relation)


def _document(id: str, columns: Sequence[str], width: int, relation: str) -> Document:
    if len(columns) != width:
        expected = "sentence and label" if width == 2 else "index, sentence and label"
        raise DataError(f"{len(columns)} tab-separated columns where {expected} should be")
    text, label = columns[-2], columns[-1].strip()
    if label not in ("0", "1"):
        raise DataError("a label that is not 0 or 1")
    found = list(_PLACEHOLDER.finditer(text))
    if len(found) != 2 or found[0].group(1) == found[1].group(1):
        raise DataError(
            f"{len(found)} placeholders where there should be two, of different kinds; "
            "blind one pair a row, as @GENE$ and @DISEASE$"
        )
    mentions = tuple(
        Mention(*match.span(), match.group(1), f"T{i}", attributes={"blinded": "yes"})
        for i, match in enumerate(found, 1)
    )
    entities = tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions))
    head, tail = (1, 0) if mentions[1].type == "GENE" else (0, 1)
    related = (Relation(relation, mentions[head].id, mentions[tail].id, (head, tail)),) if label == "1" else ()
    return Document(id, text, (Span(0, len(text)),), mentions, entities, related)


FORMAT = Format(
    "biobert-tsv",
    "a sentence with @GENE$ and @DISEASE$ and its label 0 or 1 a line",
    read,
    suffixes=(".tsv",),
)
