"""SMM4H's tweets (2019 task 2, 2020 task 3 and their like): a row a mention, the columns as the header names them.

    tweet_id  begin  end  type  extraction  drug  tweet  meddra_code  meddra_term

A tweet is a document of one sentence, with the mentions of all its rows; a row without begin and extraction ("-" or
nothing) is a tweet without any. Columns are parted by tabs, quotes being signs like any other, or in a CSV by commas.
Offsets are known to be off where a tweet was stored with &amp; and the like, so a mention that does not fit is looked
for in its tweet.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.data.formats import align
from grandrounds.data.formats.source import Format, Warnings, lines, load, placed
from grandrounds.errors import DataError

COLUMNS = {
    "tweet_id": ("tweet_id", "id"),
    "begin": ("begin", "start"),
    "end": ("end",),
    "extraction": ("extraction", "span"),
    "tweet": ("tweet", "text"),
    "type": ("type", "label"),
    "drug": ("drug",),
    "code": ("meddra_code", "meddra_id"),
    "term": ("meddra_term",),
}
"""What a column is, and what headers call it."""
NEEDED = ("tweet_id", "begin", "end", "extraction", "tweet")
TYPE = "Entity"
"""The type of mentions where no column tells one."""
TWICE = "mentions given twice, kept once"
_NOTHING = frozenset({"", "-", "_", "nan", "none", "null"})


@dataclass
class _Tweet:
    text: str
    line: int
    drugs: dict[str, None] = field(default_factory=dict)
    mentions: dict[tuple[Span, str], dict[str, str]] = field(default_factory=dict)
    """The codes of each, and their terms."""


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(load(path), path, warnings)


def parse(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    tweets: dict[str, _Tweet] = {}
    for i, row in _rows(content, path, warnings):
        with placed(path, i, warnings):
            _take(row, tweets, i, warnings)
    for id, tweet in tweets.items():
        yield _document(id, tweet)


def _rows(content: str, path: Path, warnings: Warnings) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Line and fields of each row, by what they are."""
    given = lines(content)
    header = next(((i, line) for i, line in enumerate(given) if line.strip()), None)
    if header is None:
        return
    tabs = "\t" in header[1]
    rows = (
        ((i, line.split("\t")) for i, line in enumerate(given[header[0] :], header[0] + 1))
        if tabs
        else _comma_separated(given[header[0] :], header[0], path)
    )
    _, names = next(rows)
    where = _columns([name.strip().lower() for name in names], path, header[0] + 1)
    others = len(names) - len(where)
    if others:
        warnings["columns of no use here, left out"] += others
    for i, columns in rows:
        if any(column.strip() for column in columns):
            if len(columns) != len(names):
                problem = (
                    f"{len(columns)} columns where the header has {len(names)}; no tab or line end may be in a tweet"
                )
                raise DataError(problem, path=path, line=i)
            fields = {what: columns[at].strip() for what, at in where.items()}
            yield i, {**fields, "tweet": columns[where["tweet"]]}


def _comma_separated(given: Sequence[str], above: int, path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in given), strict=True)
    first = above + 1
    try:
        for columns in reader:
            yield first, columns
            first = above + reader.line_num + 1
    except csv.Error:
        raise DataError("a row with a quote that does not end, or not before a comma", path=path, line=first) from None


def _columns(names: Sequence[str], path: Path, line: int) -> dict[str, int]:
    found = {}
    for what, known in COLUMNS.items():
        at = [names.index(name) for name in known if name in names]
        if at:
            found[what] = at[0]
        elif what in NEEDED:
            raise DataError(
                f"a header without the column '{known[0]}'; the first line must name them", path=path, line=line
            )
    return found


def _take(row: Mapping[str, str], tweets: dict[str, _Tweet], line: int, warnings: Warnings) -> None:
    if not row["tweet_id"] or not row["tweet"].strip():
        raise DataError("a row without a tweet's id or text; fill them in or remove the row")
    tweet = tweets.setdefault(row["tweet_id"], _Tweet(row["tweet"], line))
    if tweet.text != row["tweet"]:
        raise DataError(f"a tweet whose text is not that of line {tweet.line}, which has the same id; give it another")
    if not _nothing(row.get("drug", "")):
        tweet.drugs[row["drug"]] = None
    if _nothing(row["begin"]) and _nothing(row["extraction"]):
        return
    offsets = [re.fullmatch(r"([0-9]{1,9})(?:\.0)?", row[what]) for what in ("begin", "end")]
    if not offsets[0] or not offsets[1] or not row["extraction"]:
        raise DataError("begin and end must be numbers, with the extraction; or all of them '-', for none")
    span = align.place(
        tweet.text, int(offsets[0][1]), int(offsets[1][1]), row["extraction"], warnings, near=len(tweet.text)
    )
    if span is None:
        return
    type = row.get("type", "") or TYPE
    if (span, type) in tweet.mentions:
        warnings[TWICE] += 1
    codes = tweet.mentions.setdefault((span, type), {})
    if not _nothing(row.get("code", "")):
        codes.setdefault(row["code"], row.get("term", ""))


def _nothing(value: str) -> bool:
    return value.lower() in _NOTHING


def _document(id: str, tweet: _Tweet) -> Document:
    mentions = []
    for i, ((span, type), codes) in enumerate(tweet.mentions.items(), start=1):
        names = "|".join(codes.values())
        attributes = {"concept_name": names} if names.strip("|") else {}
        mentions.append(Mention(*span, type, f"T{i}", "|".join(codes) or None, attributes=attributes))
    return Document(
        id,
        tweet.text,
        (Span(0, len(tweet.text)),),
        tuple(mentions),
        tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions)),
        attributes={"drug": "|".join(tweet.drugs)} if tweet.drugs else {},
    )


FORMAT = Format("smm4h", "SMM4H: a header, then a mention and its tweet a row", read, suffixes=(".tsv", ".csv", ".txt"))
