"""The text of NRE (Lin et al., ACL 2016) for distant supervision, of NYT10 and GIDS: six tab-separated columns a line,

    m.0h3	m.01z	Henry_Emlyn	Windsor	/people/person/place_of_death	Henry_Emlyn died at Windsor ###END###

head id, tail id, head name, tail name, relation or NA, and the sentence. The names stand in the sentence as they do in
their columns, their words joined by underscores, which stay; where, is looked for (`pair_sentence.find_pair`). All of
GIDS's 1,864 sentences have both names. The option `head_type` or `tail_type` says what heads or tails are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from grandrounds.data.documents import Document
from grandrounds.data.formats.pair_sentence import TYPE, End, find_pair, pair_document
from grandrounds.data.formats.source import Format, Warnings, placed, stream
from grandrounds.errors import DataError

END = "###END###"
_COLUMNS = "head id, tail id, head name, tail name, relation, sentence"


def read(path: Path, warnings: Warnings, *, head_type: str = TYPE, tail_type: str = TYPE) -> Iterator[Document]:
    yield from parse(stream(path), path, warnings, head_type, tail_type)


def parse(
    lines: Iterable[str], path: Path, warnings: Warnings, head_type: str = TYPE, tail_type: str = TYPE
) -> Iterator[Document]:
    """The documents of a file's lines; `path` is for ids and messages."""
    for i, line in enumerate(lines, start=1):
        if line.strip():
            with placed(path, i, warnings):
                if found := _document(f"{path.name}:{i}", line, (head_type, tail_type), warnings):
                    yield found


def _document(id: str, line: str, types: tuple[str, str], warnings: Warnings) -> Document | None:
    columns = line.strip().split("\t")
    # Some publications part the sentence from its end by a tab as well.
    if columns[-1].strip() == END:
        columns[-2:] = ["".join(columns[-2:])]
    if len(columns) != 6 or not all(column.strip() for column in columns):
        raise DataError(f"{len(columns)} tab-separated columns, or an empty one; a line has 6: {_COLUMNS}")
    head, tail, head_name, tail_name, relation, sentence = (column.strip() for column in columns)
    if not sentence.endswith(END):
        raise DataError(f"a sentence that does not end in {END}; is the line whole?")
    text = sentence.removesuffix(END).strip()
    places = find_pair(text, head_name, tail_name, warnings)
    if places is None:
        return None
    return pair_document(id, text, End(places[0], types[0], head), End(places[1], types[1], tail), relation)


FORMAT = Format(
    "nre",
    "NRE's text (NYT10, GIDS): ids, names, relation and a sentence with ###END###",
    read,
    suffixes=(".tsv", ".txt"),
)
