"""BERE's JSON (Hong et al., Nature Machine Intelligence 2020) for distant supervision: one list of sentences, each

    {"head": {"word", "id"}, "tail": {"word", "id"}, "sentence", "relation": a name or "NA", "pmid"}

The words are looked for in the sentence (`pair_sentence.find_pair`); all 12,445 sentences of the drug-target set's
valid and test parts have both. Other keys whose values are strings, such as pmid, are attributes of the document. The
options `head_type` and `tail_type` say what heads and tails are, by default drugs and targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grandrounds.data.documents import Document
from grandrounds.data.formats.json_values import numbered, record, string
from grandrounds.data.formats.pair_sentence import End, find_pair, pair_document
from grandrounds.data.formats.source import Format, Warnings, load, placed
from grandrounds.errors import DataError

_OWN = ("head", "tail", "sentence", "relation")


def read(path: Path, warnings: Warnings, *, head_type: str = "Drug", tail_type: str = "Target") -> Iterator[Document]:
    yield from parse(load(path), path, warnings, head_type, tail_type)


def parse(
    content: str, path: Path, warnings: Warnings, head_type: str = "Drug", tail_type: str = "Target"
) -> Iterator[Document]:
    """The documents of a file's content; `path` is for ids and messages."""
    with placed(path, None, warnings):
        found = numbered(content.removeprefix("\ufeff"), "the file is one list of sentences")
        for i, (line, value) in enumerate(found):
            with placed(path, line, warnings):
                types = (head_type, tail_type)
                if document := _document(f"{path.name}:{i + 1}", value, f"sentences[{i}]", types, warnings):
                    yield document


def _document(id: str, value: object, where: str, types: tuple[str, str], warnings: Warnings) -> Document | None:
    found = record(value, where, *_OWN)
    ids, words = zip(*(_end(found[end], f"{where}.{end}") for end in ("head", "tail")), strict=True)
    relation = string(found["relation"], f"{where}.relation")
    text = string(found["sentence"], f"{where}.sentence")
    places = find_pair(text, words[0], words[1], warnings)
    if places is None:
        return None
    attributes = {
        string(key, f"{where} key"): string(item, f"{where} value")
        for key, item in found.items()
        if key not in _OWN and isinstance(item, str)
    }
    ends = [End(span, type, name) for span, type, name in zip(places, types, ids, strict=True)]
    try:
        return pair_document(id, text, ends[0], ends[1], relation, attributes)
    except DataError as error:
        raise DataError(f"{where}: {error.problem}") from None


def _end(value: object, where: str) -> tuple[str, str]:
    found = record(value, where, "id", "word")
    id, word = string(found["id"], f"{where}.id"), string(found["word"], f"{where}.word")
    if not id.strip() or not word.strip():
        raise DataError(f"{where} has an empty id or word")
    return id, word


FORMAT = Format("bere", "BERE's JSON: a list of sentences with head, tail and relation", read, suffixes=(".json",))
