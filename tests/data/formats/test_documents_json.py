"""Our JSON lines: every field survives, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import read, write
from grandrounds.data.formats.documents_json import parse, render
from grandrounds.errors import DataError

FULL = Document(
    "n1",
    "β-blocker\u2028 and\nbleeding",
    (Span(0, 14), Span(15, 23)),
    (
        Mention(0, 14, "Drug", "T1", "D1|D2", (Span(0, 9), Span(11, 14)), {"blinded": "yes"}),
        Mention(15, 23, "Disease", "T2"),
    ),
    (Entity("D1", "Drug", (0,)), Entity("T2", "Disease", (1,))),
    (Relation("CID", "D1", "T2", (0, 1), {"sure": "no"}), Relation("CID", "T2", "D1")),
    {"hospital": "beth"},
)


def test_every_field_survives(tmp_path: Path):
    documents = (FULL, Document("n2", ""), Document("n3", "x", (Span(0, 1),)))
    assert write("json", documents, tmp_path / "a.jsonl") == {}
    assert read(tmp_path / "a.jsonl", "json").documents == documents
    assert (tmp_path / "a.jsonl").read_text().count("\n") == 3


def test_fields_at_their_defaults_are_left_out():
    assert render([Document("n2", "ß")]) == '{"id": "n2", "text": "ß"}\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"sentences"', '"sentence"', "unknown key in document 'sentence'; did you mean 'sentences'?"),
        ('"concept"', '"concepts"', r"unknown key in document.mentions\[0\] 'concepts'; did you mean 'concept'\?"),
        ('"hospital"', '"id": "2", "x"', None),
        ('"attributes": {"hospital"', '"secret words": {"hospital"', "unknown key in document; known: id, text"),
        ('"id": "n1", ', "", "document lacks 'id'"),
        ('"id": "n1"', '"id": 1', "document.id must be a string"),
        ('"id": "n1"', '"id": "n1", "id": "n2"', "a key given twice"),
        ('"id": "n1"', '"id": "\\ud800"', "document.id holds half of a surrogate pair"),
        ('"start": 0', '"start": "0"', r"document.mentions\[0\].start must be a whole number"),
        ('"start": 0', '"start": true', r"document.mentions\[0\].start must be a whole number"),
        ('"start": 0', '"start": ' + "1" * 5000, "a number too long"),
        ('"start": 0', '"start": 20', "mention 20-14 is empty or inverted"),
        ("[[0, 14], [15, 23]]", "[[0, 14], [15, 23, 24]]", r"document.sentences\[1\] must be two whole numbers"),
        ("[[0, 14], [15, 23]]", "[[0, 16], [15, 23]]", "sentence 15-23 is empty, outside the text"),
        ("[[0, 9], [11, 14]]", "[[0, 12], [11, 14]]", "overlapping or outlying fragment 11-14"),
        ('[{"id": "D1"', '[3, {"id": "D1"', r"document.entities\[0\] must be an object"),
        ('{"hospital": "beth"}', "[]", "document.attributes must be an object of strings"),
        ('"D1"', '"D7"', "relation number 1 refers to an entity that does not exist"),
        ("}\n", "\n", "not JSON at column"),
        ('"n1"', "[" * 100000, "nested too deeply"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(old: str, new: str, message: str | None):
    content = render([FULL])
    assert old in content
    lines = "\n" + content.replace(old, new, 1)
    if message is None:  # another key among attributes is no mistake
        assert "x" in next(parse(lines, Path("a.jsonl"))).attributes
        return
    with pytest.raises(DataError, match=message) as caught:
        list(parse(lines, Path("a.jsonl")))
    assert str(caught.value).startswith("a.jsonl:2: ")
    assert "secret" not in str(caught.value)
    assert "bleeding" not in str(caught.value)
