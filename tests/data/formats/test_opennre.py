"""OpenNRE's JSON lines: exact values, the same documents again after writing, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import opennre, read, write
from grandrounds.errors import DataError

LINE: dict[str, Any] = {
    "text": "Xenomab stops the kinase.",
    "h": {"id": "D1", "name": "Xenomab", "pos": [0, 7]},
    "t": {"id": "P1", "name": "Kinase", "pos": [18, 24]},
    "relation": "inhibits",
}


def of(*values: dict[str, Any]) -> tuple[list[Document], Counter[str]]:
    warnings: Counter[str] = Counter()
    return list(opennre.parse([json.dumps(value) for value in values], Path("a.jsonl"), warnings)), warnings


def test_positions_are_characters_of_a_text():
    (document,), warnings = of(LINE)
    assert document == Document(
        "a.jsonl:1",
        "Xenomab stops the kinase.",
        (Span(0, 25),),
        (Mention(0, 7, "entity", "T1", "D1"), Mention(18, 24, "entity", "T2", "P1")),
        (Entity("D1", "entity", (0,)), Entity("P1", "entity", (1,))),
        (Relation("inhibits", "D1", "P1", (0, 1)),),
    )
    assert not warnings


def test_positions_are_words_where_the_sentence_is_a_list_of_them():
    value = {
        "token": ["the", "protein", "kinase", "C", "and", "it"],
        "h": {"id": "P1", "name": "protein kinase C", "pos": [1, 4]},
        "t": {"id": "P1", "name": "it", "pos": [5, 6]},
        "relation": "NA",
    }
    (document,), warnings = of(value)
    assert [document.surface(mention) for mention in document.mentions] == ["protein kinase C", "it"]
    assert document.entities == (Entity("P1", "entity", (0, 1)),)
    assert document.relations == ()
    assert not warnings


def test_what_is_missing_or_odd_is_counted():
    bare = {**LINE, "h": {"pos": [0, 7]}, "t": {"id": "P1", "name": "else", "pos": [3, 9], "type": "Gene"}, "year": 3}
    (document,), warnings = of({**bare, "id": "x", "hospital": "general"})
    assert (document.id, document.attributes) == ("x", {"hospital": "general"})
    assert document.mentions == (Mention(0, 7, "entity", "T1"), Mention(3, 9, "Gene", "T2", "P1"))
    assert [entity.id for entity in document.entities] == ["T1", "P1"]
    assert warnings == {opennre.NO_ID: 1, opennre.OTHER_NAME: 1, opennre.OVERLAP: 1, opennre.PASSED_OVER: 1}


def test_documents_come_back_as_they_were_written(tmp_path: Path):
    values = [
        LINE,
        {**LINE, "relation": "NA", "hospital": "general"},
        {**LINE, "t": {**LINE["h"], "pos": [18, 24], "type": "Gene"}},
        {**LINE, "text": "Xenomäb stops\u2028the kinase."},
    ]
    documents = tuple(of(*values)[0])
    for name in ("a.jsonl", "a.jsonl.gz"):
        assert write("opennre", documents, tmp_path / name) == {}
        assert read(tmp_path / name, "opennre").documents == documents
    raw = json.loads((tmp_path / "a.jsonl").read_text().split("\n")[0])
    assert raw == {
        "id": "a.jsonl:1",
        "text": LINE["text"],
        "h": {"id": "D1", "name": "Xenomab", "pos": [0, 7], "type": "entity"},
        "t": {"id": "P1", "name": "kinase", "pos": [18, 24], "type": "entity"},
        "relation": "inhibits",
    }


def test_a_document_of_many_mentions_is_written_as_a_line_a_pair():
    document = Document(
        "d",
        "A or B with C. C helps D.",
        (Span(0, 14), Span(15, 25)),
        (
            Mention(0, 1, "Drug", "T1", "D1|D2"),
            Mention(5, 6, "Drug", "T2", "D2"),
            Mention(12, 13, "Problem", "T3", "D3"),
            Mention(15, 16, "Problem", "T4", "D3"),
            Mention(23, 24, "Problem", "T5"),
        ),
        (
            Entity("D1", "Drug", (0,)),
            Entity("D2", "Drug", (0, 1)),
            Entity("D3", "Problem", (2, 3)),
            Entity("T5", "Problem", (4,)),
        ),
        (Relation("r", "D2", "D3"), Relation("s", "D3", "T5", (3, 4)), Relation("r", "D1", "T5")),
        {"text": "odd", "hospital": "general"},
    )
    warnings: Counter[str] = Counter()
    lines = [json.loads(line) for line in opennre.render([document], warnings).splitlines()]
    assert [(line["id"], line["relation"]) for line in lines] == [("d:1", "r"), ("d:2", "r"), ("d:3", "s")]
    ends = [[(line[end]["id"], line[end]["name"], line[end]["pos"]) for end in "ht"] for line in lines]
    assert ends == [
        [("D2", "A", [0, 1]), ("D3", "C", [12, 13])],
        [("D2", "B", [5, 6]), ("D3", "C", [12, 13])],
        [("D3", "C", [0, 1]), ("D", "D", [8, 9])],
    ]
    assert [line["text"] for line in lines] == ["A or B with C."] * 2 + ["C helps D."]
    assert all(line["hospital"] == "general" for line in lines)
    assert warnings == {opennre.ACROSS: 1, opennre.BY_NAME: 1, opennre.KEY_TAKEN: 1}
    bare = Document("e", "A B", (Span(0, 3),), (Mention(0, 1, "Drug", "T1"),))
    assert opennre.render([bare], warnings) == ""
    assert warnings[opennre.UNRELATED] == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"h": {"id": "D1"}}, "h lacks 'pos'"),
        ({"t": {**LINE["t"], "pos": [18, 26]}}, r"t.pos is 18-26, empty or outside the sentence's text \(0-25\)"),
        ({"t": {**LINE["t"], "pos": [-1, 3]}}, "t.pos is -1-3"),
        ({"t": {**LINE["t"], "pos": [[1, 3]]}}, r"t.pos\[0\] must be a whole number"),
        ({"relation": None}, "sentence.relation must be a string"),
        ({"relation": ""}, "an empty relation"),
        ({"h": {**LINE["h"], "id": 5}}, "h.id must be a string"),
        ({"text": 3}, "sentence.text must be a string"),
        ({"id": 3}, "sentence.id must be a string"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(changed: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message) as caught:
        of(LINE, {**LINE, **changed})
    assert str(caught.value).startswith("a.jsonl:2: ")
    assert "enomab" not in str(caught.value)


def test_words_must_be_there():
    rest = {key: LINE[key] for key in ("h", "t", "relation")}
    with pytest.raises(DataError, match="sentence lacks 'token'"):
        of(rest)
    with pytest.raises(DataError, match=r"sentence\.token has no words"):
        of({**rest, "token": [""]})
    with pytest.raises(DataError, match=r"h\.pos is 0-7, empty or outside the sentence's tokens \(0-2\)"):
        of({**rest, "token": ["a", "b"]})
    with pytest.raises(DataError, match=r"a\.jsonl:1: not JSON at column 2 .*; each line is one sentence"):
        list(opennre.parse(["{'text': 'python'}"], Path("a.jsonl"), Counter()))
