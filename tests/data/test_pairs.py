"""Which pairs of entities a document asks about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation
from grandrounds.data.pairs import candidate_pairs, list_pairs, listed_pairs, related_types
from grandrounds.errors import DataError

DOCUMENT = Document(
    "d",
    "abc",
    mentions=tuple(Mention(i, i + 1, "Chemical" if i < 2 else "Disease", f"T{i}") for i in range(3)),
    entities=(Entity("C1", "Chemical", (0,)), Entity("C2", "Chemical", (1,)), Entity("D1", "Disease", (2,))),
    relations=(Relation("CID", "C1", "D1"),),
)


def test_pairs_are_ordered_and_of_the_types_asked_for():
    assert candidate_pairs(DOCUMENT, {("Chemical", "Disease")}) == (("C1", "D1"), ("C2", "D1"))
    assert candidate_pairs(DOCUMENT, {("Chemical", "Chemical")}) == (("C1", "C2"), ("C2", "C1"))


def test_what_is_not_included_is_no_pair():
    document = replace(DOCUMENT, attributes={"not_include": list_pairs([("C2", "D1")])})
    assert candidate_pairs(document, {("Chemical", "Disease")}) == (("C1", "D1"),)


def test_a_list_stands_above_the_types():
    document = replace(DOCUMENT, attributes={"pairs": list_pairs([("D1", "C2")])})
    assert candidate_pairs(document, {("Chemical", "Disease")}) == (("D1", "C2"),)


def test_types_are_those_that_relations_join():
    assert related_types([DOCUMENT, replace(DOCUMENT, relations=())]) == {("Chemical", "Disease")}


@pytest.mark.parametrize(
    "text", ["", "7", "[1]", '["C1"]', '[["C1"]]', '[["C1", 2]]', '[["C1", "D9"]]', '{"C1": 1}', "["]
)
def test_a_list_that_is_none_is_refused(text: str):
    with pytest.raises(DataError, match="'pairs' must be JSON: a list of"):
        listed_pairs(replace(DOCUMENT, attributes={"pairs": text}), "pairs")
