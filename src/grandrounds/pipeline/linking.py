"""Links from mentions to the concepts of a dictionary of the user's own: exact, normalised, then by trigrams.

How alike two normalised names are is the cosine of their TF-IDF vectors over trigrams, each counted once: with w(g) a
trigram's squared inverse document frequency and W the sum over a set,

    cosine(a, b) = W(a and b) / sqrt(W(a) W(b))

Of a name's trigrams R that have not been looked up yet, a key with no other in common scores at most sqrt(W(R) / W(a)).
So the rarest are looked up until that is below the threshold, and the common ones, with their long lists, never.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from grandrounds.data.documents import NO_CONCEPT, Document, Mention
from grandrounds.errors import ConfigError
from grandrounds.pipeline import dictionary_file
from grandrounds.pipeline.abbreviations import LongForms
from grandrounds.pipeline.names import contradict, normalise, trigrams

THRESHOLD = 0.8
"""Chosen on the development part of BioCreative V CDR; docs/explanation/linking.md has the figures."""
LONGEST = 1000
"""Characters up to which a name is looked for by trigrams."""
READ, COMPARED = 1_000_000, 100
"""How many entries of the index are read, and how many names compared, for one name at most."""
_ROUNDING = 1e-6  # weights are stored with 32 bits


@dataclass(frozen=True)
class Link:
    """A concept of the dictionary, by which of its names, and how it was found."""

    concept: str
    name: str
    score: float
    how: Literal["exact", "normalised", "similar"]
    concepts: int = 1
    """How many concepts have this name; the one whose preferred name it is was taken, or the one listed first."""


class Dictionary:
    """A compiled dictionary, open for reading in one thread."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path, self._database = path, database
        with self._intact():
            about = dict(database.execute("SELECT what, count FROM about"))
            self.counts: Mapping[str, int] = {what: about.pop(what) for what in ("concepts", "names", "keys")}
            self.warnings = Counter[str](about)
            """What was skipped when it was compiled, and how many names are of several concepts."""
            (weights,) = database.execute("SELECT weights FROM weights").fetchone()
            self._weights: NDArray[np.float32] = np.frombuffer(weights, dtype="<f4")

    @classmethod
    def build(cls, tsv: Path, to: Path) -> Dictionary:
        """Compile a file of id, name and synonyms joined by '|', tab-separated, and open the result."""
        dictionary_file.write(tsv, to)
        return cls.open(to)

    @classmethod
    def open(cls, path: Path) -> Dictionary:
        return cls(path, dictionary_file.connect(path))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def link(self, names: Sequence[str], threshold: float = THRESHOLD) -> list[Link | None]:
        """The concept of each name, or None where nothing is as alike as the threshold (0 to 1) says."""
        if not 0 < threshold <= 1:
            raise ConfigError(f"the threshold of links is {threshold}; it must be above 0 and at most 1")
        found: dict[str, Link | None] = {}
        with self._intact():
            for name in names:
                if name not in found:
                    found[name] = self._link(name.encode("utf-8", "replace").decode(), threshold)
        return [found[name] for name in names]

    def _link(self, name: str, threshold: float) -> Link | None:
        if rows := self._rows("name = ?", name):
            return _first(rows, 1.0, "exact")
        if not (key := normalise(name)):
            return None
        number = self._database.execute("SELECT id FROM keys WHERE key = ?", (key,)).fetchone()
        if number:
            return _first(self._rows("key = ?", number[0]), 1.0, "normalised")
        if len(key) > LONGEST or threshold == 1:
            return None
        best = self._most_similar(key, threshold)
        return best and _first(self._rows("key = ?", best[1]), best[0], "similar")

    def _rows(self, where: str, value: str | int) -> list[tuple[str, str]]:
        query = f"SELECT concept, name FROM names WHERE {where} ORDER BY synonym, id"
        return self._database.execute(query, (value,)).fetchall()

    def _most_similar(self, key: str, threshold: float) -> tuple[float, int] | None:
        """The highest cosine, and the key that has it; of several the one listed first."""
        having = {gram: self._having(gram) for gram in trigrams(key)}
        weight = {gram: dictionary_file.rarity(len(self._weights), having[gram]) for gram in sorted(having)}
        total = sum(weight.values())
        known = [gram for gram in weight if having[gram]]
        left, read, partial = sum(weight[gram] for gram in known), 0, list[tuple[NDArray[np.uint32], float]]()
        for gram in sorted(known, key=lambda gram: (having[gram], gram)):
            if left < threshold**2 * total or (read and read + having[gram] > READ):
                break
            partial.append((self._having_keys(gram), weight[gram]))
            read += having[gram]
            left -= weight[gram]
        if not partial:
            return None
        ids, where = np.unique(np.concatenate([found for found, _ in partial]), return_inverse=True)
        shared = np.bincount(where, np.concatenate([np.full(len(found), w) for found, w in partial]))
        weights = self._weights[ids]
        with np.errstate(all="ignore"):  # weights of a damaged file may be anything
            most = (shared + np.minimum(left, np.maximum(weights - shared, 0))) / np.sqrt(total * weights)
        enough = np.flatnonzero(most >= threshold - _ROUNDING)
        best: tuple[float, int] | None = None
        for i in enough[np.lexsort((ids[enough], -most[enough]))][:COMPARED]:
            if best and most[i] < best[0] - _ROUNDING:
                break
            number = int(ids[i])
            (other,) = self._database.execute("SELECT key FROM keys WHERE id = ?", (number,)).fetchone()
            if contradict(key, other):
                continue
            common = sum(weight[gram] for gram in sorted(trigrams(other) & weight.keys()))
            score = min(1.0, common / sqrt(total * float(weights[i])))
            if score >= threshold and (best is None or (score, -number) > (best[0], -best[1])):
                best = score, number
        return best

    def _having(self, gram: str) -> int:
        """In how many keys a trigram is; SQLite knows a blob's length without reading it."""
        row = self._database.execute("SELECT length(keys) FROM grams WHERE gram = ?", (gram,)).fetchone()
        return row[0] // 4 if row else 0

    def _having_keys(self, gram: str) -> NDArray[np.uint32]:
        (found,) = self._database.execute("SELECT keys FROM grams WHERE gram = ?", (gram,)).fetchone()
        return np.frombuffer(found, dtype="<u4")

    @contextmanager
    def _intact(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, sqlite3.ProgrammingError):  # closed, or another thread's: a mistake in the program
                raise
            raise dictionary_file.damaged(self.path) from error


