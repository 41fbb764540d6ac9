"""A dictionary of concepts and their names on disk: one SQLite file with an index of trigrams.

    names     each name with its concept, in the file's order      keys      each normalised name once
    grams     trigram -> the keys that have it, as 32-bit numbers  weights   of each key, the sum over its trigrams

A file may come from anyone: only the tables that are made here are accepted, with no views, triggers or extensions.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from math import log
from pathlib import Path
from urllib.parse import quote

import numpy as np

from grandrounds.data.documents import NO_CONCEPT
from grandrounds.data.formats.source import Warnings, stream
from grandrounds.errors import DataError, GrandRoundsError
from grandrounds.pipeline.names import normalise, trigrams

APPLICATION, VERSION = 0x47524C4B, 1  # "GRLK", in SQLite's header
SCHEMA = (
    "CREATE TABLE about (what TEXT PRIMARY KEY, count INTEGER NOT NULL)",
    "CREATE TABLE names (id INTEGER PRIMARY KEY, concept TEXT NOT NULL, name TEXT NOT NULL, synonym INTEGER NOT NULL, "
    "key INTEGER)",
    "CREATE TABLE keys (id INTEGER PRIMARY KEY, key TEXT NOT NULL)",
    "CREATE TABLE grams (gram TEXT PRIMARY KEY, keys BLOB NOT NULL)",
    "CREATE TABLE weights (id INTEGER PRIMARY KEY, weights BLOB NOT NULL)",
    "CREATE INDEX names_by_name ON names (name)",
    "CREATE INDEX names_by_key ON names (key)",
    "CREATE INDEX keys_by_key ON keys (key)",
)
HEADER = "line skipped as the header of the dictionary"
COMMENTS = "comment lines of the dictionary, skipped"
TWICE = "names given twice for a concept, kept once"
NO_ID = "lines whose id says that there is no concept, skipped"
EMPTY = "empty synonyms, skipped"
SIGNS = "names without a letter or digit, linked by the exact string alone"
AMBIGUOUS = "names of several concepts; the one whose preferred name it is wins, then the one listed first"
_IDS = {"id", "concept", "concept_id", "conceptid", "cui", "code", "identifier"}
_BATCH = 10_000


def rarity(keys: int, having: int) -> float:
    """The weight of a trigram: its inverse document frequency, squared, as a cosine of TF-IDF vectors has it."""
    return (1 + log((1 + keys) / (1 + having))) ** 2


def read_names(tsv: Path, warnings: Warnings) -> Iterator[tuple[str, str, bool]]:
    """Concept, name and whether it is a synonym, line by line; what is passed over is counted."""
    first = True
    for number, line in enumerate(stream(tsv), start=1):
        if not line.strip():
            continue
        if line.startswith("#"):
            warnings[COMMENTS] += 1
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        header, first = first and cells[0].lower() in _IDS, False
        if header:
            warnings[HEADER] += 1
            continue
        if not 2 <= len(cells) <= 3:
            raise DataError(
                f"{len(cells)} tab-separated columns where id, name and, if there are any, synonyms joined by '|' "
                "should be",
                path=tsv,
                line=number,
            )
        if cells[0] in NO_CONCEPT[:2]:
            warnings[NO_ID] += 1
            continue
        if not cells[0] or not cells[1]:
            raise DataError("a line without an id or a name; add it, or remove the line", path=tsv, line=number)
        yield cells[0], cells[1], False
        for synonym in cells[2].split("|") if len(cells) == 3 and cells[2] else ():
            if synonym.strip():
                yield cells[0], synonym.strip(), True
            else:
                warnings[EMPTY] += 1


def write(tsv: Path, to: Path) -> None:
    """Compile a dictionary; the file is there whole or not at all."""
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    warnings = Counter[str]()
    if to.resolve() == tsv.resolve():
        raise GrandRoundsError(f"'{to}' would be replaced by what is compiled from it; give it another name")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(part, isolation_level=None)) as database:
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("PRAGMA journal_mode = OFF")  # a half-written file is thrown away
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN")
            for statement in SCHEMA[:5]:
                database.execute(statement)
            _fill(database, tsv, warnings)
            for statement in SCHEMA[5:]:
                database.execute(statement)
            several = "SELECT count(*) FROM (SELECT 1 FROM names GROUP BY name HAVING count(DISTINCT concept) > 1)"
            warnings[AMBIGUOUS] = database.execute(several).fetchone()[0]
            database.executemany("INSERT INTO about VALUES (?, ?)", (+warnings).items())
            database.execute("COMMIT")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(to)
    except sqlite3.Error as error:
        raise GrandRoundsError(f"the dictionary '{to.name}' could not be written: {error}") from error
    except OSError as error:
        raise GrandRoundsError(f"the dictionary '{to.name}' could not be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _fill(database: sqlite3.Connection, tsv: Path, warnings: Warnings) -> None:
    postings: dict[str, array[int]] = {}
    keys: dict[str, int] = {}
    concepts: set[str] = set()
    seen: set[int] = set()  # hashes: the names themselves would take several times the memory
    rows: list[tuple[str, str, bool, int | None]] = []
    new: list[tuple[int, str]] = []

    def flush() -> None:
        database.executemany("INSERT INTO names (concept, name, synonym, key) VALUES (?, ?, ?, ?)", rows)
        database.executemany("INSERT INTO keys VALUES (?, ?)", new)
        rows.clear()
        new.clear()

    for concept, name, synonym in read_names(tsv, warnings):
        if (hashed := hash((concept, name))) in seen:
            warnings[TWICE] += 1
            continue
        seen.add(hashed)
        concepts.add(concept)
        key = normalise(name)
        if not key:
            warnings[SIGNS] += 1
        elif key not in keys:
            number = keys[key] = len(keys)
            new.append((number, key))
            for gram in trigrams(key):
                postings.setdefault(gram, array("I")).append(number)
        rows.append((concept, name, synonym, keys.get(key)))
        if len(rows) == _BATCH:
            flush()
    flush()
    if not concepts:
        raise DataError("no names found; a line has an id, a name and synonyms joined by '|', tab-separated", path=tsv)
    weights = np.zeros(len(keys))
    for gram in sorted(postings):
        found = np.array(postings[gram], dtype="<u4")
        weights[found] += rarity(len(keys), len(found))
        database.execute("INSERT INTO grams VALUES (?, ?)", (gram, found.tobytes()))
    database.execute("INSERT INTO weights VALUES (0, ?)", (weights.astype("<f4").tobytes(),))
    counts = {"concepts": len(concepts), "names": len(seen), "keys": len(keys)}
    database.executemany("INSERT INTO about VALUES (?, ?)", counts.items())


def connect(path: Path) -> sqlite3.Connection:
    """Open a compiled dictionary to read; what is none, or has a part missing, is refused in a sentence."""
    cure = "compile one with: grandrounds link build NAMES.tsv --out FILE"
    try:
        with path.open("rb") as file:
            header = file.read(100)
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise GrandRoundsError(f"the dictionary '{path}' can't be read: {error.strerror}") from None
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise GrandRoundsError(f"'{path}' is no compiled dictionary; {cure}")
    version, application = struct.unpack(">60xI4xI", header[:72])
    if application != APPLICATION:
        raise GrandRoundsError(f"'{path}' is an SQLite file of something else, no compiled dictionary; {cure}")
    if version != VERSION:
        raise GrandRoundsError(
            f"the dictionary '{path}' has version {version}, and this program reads {VERSION}; {cure}"
        )
    pages, page = struct.unpack(">28xI", header[:32])[0], struct.unpack(">16xH", header[:18])[0]
    if pages * (65536 if page == 1 else page) != size:
        raise damaged(path)
    # immutable: no journal or lock file that lies beside it is looked at
    place = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    database = sqlite3.connect(
        place, uri=True, check_same_thread=False
    )  # a server opens it in one and reads in another
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        there = database.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        if {sql for (sql,) in there} != set(SCHEMA):
            raise GrandRoundsError(f"the dictionary '{path}' holds other tables than it should; {cure}")
    except (sqlite3.Error, UnicodeDecodeError):
        database.close()
        raise damaged(path) from None
    except GrandRoundsError:
        database.close()
        raise
    return database


def damaged(path: Path) -> GrandRoundsError:
    return GrandRoundsError(f"the dictionary '{path}' is damaged; copy it or compile it again")
