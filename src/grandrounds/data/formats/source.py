"""What all formats share: a file's bytes as text, what a reader gives back, and what a format is.

Error messages name files, lines, offsets and lengths, never text or document ids: messages reach logs,
and logs travel.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from grandrounds.data.documents import Document
from grandrounds.errors import DataError

MOST_TIMES, SMALL = 100, 1 << 26
"""How many times its own size a gzip file may unpack to, unless that is little."""
Warnings = Counter[str]
"""What a reader or writer skipped, joined or made up: a phrase -> how many."""


_LEFT_OUT = "left out: "


class Lenient(Counter[str]):
    """Warnings of a reader that leaves out what it can't read and goes on: counted by kind, the first with places."""

    KEPT = 1_000

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Counter[str] = Counter()
        """What was left out."""
        self.problems: list[DataError] = []

    def leave_out(self, error: DataError) -> None:
        name = kind(error.problem)
        self.kinds[name] += 1
        self[_LEFT_OUT + name] += 1
        if len(self.problems) < self.KEPT:
            self.problems.append(error)

    @property
    def warnings(self) -> dict[str, int]:
        """All else that was counted."""
        return {what: count for what, count in self.items() if what.removeprefix(_LEFT_OUT) not in self.kinds}


@contextmanager
def placed(path: Path, line: int | None, warnings: Warnings) -> Iterator[None]:
    """What breaks the format in here gets its place and is raised; a lenient reader leaves it out and goes on."""
    try:
        yield
    except DataError as error:
        located = error if error.path else error.at(path, error.line if line is None else line)
        if not isinstance(warnings, Lenient):
            raise located from None
        warnings.leave_out(located)


def kind(problem: str) -> str:
    """What is wrong, without numbers, details in parentheses and the cure: the same for all problems of a kind."""
    return re.sub(r"\d+", "n", re.sub(r" ?\([^()]*\)", "", problem).partition("; ")[0])


def cure(problem: str) -> str:
    """What to do about it, as its sentence says."""
    return re.sub(r" ?\([^()]*\)", "", problem).partition("; ")[2]


@dataclass(frozen=True)
class Corpus:
    """Documents to iterate over, and what reading them took."""

    documents: tuple[Document, ...]
    warnings: Mapping[str, int]
    """What was skipped, joined or made up: a phrase -> how many."""

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True)
class Format:
    """A way to store documents.

    `reader(path, warnings, **options)` yields them, `writer(documents, path, warnings, **options)` stores them.
    """

    name: str
    description: str
    reader: Callable[..., Iterable[Document]]
    writer: Callable[..., None] | None = None
    source: Literal["file", "folder"] = "file"
    """What its documents live in; a folder of files can be read in either case."""
    suffixes: tuple[str, ...] = ()
    """Which files of a folder are taken, where the source is a file."""
    join: Callable[[Iterable[Document], Warnings], Iterable[Document]] | None = None
    """Makes one of the documents that several files give of the same text, where a format is so."""
    cures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Options that may read what a warning counts; `data check` tries them and says what they would change."""


def load(path: Path) -> str:
    """The text of a UTF-8 file, gzipped or not, with its line ends as they are."""
    with opened(path) as file:
        data = file.read()
    return decode(data, path)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of such a file, to be read piece by piece."""
    with _reported(path), _opened(path) as file:
        yield file


def stream(path: Path) -> Iterator[str]:
    """The lines of such a file as `lines` gives them, one at a time: hundreds of megabytes are never held at once."""
    with opened(path) as file:
        start = 0
        for i, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8(start + error.start, path, i) from None
            start += len(line)
            yield (text.removeprefix("\ufeff") if i == 1 else text).removesuffix("\n").removesuffix("\r")


def _opened(path: Path) -> BinaryIO:
    """Of a regular file: a pipe or a device would be waited for without end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError("not a regular file; name one", path=path)
    if path.suffix != ".gz":
        return path.open("rb")
    most = max(MOST_TIMES * path.stat().st_size, SMALL)
    return io.BufferedReader(_Bounded(gzip.open(path), most, path))


class _Bounded(io.RawIOBase):
    """What a gzip file holds, as far as a text can be packed: text shrinks to a tenth, not to a thousandth."""

    def __init__(self, file: gzip.GzipFile, most: int, path: Path) -> None:
        self._file, self._left, self._most, self._path = file, most, most, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        got = self._file.readinto(buffer)
        self._left -= got
        if self._left < 0:
            problem = f"unpacks to more than {self._most:,} bytes, which no text does; unpack it yourself"
            raise DataError(problem, path=self._path)
        return got

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """What may go wrong with a file, as errors for the reader."""
    try:
        yield
    except FileNotFoundError:
        raise DataError("no such file; check the path", path=path) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError("not a whole gzip file; fetch it again", path=path) from None
    except OSError as error:
        raise DataError(f"can't be read ({error.strerror})", path=path) from None


def decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error.start, path, data.count(b"\n", 0, error.start) + 1) from None


def not_utf8(byte: int, path: Path, line: int) -> DataError:
    problem = f"not UTF-8 at byte {byte}; convert the file (iconv -f latin1 -t utf-8)"
    return DataError(problem, path=path, line=line)


def save(text: str, path: Path) -> None:
    """Write a UTF-8 file, gzipped where the name ends in .gz; the same text always gives the same bytes."""
    try:
        save_bytes(text.encode("utf-8"), path)
    except UnicodeEncodeError:
        raise DataError("half of a surrogate pair in a text, which UTF-8 can't hold", path=path) from None


def save_bytes(data: bytes, path: Path) -> None:
    """Write a file's bytes, gzipped where the name ends in .gz."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
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
    """A mention whose text is not what its offsets point at, described without the text."""
    lengths = f"{len(stated)} characters expected, {len(there)} there"
    return DataError(
        f"mention {start}-{end} does not match the text there ({lengths}, "
        f"differing from character {start + first_difference(stated, there)} on); check the offsets"
    )
