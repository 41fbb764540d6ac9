"""Plain text: a document a file, its characters as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from grandrounds.data.formats import read
from grandrounds.errors import GrandRoundsError


def test_a_file_is_a_document_with_sentences_and_nothing_else(tmp_path: Path) -> None:
    text = "He took aspirin.\r\nPain eased. \n\nNo fever"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "b.md").write_text("not this")
    corpus = read(tmp_path, "text")
    (document,) = corpus.documents
    assert (document.id, document.text, document.mentions) == ("a.txt", text, ())
    assert [document.surface(sentence) for sentence in document.sentences] == [
        "He took aspirin.",
        "Pain eased.",
        "No fever",
    ]
    assert sum(corpus.warnings.values()) == 1


def test_a_byte_order_mark_is_no_character_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("No fever.", encoding="utf-8-sig")
    (document,) = read(tmp_path, "text").documents
    assert (document.text, document.sentences) == ("No fever.", ((0, 9),))


def test_lines_may_end_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("fever no\npain yes")
    assert [len(read(tmp_path / "a.txt", "text", breaks=b).documents[0].sentences) for b in ("line", "none")] == [2, 1]
    with pytest.raises(GrandRoundsError, match="unknown breaks 'lines'; did you mean 'line'"):
        read(tmp_path / "a.txt", "text", breaks="lines")
