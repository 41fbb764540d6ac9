"""ChemProt as SciBERT has it (Beltagy et al., EMNLP 2019): JSON lines, a sentence with two marked mentions a line:

    {"text": "<< irbesartan >> blocks the [[ Ang II receptor ]]", "label": "INHIBITOR", "metadata": []}

The marks are not part of the text. `<< >>` marks the head and `[[ ]]` the tail; which of them is the chemical the file
does not say, so both are of the type `entity`. A sentence has as many lines as related pairs; the attribute `patient`,
by which shares of a corpus are drawn, is the same for all of them, so that no share has one of another's sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from grandrounds.data.documents import Document, Span
from grandrounds.data.formats.json_values import load as load_json
from grandrounds.data.formats.json_values import record, string
from grandrounds.data.formats.pair_sentence import OVERLAP, TYPE, End, overlap, pair_document
from grandrounds.data.formats.source import Format, Warnings, placed, stream
from grandrounds.errors import DataError

PASSED_OVER = "values of other keys than text and label, passed over"
_MARKS = (("<< ", " >>"), ("[[ ", " ]]"))


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(stream(path), path, warnings)


def parse(lines: Iterable[str], path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's lines; `path` is for ids and messages."""
    sentences: dict[str, str] = {}
    for i, line in enumerate(lines, start=1):
        if line.strip():
            with placed(path, i, warnings):
                row = record(load_json(line, "each line is one sentence"), "sentence", "text", "label")
                text, head, tail = unmarked(string(row["text"], "text"))
                if overlap(head, tail):
                    warnings[OVERLAP] += 1
                if any(row[key] for key in row.keys() - {"text", "label"}):
                    warnings[PASSED_OVER] += 1
                same = sentences.setdefault(text, f"{path.name} sentence {len(sentences) + 1}")
                ends = [End(span, TYPE, None) for span in (head, tail)]
                label = string(row["label"], "label")
                yield pair_document(f"{path.name}:{i}", text, ends[0], ends[1], label, {"patient": same})


def unmarked(marked: str) -> tuple[str, Span, Span]:
    """The text without the marks, and where head and tail are in it."""
    cuts: list[tuple[int, str]] = []
    for before, after in _MARKS:
        start = marked.find(before)
        end = marked.find(after, start + len(before))
        if start < 0 or end < 0 or marked.find(before, start + 1) >= 0:
            raise DataError(f"not one mention between '{before}' and '{after}'; a sentence has one of each")
        cuts += [(start, before), (end, after)]
    text, removed, at = "", {}, 0
    for where, sign in sorted(cuts):
        if where < at:
            raise DataError("marks that run into each other; there is text in and between mentions")
        text += marked[at:where]
        removed[where] = len(text)
        at = where + len(sign)
    places = [removed[where] for where, _ in cuts]
    return text + marked[at:], Span(*places[:2]), Span(*places[2:])


FORMAT = Format(
    "chemprot", "ChemProt as SciBERT's JSON lines: << >> and [[ ]] in the text", read, suffixes=(".txt", ".jsonl")
)
