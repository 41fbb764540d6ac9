"""MIMIC-III's NOTEEVENTS.csv, read row by row: the whole file has four gigabytes.

Discharge summaries are taken, as Federated BERT does, or another category; what its authors marked as an error is not.
The patient (SUBJECT_ID) and the stay (HADM_ID) are attributes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grandrounds.data.clinical import clinical_sentences
from grandrounds.data.documents import Document
from grandrounds.data.formats.source import Format, Warnings, placed, stream
from grandrounds.errors import DataError

NEEDED = ("ROW_ID", "SUBJECT_ID", "CATEGORY", "ISERROR", "TEXT")
ERRORS = "notes marked as an error, left out"
EMPTY = "notes without text, left out"
UNMARKED = frozenset({"", "0", "0.0", "f", "false", "na", "nan", "null", "none", "\\n"})
"""What says that a note is no error in tables that went through other hands: R's, pandas', a database's."""
LARGEST = 1 << 24
"""Characters of a field; csv's own limit is below the longest note."""


def read(path: Path, warnings: Warnings, *, category: str = "Discharge summary") -> Iterator[Document]:
    for line, row in _rows(path):
        if row["CATEGORY"].strip().lower() != category.strip().lower():
            warnings["notes of other categories, left out"] += 1
        elif _marked(row["ISERROR"]):
            warnings[ERRORS] += 1
        elif not row["TEXT"].strip():
            warnings[EMPTY] += 1
        elif not row["SUBJECT_ID"].strip() or not row["ROW_ID"].strip():
            with placed(path, line, warnings):
                raise DataError("a note without ROW_ID or SUBJECT_ID; fetch the file again")
        else:
            yield _document(row)


def _marked(error: str) -> bool:
    return error.strip().lower() not in UNMARKED


def _document(row: Mapping[str, str]) -> Document:
    attributes = {"patient": row["SUBJECT_ID"].strip()}
    if row.get("HADM_ID", "").strip():
        attributes["stay"] = row["HADM_ID"].strip()
    return Document(row["ROW_ID"].strip(), row["TEXT"], clinical_sentences(row["TEXT"]), attributes=attributes)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The first line and the fields of each row."""
    limit = csv.field_size_limit(LARGEST)
    reader = csv.reader((f"{line}\n" for line in stream(path)), strict=True)
    first, names = 1, list[str]()
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                if names:
                    yield first, _named(names, fields, path, first)
                else:
                    names = _header(fields, path, first)
            first = reader.line_num + 1
    except csv.Error as error:  # its text names no field's content
        problem = "a row with a quote that does not end, or not before a comma"
        if "field larger" in str(error):
            problem = f"a field of more than {LARGEST:,} characters; a quote before it may not end"
        elif "new-line character" in str(error):
            problem = "a row that a lone carriage return breaks; write its lines with \\n or \\r\\n"
        raise DataError(problem, path=path, line=first) from None
    finally:
        csv.field_size_limit(limit)


def _header(fields: Sequence[str], path: Path, line: int) -> list[str]:
    names = [name.strip().upper() for name in fields]
    for name in NEEDED:
        if name not in names:
            raise DataError(f"a header without the column '{name}'; is it NOTEEVENTS.csv?", path=path, line=line)
    return names


def _named(names: Sequence[str], fields: Sequence[str], path: Path, line: int) -> dict[str, str]:
    if len(fields) != len(names):
        problem = f"{len(fields)} columns where the header has {len(names)}; fetch the file again"
        raise DataError(problem, path=path, line=line)
    return dict(zip(names, fields, strict=True))


FORMAT = Format("mimic-notes", "MIMIC-III's NOTEEVENTS.csv, of which a category", read, suffixes=(".csv",))