def _first(rows: Sequence[tuple[str, str]], score: float, how: Literal["exact", "normalised", "similar"]) -> Link:
    concept, name = rows[0]
    return Link(concept, name, score, how, len({concept for concept, _ in rows}))


def link_mentions(document: Document, dictionary: Dictionary, threshold: float = THRESHOLD) -> Document:
    """The document with a concept for each mention that has none and is in the dictionary.

    An abbreviation that the document defines is linked by its long form, unless the dictionary has the very
    abbreviation. Attributes say how ("link": exact, normalised or similar), how well ("link_score") and, where there
    was a choice, among how many concepts that have the name ("link_concepts").
    """
    mentions = list(document.mentions)
    open_ones = [i for i, mention in enumerate(mentions) if mention.concept is None or mention.concept in NO_CONCEPT]
    if not open_ones:
        return document
    names = [surface(document, mentions[i]) for i in open_ones]
    long_forms = LongForms(document.text)
    spans = [long_forms.of(name, mentions[i].start) for i, name in zip(open_ones, names, strict=True)]
    longer = [document.surface(span) if span else name for span, name in zip(spans, names, strict=True)]
    links = dictionary.link([*names, *longer], threshold)
    for i, own, by_long in zip(open_ones, links, links[len(open_ones) :], strict=False):
        link = own if own and own.how == "exact" else by_long or own
        if link:
            attributes = {**mentions[i].attributes, "link": link.how, "link_score": f"{link.score:.4f}"}
            if link.concepts > 1:
                attributes["link_concepts"] = str(link.concepts)
            mentions[i] = replace(mentions[i], concept=link.concept, attributes=attributes)
    return replace(document, mentions=tuple(mentions))


def surface(document: Document, mention: Mention) -> str:
    """The text of a mention; that of a discontinuous one without what lies between its pieces."""
    return " ".join(document.surface(piece) for piece in mention.fragments or (mention,))
