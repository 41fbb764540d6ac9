"""PubAnnotation: documents come back whole, and what is wrong is named."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import exchange, pubannotation, read, write
from grandrounds.errors import DataError
from tests.data.formats.exchanged import documents

ONE = {
    "sourcedb": "PubMed",
    "sourceid": 12,
    "project": "x",
    "text": "IRF-4 binds p53.",
    "denotations": [
        {"id": "T1", "span": {"begin": 0, "end": 5}, "obj": "Protein"},
        {"id": "T2", "span": [{"begin": 12, "end": 13}, {"begin": 14, "end": 15}], "obj": "Protein"},
    ],
    "relations": [
        {"id": "R1", "subj": "T1", "pred": "binds", "obj": "T2"},
        {"subj": "T1", "pred": "binds", "obj": "T9"},
    ],
    "attributes": [
        {"id": "A1", "subj": "T1", "pred": "concept", "obj": "P1"},
        {"id": "A2", "subj": "T1", "pred": "concept", "obj": "P2"},
        {"id": "A3", "subj": "T2", "pred": "negated", "obj": True},
        {"id": "A4", "subj": "T2", "pred": "negated", "obj": "true"},
        {"id": "A5", "subj": "R1", "pred": "sure", "obj": "very"},
        {"id": "A6", "subj": "T7", "pred": "sure", "obj": "very"},
    ],
}


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_documents_come_back_whole(name: str, tmp_path: Path):
    path = tmp_path / name
    assert write("pubannotation", documents(), path) == {}
    again = read(path, "pubannotation")
    assert again.warnings == {}
    assert again.documents == documents()


def test_one_document_of_another_tool(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ONE))
    corpus = read(path, "pubannotation")
    assert corpus.documents == (
        Document(
            "12",
            "IRF-4 binds p53.",
            (Span(0, 16),),
            (
                Mention(0, 5, "Protein", "T1", "P1|P2"),
                Mention(12, 15, "Protein", "T2", None, (Span(12, 13), Span(14, 15)), {"negated": "true"}),
            ),
            (Entity("P1", "Protein", (0,)), Entity("P2", "Protein", (0,)), Entity("T2", "Protein", (1,))),
            (Relation("binds", "P1", "T2", (0, 1), {"sure": "very"}),),
            {"sourcedb": "PubMed"},
        ),
    )
    assert corpus.warnings == {
        exchange.UNPLACED: 1,
        pubannotation.PASSED_OVER: 1,
        pubannotation.TWICE: 1,
        pubannotation.NO_SUBJECT: 1,
    }
    write("pubannotation", corpus.documents, path)
    assert read(path, "pubannotation").documents == corpus.documents


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"begin": 0, "end": 5', '"begin": 5, "end": 5', r"documents\[1\]\.denotations\[0\]: mention 5-5 is empty"),
        ('"begin": 0, "end": 5', '"begin": 0, "end": 500', "mention 0-500 is empty, inverted or outside"),
        ('"begin": 0, "end": 5', '"begin": 0', "lacks 'end'"),
        ('"id": "T2"', '"id": "T1"', "two have the same id"),
        ('"obj": "Protein"', '"obj": ["Protein"]', "obj must be a string"),
        ('"text"', '"texts"', r"documents\[1\] lacks 'text'"),
        ("}]}", "}]", "not JSON at column"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_not_shown(old: str, new: str, message: str, tmp_path: Path):
    path = tmp_path / "a.json"
    written = json.dumps(ONE)
    assert old in written
    path.write_text(f"[{written},\n{written.replace(old, new, 1)}]")
    with pytest.raises(DataError, match=message) as caught:
        read(path, "pubannotation")
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "IRF" not in str(caught.value)


def test_time_grows_with_the_file_and_no_faster(tmp_path: Path):
    def seconds(copies: int) -> float:
        content = "".join(pubannotation.render(documents() * copies, Counter()))
        began = time.process_time()
        assert sum(1 for _ in pubannotation.parse(content, Path("a"), Counter())) == 6 * copies
        return time.process_time() - began

    seconds(5)
    assert seconds(400) / seconds(50) < 16  # 8 where time is linear, 64 where it is quadratic
