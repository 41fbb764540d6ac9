"""What a file holds costs time in proportion to its size, and a file is a file."""

from __future__ import annotations

import gzip
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from grandrounds.data.documents import Document, Span
from grandrounds.data.formats import ade, align, each, i2b2_2012, read
from grandrounds.data.formats.source import load, stream
from grandrounds.data.sentences import _fill, _outside, split_sentences
from grandrounds.errors import DataError
from tests.data.formats.large import EXCHANGE, many_documents, one_long_document, store


def seconds(do: Callable[[], object]) -> float:
    """CPU time: the machine may be busy."""
    began = time.process_time()
    with suppress(DataError):
        do()
    return time.process_time() - began


def grows(make: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times longer ten times as much takes: 10 where it is linear, 100 where it is quadratic."""
    small = min(seconds(make(size)) for _ in range(3))
    return min(seconds(make(10 * size)) for _ in range(2)) / max(small, 1e-4)


def hostile_row(size: int) -> Callable[[], object]:
    line = "1|a|b|" + "x" * size + "|1|"
    return lambda: list(ade.parse(line, Path("DRUG-AE.rel"), Counter()))


def hostile_attributes(size: int) -> Callable[[], object]:
    tags = "<EVENT " + 'a="' * size
    return lambda: i2b2_2012._mended(tags)


def hostile_word(size: int) -> Callable[[], object]:
    tags = "<EVENT " + "a" * size
    return lambda: i2b2_2012._mended(tags)


def many_mentions(size: int) -> Callable[[], object]:
    text = "It is so. " * size
    spans = [Span(10 * i, 10 * i + 5) for i in range(size)]
    return lambda: split_sentences(text, spans)


def long_mentions(size: int) -> Callable[[], object]:
    text = "It is so. " * size
    spans = [Span(i, len(text) - i) for i in range(size)]
    return lambda: split_sentences(text, spans)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (hostile_row, 2_000),
        (hostile_attributes, 4_000),
        (hostile_word, 20_000),
        (many_mentions, 1_000),
        (long_mentions, 1_000),
    ],
)
def test_time_is_in_proportion_to_size(make: Callable[[int], Callable[[], object]], size: int) -> None:
    assert grows(make, size) < 40


@pytest.mark.parametrize("format", EXCHANGE)
@pytest.mark.parametrize("documents", [many_documents, one_long_document])
def test_readers_of_exchange_formats_take_time_in_proportion(
    format: str, documents: Callable[[int], list[Document]], tmp_path: Path
) -> None:
    def make(size: int) -> Callable[[], object]:
        path = tmp_path / f"{size}"
        store(format, documents(size), path)
        return lambda: list(each(format, [path], Counter()))

    assert len(make(2)()) in (1, 2)  # type: ignore[arg-type]
    assert grows(make, 100) < 40


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt.gz"
    path.write_bytes(gzip.compress(b"0" * (100 << 20), 9))
    assert path.stat().st_size < 150_000
    for read_all in (load, lambda path: list(stream(path))):
        with pytest.raises(DataError, match="unpacks to more than 67,108,864 bytes"):
            read_all(path)
    path.write_bytes(gzip.compress(b"a note\nof two lines\n"))
    assert (load(path), list(stream(path))) == ("a note\nof two lines\n", ["a note", "of two lines"])


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    os.mkfifo(path)
    for read_all in (load, lambda path: list(stream(path)), lambda path: list(read([path], "text"))):
        with pytest.raises(DataError, match="not a regular file"), within(5):
            read_all(path)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A reader that waits for somebody to write fails, and does not hang."""

    def late(*given: object) -> None:
        raise AssertionError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


NAME = r"([^|]*[^|\s][^|]*)\|(\d{1,9})\|\d{1,9}"
ROW = re.compile(rf"(\d+)\|\s*(\S.*)\|{NAME}\|{NAME}\s*", re.ASCII | re.DOTALL)
ATTRIBUTE = re.compile(r'(\w+)="((?:(?!<\w+\s+id=).)*?)"(?=\s+\w+="|\s*/?>)', re.DOTALL)


def drawn(pieces: list[str], most: int, number: int = 3_000) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choices(pieces, k=draw.randint(0, most))) for _ in range(number)]


def test_rows_are_what_the_pattern_said() -> None:
    """The patterns that these replace are short, and the measure of what they should find."""
    rows = drawn(["|", "|", "1", "23", "a b", " ", "\t", "\u00a0", "x|1|2"], 16)
    parts = drawn(["|", "a", "b", "1", " "], 4, 4_000)
    rows += [f"12|{a}|{b}|1|2|{c}|3|4{d}" for a, b, c, d in (parts[i : i + 4] for i in range(0, 4_000, 4))]
    rows += [f"12|{a}|{b}|1|2|c|3|4 " for a, b in (parts[i : i + 2] for i in range(0, 4_000, 2))]
    found = [(m.groups() if (m := ROW.fullmatch(row)) else None) for row in rows]
    assert sum(one is not None for one in found) > 100
    assert [ade._fields(row) for row in rows] == found


def test_attributes_are_what_the_pattern_said() -> None:
    def escaped(attribute: Any) -> str:
        return f"{attribute[1]}={i2b2_2012.quoteattr(align.unescaped(attribute[2]))}"

    texts = drawn(['a="', '"', " ", "b", "<E id=", "/>", ">", "<", "&amp;", '="', "\n", "é"], 14)
    assert [i2b2_2012._mended(text) for text in texts] == [ATTRIBUTE.sub(escaped, text) for text in texts]
    assert sum(i2b2_2012._mended(text) != text for text in texts) > 100


def test_cuts_and_what_is_filled_are_what_they_were() -> None:
    draw = random.Random(2)
    for _ in range(500):
        cuts = sorted({draw.randint(0, 40) for _ in range(draw.randint(0, 12))})
        kept = [Span(start, start + draw.randint(0, 9)) for start in (draw.randint(0, 40) for _ in range(5))]
        assert _outside(cuts, kept) == [c for c in cuts if not any(start < c < end for start, end in kept)]
        text = "".join("x" if any(start <= i < end for start, end in kept) else "." for i in range(40))
        assert _fill("." * 40, kept) == text
