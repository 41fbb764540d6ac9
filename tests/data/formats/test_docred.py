"""DocRED: exact values, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import read
from grandrounds.data.formats.docred import UNPLACED, parse
from grandrounds.data.formats.source import Warnings
from grandrounds.errors import DataError


def mention(sentence: int, first: int, after: int, type: str, name: str) -> dict[str, Any]:
    return {"sent_id": sentence, "pos": [first, after], "type": type, "name": name, "index": "0_0"}


ONE: dict[str, Any] = {
    "title": "Marie",
    "sents": [["Marie", "Curie", "was", "born", "in", "Warsaw", "."], ["She", "left", "Poland", "."]],
    "vertexSet": [
        [mention(0, 0, 2, "PER", "Marie Curie"), mention(1, 0, 1, "PER", "she")],
        [mention(0, 5, 6, "LOC", "Warsaw")],
        [mention(1, 2, 3, "LOC", "Poland"), mention(1, 2, 3, "LOC", "Poland")],
    ],
    "labels": [
        {"r": "P19", "h": 0, "t": 1, "evidence": [0]},
        {"r": "P17", "h": 1, "t": 2, "evidence": [0, 1]},
        {"r": "P131", "h": 1, "t": 2, "evidence": []},
    ],
}


def documents(*found: object, warnings: Warnings | None = None) -> list[Document]:
    return list(parse(json.dumps(found), Path("a.json"), Counter() if warnings is None else warnings))


def test_an_object_becomes_a_document():
    warnings: Warnings = Counter()
    assert documents(ONE, warnings=warnings) == [
        Document(
            "Marie",
            "Marie Curie was born in Warsaw . She left Poland .",
            (Span(0, 32), Span(33, 50)),
            (
                Mention(0, 11, "PER", "T1"),
                Mention(33, 36, "PER", "T2"),
                Mention(24, 30, "LOC", "T3"),
                Mention(42, 48, "LOC", "T4"),
            ),
            (Entity("0", "PER", (0, 1)), Entity("1", "LOC", (2,)), Entity("2", "LOC", (3, 3))),
            (
                Relation("P19", "0", "1", attributes={"evidence": "0"}),
                Relation("P17", "1", "2", attributes={"evidence": "0 1"}),
                Relation("P131", "1", "2"),
            ),
        )
    ]
    assert not warnings


def test_a_blind_test_has_no_labels_and_the_distant_part_no_evidence(tmp_path: Path):
    blind = {key: value for key, value in ONE.items() if key != "labels"}
    distant = {**blind, "title": "other", "labels": [{"r": "P19", "h": 0, "t": 1}]}
    (tmp_path / "test.json").write_text(json.dumps([blind, distant]))
    found = read(tmp_path, "docred")
    assert [document.relations for document in found.documents] == [(), (Relation("P19", "0", "1"),)]
    assert found.warnings == {}


def test_what_is_mended_is_counted():
    changed = deepcopy(ONE)
    changed["vertexSet"][0][0]["name"] = "Pierre Curie"
    changed["vertexSet"][0][1]["type"] = "MISC"
    changed["labels"].append({"r": "P19", "h": 0, "t": 1, "evidence": [1]})
    warnings: Warnings = Counter()
    (found,) = documents(changed, warnings=warnings)
    assert found.entities[0].type == "PER"
    assert [relation.attributes.get("evidence") for relation in found.relations] == ["0", "0 1", None]
    assert warnings == {
        "mentions whose name is not that of their tokens, which count": 1,
        "entities whose mentions differ in type, which have the first one's": 1,
        "relations given twice, of which the first was kept": 1,
    }


def test_a_relation_of_an_entity_that_is_not_there_is_counted():
    labels = [{"r": "P1", "h": 0, "t": end} for end in (3, -1, 1)]
    warnings: Warnings = Counter()
    (found,) = documents({**ONE, "labels": labels}, warnings=warnings)
    assert [(relation.head, relation.tail) for relation in found.relations] == [("0", "1")]
    assert warnings == {UNPLACED: 2}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("title", 7, "documents[1].title must be a string"),
        ("sents", [["Marie"], []], "documents[1].sents[1] has no tokens"),
        ("vertexSet", [[]], "documents[1].vertexSet[0] has no mention"),
        ("vertexSet", [[{"sent_id": 0}]], "documents[1].vertexSet[0][0] lacks 'pos'"),
        (
            "vertexSet",
            [[mention(2, 0, 1, "PER", "Marie")]],
            "vertexSet[0][0].sent_id is 2; the document has sentences 0-1",
        ),
        ("vertexSet", [[mention(1, 3, 5, "PER", "Marie")]], "vertexSet[0][0].pos is 3-5, empty or outside"),
        ("vertexSet", [[mention(1, 3, 3, "PER", "Marie")]], "vertexSet[0][0].pos is 3-3, empty or outside"),
        ("labels", [{"r": "P1", "h": 0, "t": 1, "evidence": [2]}], "labels[0].evidence names a sentence that does not"),
        ("labels", [{"r": "P1", "h": True, "t": 1}], "documents[1].labels[0].h must be a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_with_file_and_place(key: str, value: object, message: str):
    with pytest.raises(DataError) as refusal:
        documents(ONE, {**ONE, key: value})
    assert str(refusal.value).startswith("a.json:1: ")
    assert message in str(refusal.value)
    assert "Marie" not in str(refusal.value)


def test_broken_json_is_refused_with_its_line():
    with pytest.raises(DataError, match=r"^a.json:2: not JSON at column 1 .*; the file is one list of documents"):
        list(parse("[\n", Path("a.json"), Counter()))
    with pytest.raises(DataError, match=r"^a.json:1: not JSON at column 1 .*; the file is one list of documents"):
        list(parse("{}", Path("a.json"), Counter()))
