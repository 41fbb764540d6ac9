"""Read and write documents in the formats of the field: `read("train.txt", "pubtator")`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path
from typing import get_type_hints

from grandrounds.data.documents import Document
from grandrounds.data.formats.source import Corpus, Format, Lenient, Warnings, placed
from grandrounds.errors import DataError, GrandRoundsError, unknown
from grandrounds.registry import FORMATS

__all__ = ["FORMATS", "Corpus", "Format", "count_repeated", "each", "nothing_found", "read", "reader_options", "write"]

AnyPath = str | PathLike[str]


def read(paths: AnyPath | Iterable[AnyPath], format: str, *, lenient: bool = False, **options: object) -> Corpus:
    """Read the documents of one or several files or folders, with a count of all that was skipped or joined.

    `format` is a name such as "pubtator" or "brat"; `grandrounds data check --help` lists them all. Options are the
    format's own. What breaks the format is a DataError with file and line, never with text; with `lenient` it is left
    out and counted instead.
    """
    warnings: Warnings = Lenient() if lenient else Counter()
    sources = [Path(paths)] if isinstance(paths, str | PathLike) else [Path(path) for path in paths]
    documents = list(each(format, sources, warnings, **options))
    if not documents:
        raise nothing_found(format, sources, warnings)
    count_repeated(documents, warnings)
    return Corpus(tuple(documents), dict(warnings))


def count_repeated(documents: Sequence[Document], warnings: Warnings) -> None:
    repeated = len(documents) - len({document.id for document in documents})
    if repeated:
        warnings["documents with the id of an earlier one"] += repeated


def each(format: str, sources: Iterable[Path], warnings: Warnings, /, **options: object) -> Iterator[Document]:
    """The same one at a time, for what need not hold them all; what is skipped is added to the warnings."""
    chosen = _format(format)
    _check_options(chosen.name, chosen.reader, options)
    found = _documents(chosen, sources, warnings, options)
    yield from chosen.join(list(found), warnings) if chosen.join else found


def _documents(
    format: Format, sources: Iterable[Path], warnings: Warnings, options: Mapping[str, object]
) -> Iterator[Document]:
    for source in sources:
        for path in _files(format, source, warnings):
            with placed(path, None, warnings):  # what the reader does not place itself ends its file
                yield from format.reader(path, warnings, **options)


def nothing_found(format: str, sources: Sequence[Path], warnings: Warnings) -> DataError:
    """The error that says what there was instead."""
    problem = f"no documents found; is it really in the format '{format}' ({_format(format).description})?"
    instead = "; ".join(f"{count} {what}" for what, count in sorted(warnings.items()))
    return DataError(problem + (f" There were: {instead}" if instead else ""), path=sources[0] if sources else None)


def write(format: str, documents: Iterable[Document], path: AnyPath, **options: object) -> Mapping[str, int]:
    """Store documents in a file or folder; what the format could not carry is counted and returned."""
    chosen = _format(format)
    if chosen.writer is None:
        writable = ", ".join(sorted(name for name, known in FORMATS.items() if known.writer))
        raise GrandRoundsError(f"format '{format}' can be read, not written; write one of {writable}")
    _check_options(chosen.name, chosen.writer, options)
    warnings: Warnings = Counter()
    chosen.writer(tuple(documents), Path(path), warnings, **options)
    return dict(warnings)


def _format(name: str) -> Format:
    return FORMATS.named(name)


def reader_options(format: str) -> list[str]:
    """The names of a format's options."""
    return _options(_format(format).reader)


def _options(function: Callable[..., object]) -> list[str]:
    return [name for name, p in signature(function).parameters.items() if p.kind is Parameter.KEYWORD_ONLY]


def _check_options(format: str, function: Callable[..., object], options: Mapping[str, object]) -> None:
    hints = get_type_hints(function)
    known = _options(function)
    for name, value in options.items():
        if name not in known:
            if not known:
                raise GrandRoundsError(f"format '{format}' takes no options; remove '{name}'")
            raise GrandRoundsError(f"format '{format}': {unknown('option', name, known)}")
        if not isinstance(value, hints[name]) or isinstance(value, bool):
            kind = getattr(hints[name], "__name__", str(hints[name]))
            raise GrandRoundsError(f"option '{name}' of format '{format}' must be of type {kind}")


def _files(format: Format, source: Path, warnings: Warnings) -> Iterator[Path]:
    """What to hand to the reader: a folder format takes the folder itself, a file format the files in it."""
    if not source.exists():
        raise DataError("no such file or folder; check the path", path=source)
    if format.source == "folder" or not source.is_dir():
        yield source
        return
    ends = tuple(suffix.lower() for suffix in format.suffixes)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name.lower().removesuffix(".gz").endswith(ends):
            yield path
        else:
            warnings[f"files or folders passed over, not ending in {' or '.join(format.suffixes)}"] += 1
