"""Which format a folder's files are in, and which of them are for training, validation and test.

Every reader is tried on a sample of each file. The one that finds most mentions and relations is it; where nothing is
marked, a format that says where its notes end comes before plain text.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, NoReturn

from grandrounds.data.formats import FORMATS, each, read
from grandrounds.errors import DataError, GrandRoundsError

SAMPLE = 1 << 20
"""Bytes of a file that are tried."""
FILES, DOCUMENTS = 60, 500
"""How many files of a folder, and documents of a file."""
LISTED = 10
"""With more files that are all alike, a corpus is its folder."""
PLAIN = ("json", "notes-json", "mimic-notes", "text")
"""Formats of text in which nothing is marked, those that say more first; `lines` can't be told from text."""
PARTS = {"train": ("train",), "validation": ("dev", "valid"), "test": ("test",)}
"""What the name of a file has in it."""


@dataclass(frozen=True)
class Detected:
    """What a folder holds."""

    format: str
    parts: Mapping[str, Sequence[Path]]
    """train, and validation and test where names tell."""
    passed_over: Sequence[Path]
    """Files and folders that are not in the format, or belong to another corpus."""


def detect(folder: Path, format: str | None = None) -> Detected:
    """The corpus in this folder, in any format or in this one."""
    if not folder.is_dir():
        raise DataError("no such folder; check the path", path=folder)
    here = _detect_here(folder, format)
    below = {
        path: found for path in sorted(folder.iterdir()) if path.is_dir() and (found := _detect_here(path, format))
    }
    if here is not None and here.format != "text":
        if FORMATS[here.format].source == "file":
            return here
        # Of a format that takes whole folders, folders below may be its parts; plain ones belong to it.
        below = {path: found for path, found in below.items() if found.format not in PLAIN}
        alike = all(found.format == here.format for found in below.values())
        if alike and not any(part_of(path.name) for path in below):
            return here
    return _from_below(folder, below) if below else here or _nothing(folder, format)


def _from_below(folder: Path, below: Mapping[Path, Detected]) -> Detected:
    formats = sorted({found.format for found in below.values()})
    if len(formats) > 1:
        names = ", ".join(f"{path.name} ({found.format})" for path, found in below.items())
        raise DataError(f"several corpora in different formats: {names}; name the folder of one", path=folder)
    named = {path: part for path in below if (part := part_of(path.name))}
    if not named:  # folds of one corpus, or corpora side by side
        first = min(below)
        return Detected(formats[0], below[first].parts, [*below[first].passed_over, *sorted(set(below) - {first})])
    held = {path: [file for files in below[path].parts.values() for file in files] for path in named}
    sources = {part: [file for path in named if named[path] == part for file in held[path]] for part in PARTS}
    return Detected(formats[0], _shared_out(sources, []), sorted(set(below) - set(named)))


def _nothing(folder: Path, format: str | None) -> NoReturn:
    if format is not None:
        read(folder, format)  # it says what is wrong
    known = ", ".join(FORMATS)
    raise DataError(f"no file here is a corpus in a known format ({known}); name one with --format", path=folder)


def part_of(name: str) -> str | None:
    """train, validation or test, if a file's or folder's name says so."""
    lower = name.lower()
    return next((part for part, words in PARTS.items() if any(word in lower for word in words)), None)


def _detect_here(folder: Path, format: str | None) -> Detected | None:
    with TemporaryDirectory() as temporary:
        sample = Path(temporary)
        files = list(_sample(folder, sample))
        found = {
            name: _read(name, sample, files) for name in FORMATS if format in (None, name) and FORMATS.at_hand(name)
        }
    chosen = _choose({name: read for name, read in found.items() if read}, folder)
    if chosen is None:
        return None
    if FORMATS[chosen].source == "folder":
        return Detected(chosen, {"train": [folder]}, [])
    beyond = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name not in files)
    held = [*found[chosen], *_fitting(chosen, beyond)]  # of many files, those like the first
    parts = {part: [folder / file for file in held if part_of(file) == part] for part in PARTS}
    others = [folder / file for file in held if part_of(file) is None]
    left = [folder / file for file in (*files, *beyond) if file not in held]
    if len(others) > LISTED and not any(parts.values()) and not _fitting(chosen, [path.name for path in left]):
        others = [folder]
    return Detected(chosen, _shared_out(parts, others), left)


