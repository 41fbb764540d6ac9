"""Which pairs of entities a document asks about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation
from grandrounds.data.pairs import candidate_pairs, convention, list_pairs, listed_pairs, related_types, stated_types
from grandrounds.errors import DataError, GrandRoundsError

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


def test_a_corpus_has_its_conventional_pairs():
    assert convention("cdr").types == {("Chemical", "Disease")}
    assert convention("gda").types == {("Gene", "Disease")}
    assert not convention("chr").ordered
    kinds = convention("biored").types or frozenset()
    assert not convention("biored").ordered
    assert len({frozenset(kind) for kind in kinds}) == 8
    assert ("GeneOrGeneProduct", "SequenceVariant") not in kinds
    with pytest.raises(GrandRoundsError, match=r"unknown corpus 'docrad'; did you mean 'docred'\?"):
        convention("docrad")


def test_docred_asks_about_every_ordered_pair():
    pairs = candidate_pairs(DOCUMENT, convention("docred").types, ordered=convention("docred").ordered)
    assert pairs == (("C1", "C2"), ("C1", "D1"), ("C2", "C1"), ("C2", "D1"), ("D1", "C1"), ("D1", "C2"))


def test_chr_asks_once_about_two_chemicals_in_the_order_of_the_text():
    rule = convention("chr")
    assert candidate_pairs(DOCUMENT, rule.types, ordered=rule.ordered) == (("C1", "C2"),)
    turned = replace(DOCUMENT, entities=DOCUMENT.entities[::-1])  # entities need not stand in the order of the text
    assert candidate_pairs(turned, rule.types, ordered=rule.ordered) == (("C1", "C2"),)
    without = replace(DOCUMENT, attributes={"not_include": list_pairs([("C2", "C1")])})
    assert candidate_pairs(without, rule.types, ordered=rule.ordered) == ()


def test_without_order_a_pair_of_two_types_keeps_the_order_of_its_types():
    assert candidate_pairs(DOCUMENT, {("Disease", "Chemical")}, ordered=False) == (("D1", "C1"), ("D1", "C2"))


def test_a_relation_without_direction_counts_for_the_pair_the_other_way_round():
    document = replace(DOCUMENT, relations=(Relation("React", "C2", "C1"), Relation("React", "C1", "C2")))
    both, one = (("C1", "C2"), ("C2", "C1")), (("C1", "C2"),)
    assert stated_types(document, both, ordered=False) == {("C1", "C2"): ("React",), ("C2", "C1"): ("React",)}
    assert stated_types(document, one, ordered=False) == {("C1", "C2"): ("React",)}
    backward = replace(document, relations=document.relations[:1])
    assert stated_types(backward, one, ordered=False) == {("C1", "C2"): ("React",)}
    assert stated_types(backward, one) == {("C1", "C2"): ()}


def test_all_types_of_a_pairs_relations_are_stated():
    document = replace(DOCUMENT, relations=(Relation("P1", "C1", "D1"), Relation("P2", "C1", "D1")))
    assert stated_types(document, [("C1", "D1"), ("C2", "D1")]) == {("C1", "D1"): ("P1", "P2"), ("C2", "D1"): ()}


@pytest.mark.parametrize(("concept", "pairs"), [("-1", 1), ("-", 1), ("-1|-1", 1), ("-1|D7", 2), (None, 2)])
def test_what_was_looked_up_in_vain_is_in_no_pair(concept: str | None, pairs: int):
    mentions = (DOCUMENT.mentions[0], replace(DOCUMENT.mentions[1], concept=concept), DOCUMENT.mentions[2])
    assert len(candidate_pairs(replace(DOCUMENT, mentions=mentions), {("Chemical", "Disease")})) == pairs


def test_types_are_those_that_relations_join():
    assert related_types([DOCUMENT, replace(DOCUMENT, relations=())]) == {("Chemical", "Disease")}


@pytest.mark.parametrize(
    "text", ["", "7", "[1]", '["C1"]', '[["C1"]]', '[["C1", 2]]', '[["C1", "D9"]]', '{"C1": 1}', "["]
)
def test_a_list_that_is_none_is_refused(text: str):
    with pytest.raises(DataError, match="'pairs' must be JSON: a list of"):
        listed_pairs(replace(DOCUMENT, attributes={"pairs": text}), "pairs")


def test_a_pair_listed_twice_is_asked_once_and_none_with_itself():
    document = replace(DOCUMENT, attributes={"pairs": list_pairs([("C1", "D1"), ("C1", "D1")])})
    assert candidate_pairs(document, None) == (("C1", "D1"),)
    document = replace(DOCUMENT, attributes={"pairs": list_pairs([("C1", "C1")])})
    with pytest.raises(DataError, match="pairs an entity with itself"):
        candidate_pairs(document, None)
