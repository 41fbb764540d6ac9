"""The documents of an experiment, by part: train, public, validation, test, unlabelled, or parts of a site's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grandrounds.config.schema import Data, Paths
from grandrounds.data.corpora import UNLABELLED, Source, check_apart, read_source
from grandrounds.data.documents import Document
from grandrounds.data.labels import LabelMap


class Corpora:
    """Documents of all parts end to end, and which of them belong to which part."""

    def __init__(self) -> None:
        self.warnings: Counter[str] = Counter()
        self.documents: Sequence[Document] = ()
        self.parts: dict[str, range] = {}
        self._kinds: dict[str, str] = {}

    def add(self, part: str, source: Source, kind: str | None = None) -> None:
        """Read a part; `kind` says what it is (train, test ...) where its name does not."""
        documents = read_source(source, kind or part, self.warnings)
        if part == UNLABELLED:
            check_apart(documents, self.documents)
        self._kinds[part] = kind or part
        self.parts[part] = range(len(self.documents), len(self.documents) + len(documents))
        self.documents = (*self.documents, *documents)

    def labelled(self) -> list[Document]:
        """What a label set is read from: all but what is tested on, also at a site, and unlabelled text."""
        parts = (members for part, members in self.parts.items() if self._kinds[part] not in ("test", UNLABELLED))
        return [self.documents[i] for members in parts for i in members]


def paths_of(given: Paths | None, base: Path) -> list[Path]:
    return [base / path for path in ([given] if isinstance(given, str) else given or [])]


def unlabelled_source(data: Data, base: Path, labels: LabelMap) -> Source | None:
    """The corpus of unlabelled text, if it is one by itself."""
    if not data.unlabelled_corpus:
        return None
    format = data.unlabelled_format or data.format
    options = {**(data.options if format == data.format else {}), **(data.unlabelled_options or {})}
    paths = paths_of(data.unlabelled if isinstance(data.unlabelled, str | list) else None, base)
    return Source(format, paths, options, data.lenient, labels)