def _shared_out(parts: Mapping[str, Sequence[Path]], others: Sequence[Path]) -> dict[str, list[Path]]:
    """Something is always for training."""
    held = {part: list(files) for part, files in parts.items()}
    if not held["train"]:
        held["train"] = list(others) or held["validation"] or held["test"]
        held = {part: files for part, files in held.items() if part == "train" or files is not held["train"]}
    return {part: files for part, files in held.items() if files}


class _Sampled(NamedTuple):
    """What a reader finds in a sample."""

    marked: int
    """Mentions and relations."""
    documents: int


def _choose(found: Mapping[str, Mapping[str, _Sampled]], folder: Path) -> str | None:
    """The format by which most is marked; DataError where two find as much. A single text is no corpus."""
    marked = {name: sum(read.marked for read in files.values()) for name, files in found.items()}
    marked = {name: count for name, count in marked.items() if count}
    if marked:
        best = [name for name, count in marked.items() if count == max(marked.values())]
        if len(best) > 1:
            raise DataError(f"this may be {' or '.join(best)}; say which with --format", path=folder)
        return best[0]
    many = [name for name, files in found.items() if sum(read.documents for read in files.values()) > 1]
    return next((name for name in PLAIN if name in many), None)


def _read(format: str, sample: Path, files: Sequence[str]) -> dict[str, _Sampled]:
    """For each file that the format reads, what it finds."""
    if FORMATS[format].source == "folder":
        return {".": whole} if (whole := _sampled(format, sample)) else {}
    found = {file: _sampled(format, sample / file) for file in _fitting(format, files)}
    return {file: read for file, read in found.items() if read is not None}


def _fitting(format: str, files: Sequence[str]) -> list[str]:
    """Those whose names end as the format's do."""
    suffixes = tuple(suffix.lower() for suffix in FORMATS[format].suffixes)
    return [file for file in files if file.removesuffix(".gz").lower().endswith(suffixes)]


def _sampled(format: str, path: Path) -> _Sampled | None:
    try:
        documents = list(islice(each(format, [path], Counter()), DOCUMENTS))
    except GrandRoundsError:
        return None
    marked = sum(len(document.mentions) + len(document.relations) for document in documents)
    return _Sampled(marked, len(documents)) if documents else None


def _sample(folder: Path, to: Path) -> Iterator[str]:
    """Copies of the first files, cut to a sample where they are large; the names of those at the top."""
    inside = sorted(path for path in folder.rglob("*") if path.is_file() and len(path.relative_to(folder).parts) < 4)
    kept = [path for path in inside if path.parent == folder][:FILES]
    for path in [*kept, *[path for path in inside if path.parent != folder][:FILES]]:
        copy = to / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.stat().st_size <= SAMPLE and path.suffix != ".gz":
            shutil.copyfile(path, copy)
        else:
            _cut(path, copy)
        if path.parent == folder:
            yield path.name


def _cut(path: Path, to: Path) -> None:
    zipped = path.suffix == ".gz"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            text = file.read(SAMPLE).decode("utf-8", errors="ignore")
            more = bool(file.read(1))
    except (OSError, EOFError):
        return
    if more and text.lstrip().startswith("["):
        text = _first_of_list(text)
    elif more:
        text = text[: max(text.rfind("\n\n"), 0) or text.rfind("\n")] + "\n"
    to.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())


def _first_of_list(text: str) -> str:
    """The whole values at the start of a JSON list, as a list."""
    decoder, place, values = json.JSONDecoder(), text.index("[") + 1, []
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place + len(text[place:]) - len(text[place:].lstrip(" \n\r\t,")))
        except (ValueError, RecursionError):
            break
        values.append(value)
    return json.dumps(values)
