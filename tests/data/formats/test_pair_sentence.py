"""Where names lie in a sentence, and the document of a head and a tail."""

from __future__ import annotations

from collections import Counter

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.pair_sentence import LOST, OVERLAP, End, find_pair, pair_document
from grandrounds.errors import DataError


@pytest.mark.parametrize(
    ("text", "head", "tail", "expected"),
    [
        ("(AB) and AB or C", "AB", "C", ("AB", 9)),  # between white space before between signs
        ("ABC then (AB), C", "AB", "C", ("AB", 10)),  # between signs before inside of a word
        ("ab (AB) C", "AB", "C", ("AB", 4)),  # the case that was asked for first
        ("xAB but ab , C", "AB", "C", ("ab", 8)),  # a word in another case before a part of one
        ("xab C", "AB", "C", ("ab", 1)),  # a part of a word where there is nothing else
        ("the New_York C", "new york", "C", ("New_York", 4)),  # underscores are spaces
        ("İİ AB C", "ab", "C", ("AB", 3)),  # letters that grow when they are made small shift nothing
        ("A_B B C", "B", "C", ("B", 4)),  # an underscore joins words
    ],
)
def test_the_best_match_of_a_name_counts(text: str, head: str, tail: str, expected: tuple[str, int]):
    warnings: Counter[str] = Counter()
    found = find_pair(text, head, tail, warnings)
    assert found
    assert (text[found[0].start : found[0].end], found[0].start) == expected
    assert text[found[1].start : found[1].end] == tail
    assert not warnings


def test_names_that_overlap_are_looked_for_elsewhere():
    text = "insulin receptor binds insulin"
    warnings: Counter[str] = Counter()
    assert find_pair(text, "insulin", "insulin receptor", warnings) == (Span(23, 30), Span(0, 16))
    assert find_pair("A and A", "A", "A", warnings) == (Span(0, 1), Span(6, 7))
    assert not warnings


def test_names_that_overlap_everywhere_are_kept_and_counted():
    warnings: Counter[str] = Counter()
    assert find_pair("the insulin receptor", "insulin", "insulin receptor", warnings) == (Span(4, 11), Span(4, 20))
    # A part of another word is no better place than one that overlaps.
    found = find_pair("the insulin receptor of proinsulin", "insulin", "insulin receptor", warnings)
    assert found == (Span(4, 11), Span(4, 20))
    assert warnings == {OVERLAP: 2}


def test_what_is_not_there_is_counted():
    warnings: Counter[str] = Counter()
    assert find_pair("A and B", "A", "C", warnings) is None
    assert find_pair("A and B", " ", "B", warnings) is None
    assert warnings == {LOST: 2}


def test_a_letter_that_is_everywhere_takes_no_time():
    assert find_pair("a " * 20_000, "a", "a", Counter()) == (Span(0, 1), Span(2, 3))


def test_a_related_pair_has_two_entities_and_the_relation_between_its_mentions():
    ends = End(Span(6, 7), "Drug", "D1"), End(Span(0, 1), "Target", "P1")
    assert pair_document("x", "B and A", *ends, "inhibits", {"pmid": "1"}) == Document(
        "x",
        "B and A",
        (Span(0, 7),),
        (Mention(6, 7, "Drug", "T1", "D1"), Mention(0, 1, "Target", "T2", "P1")),
        (Entity("D1", "Drug", (0,)), Entity("P1", "Target", (1,))),
        (Relation("inhibits", "D1", "P1", (0, 1)),),
        {"pmid": "1"},
    )
    unrelated = pair_document("x", "B and A", *ends, "NA")
    assert unrelated.relations == ()
    assert [mention.concept for mention in unrelated.mentions] == ["D1", "P1"]


def test_a_thing_related_to_itself_is_one_entity_with_two_mentions():
    document = pair_document("x", "A and A", End(Span(0, 1), "e", "D1"), End(Span(6, 7), "e", "D1"), "equals")
    assert document.entities == (Entity("D1", "e", (0, 1)),)
    assert document.relations == (Relation("equals", "D1", "D1", (0, 1)),)


def test_an_empty_relation_is_refused():
    with pytest.raises(DataError, match="an empty relation; a pair without one has the relation NA"):
        pair_document("x", "AB", End(Span(0, 1), "e", "1"), End(Span(1, 2), "e", "2"), " ")
