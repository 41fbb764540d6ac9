"""What all formats share: a file's bytes as text, what a reader gives back, and what a format is.

Error messages name files, lines, offsets and lengths, never text or document ids: messages reach logs,
and logs travel.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grandrounds.data.documents import Document
from grandrounds.errors import DataError

Notes = Counter[str]
"""What a reader or writer skipped, joined or made up: a phrase -> how many."""


@dataclass(frozen=True)
class Corpus:
    """Documents, and what reading them took."""

    documents: tuple[Document, ...]
    notes: Mapping[str, int]


@dataclass(frozen=True)
class Format:
    """A way to store documents.

    `reader(path, notes, **options)` yields them, `writer(documents, path, notes, **options)` stores them.
    """

    name: str
    description: str
    reader: Callable[..., Iterable[Document]]
    writer: Callable[..., None] | None = None
    source: Literal["file", "folder"] = "file"
    """What its documents live in; a folder of files can be read in either case."""
    suffixes: tuple[str, ...] = ()
    """Which files of a folder are taken, where the source is a file."""


def load(path: Path) -> str:
    """The text of a UTF-8 file, gzipped or not, with its line ends as they are."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:
        raise DataError("no such file; check the path", path=path) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError("not a whole gzip file; fetch it again", path=path) from None
    except OSError as error:
        raise DataError(f"can't be read ({error.strerror})", path=path) from None
    return decode(data, path)


def decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 at byte {error.start}; convert the file (iconv -f latin1 -t utf-8)"
        raise DataError(problem, path=path, line=line) from None


def save(text: str, path: Path) -> None:
    """Write a UTF-8 file, gzipped where the name ends in .gz; the same text always gives the same bytes."""
    try:
        data = text.encode("utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except UnicodeEncodeError:
        raise DataError("half of a surrogate pair in a text, which UTF-8 can't hold", path=path) from None
    except OSError as error:
        raise DataError(f"can't be written ({error.strerror})", path=path) from None


def lines(text: str) -> list[str]:
    """The lines of a line-based format: Unix or Windows ends, a byte order mark or none."""
    # Not splitlines(): it also splits at characters that occur inside abstracts, and shifts all after them.
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


def number(digits: str) -> int | None:
    """A count or an offset, or None; int() alone would take '-1', '1_0', '²' and millions of digits."""
    return int(digits) if re.fullmatch(r"[0-9]{1,9}", digits) else None


def first_difference(a: str, b: str) -> int:
    """Where two strings part; for messages that must not show them."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def mismatch(start: int, end: int, stated: str, there: str) -> DataError:
    """A mention whose text is not what its offsets point at, told without the text."""
    lengths = f"{len(stated)} characters expected, {len(there)} there"
    return DataError(
        f"mention {start}-{end} does not match the text there ({lengths}, "
        f"differing from character {start + first_difference(stated, there)} on); check the offsets"
    )
