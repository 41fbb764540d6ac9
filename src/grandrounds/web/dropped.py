"""Files that are dropped on the page, as documents: plain notes, or one of the formats that may have gold.

They are read from memory and never touch a disk. The format is told from the name and the first characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePosixPath

from grandrounds.data.documents import Document
from grandrounds.data.formats import bioc_json, bioc_xml, brat, documents_json, pubannotation, pubtator
from grandrounds.data.formats.source import Warnings
from grandrounds.errors import DataError, foreign

Parse = Callable[[str, Path, Warnings], Iterable[Document]]
PUBTATOR = re.compile(r"\s*[^|\t\n]{1,40}\|t\|")
HALF = re.compile("[\ud800-\udfff]")
"""Half of a character: no tokenizer reads it."""
JSON: Sequence[Parse] = (
    lambda content, path, warnings: documents_json.parse(content, path),
    bioc_json.parse,
    pubannotation.parse,
)
TEXTS, MARKED, JSONS = (".txt", ".text", ".md", ""), (".pubtator", ".tsv"), (".json", ".jsonl")


def documents(files: Sequence[tuple[str, str]], most: int, warnings: Warnings) -> list[Document]:
    """Of files as name and content, at most so many documents; `DataError` where a file is none of ours."""
    contents = {_place(name): HALF.sub("\ufffd", content).removeprefix("\ufeff") for name, content in files}
    if len(contents) < len(files):
        raise DataError("two of these files have the same name; give them different ones")
    found = list(islice(_each(contents, warnings), most + 1))
    if len(found) > most:
        raise DataError(f"these files hold more than {most} documents; take fewer at a time")
    return found


def _each(contents: dict[Path, str], warnings: Warnings) -> Iterator[Document]:
    for path, content in contents.items():
        kind = path.suffix.lower()
        if kind == ".ann":
            if path.with_suffix(".txt") not in contents:
                raise DataError("BRAT's annotations need their text: drop the .txt of the same name too", path=path)
        elif kind == ".xml":
            yield from bioc_xml.parse(BytesIO(content.encode("utf-8", "replace")), path, warnings)
        elif kind in JSONS:
            yield from _json(content, path, warnings)
        elif PUBTATOR.match(content):
            yield from pubtator.parse(content, path, warnings)
        elif kind in (*TEXTS, *MARKED):
            annotations = contents.get(path.with_suffix(".ann"))
            if annotations is None:
                yield Document(path.name, content)
            else:
                yield brat.parse(content, annotations, path.stem, path.with_suffix(".ann"), warnings)
        else:
            raise DataError("is none of .txt, .ann, .json, .jsonl, .xml and PubTator's files; convert it", path=path)


def _json(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """In the format of ours that reads it; the first one's problem where none does."""
    problems: list[DataError] = []
    for parse in JSON:
        own: Warnings = Counter()
        try:
            found = list(parse(content, path, own))
        except DataError as problem:
            problems.append(problem)
            continue
        if found:
            warnings.update(own)
            yield from found
            return
    raise problems[0] if problems else DataError("holds no document", path=path)


def _place(name: str) -> Path:
    """The file's own name, as text: whatever leads to another folder is gone."""
    own = PurePosixPath(name.replace("\\", "/")).name
    return Path(re.sub(r"[^\w.+ -]", "_", foreign(own, 100)) or "note")
