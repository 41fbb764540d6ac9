"""Distant labelling of a corpus small enough to count by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data import distant
from grandrounds.data.distant import Labelled, label
from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import opennre
from grandrounds.data.knowledge_base import KnowledgeBase
from grandrounds.errors import ConfigError, DataError

KB = KnowledgeBase({("A", "X"): ("treats", "causes"), ("X", "B"): ("excludes",), ("Q", "X"): ("treats",)})


def note() -> Document:
    """Five sentences: "a x.", "b x.", "c x z.", "a a y." and an overlap."""
    text = "a x. b x. c x z. a a y. abx."
    mentions = [
        (0, 1, "Drug", "A"),
        (2, 3, "Problem", "X"),
        (5, 6, "Drug", "B"),
        (7, 8, "Problem", "X"),
        (10, 11, "Drug", "A|C"),
        (12, 13, "Problem", "X"),
        (14, 15, "Problem", "Z"),
        (17, 18, "Drug", "A"),
        (19, 20, "Drug", "A"),
        (21, 22, "Problem", "-1"),
        (24, 27, "Drug", "A"),
        (25, 26, "Problem", "X"),
        (22, 24, "Problem", "X"),
    ]
    return Document(
        "n1",
        text,
        (Span(0, 4), Span(5, 9), Span(10, 16), Span(17, 23), Span(24, 28)),
        tuple(Mention(start, end, type, f"T{i}", concept) for i, (start, end, type, concept) in enumerate(mentions)),
        attributes={"hospital": "general", "pairs": "[]"},
    )


def of(**options: object) -> tuple[Labelled, Counter[str]]:
    warnings: Counter[str] = Counter()
    return label([note()], KB, warnings, **options), warnings  # type: ignore[arg-type]


def test_every_fact_of_every_pair_is_an_instance_and_the_rest_is_na():
    labelled, warnings = of()
    assert [(one.sentence, *one.bag) for one in labelled.instances] == [
        (0, "A", "causes", "X"),
        (0, "A", "treats", "X"),
        (0, "X", "NA", "A"),  # no fact in this direction
        (1, "B", "NA", "X"),
        (1, "X", "excludes", "B"),
        (2, "A", "causes", "X"),  # of A|C
        (2, "A", "treats", "X"),
        (2, "A", "NA", "Z"),
        (2, "X", "NA", "A"),
        (2, "Z", "NA", "A"),
    ]
    assert warnings == {distant.NO_CONCEPT: 1, distant.NO_SENTENCE: 1, distant.OVERLAPPING: 1}


def test_the_counts_are_those_of_a_hand():
    reported = of()[0].statistics
    assert reported == {
        "documents": 1,
        "sentences": 5,
        "sentences with an instance": 3,
        "instances": 10,
        "instances of NA": 5,
        "share of NA": 0.5,
        "unrelated pairs to draw NA from": 5,
        "facts of the knowledge base": 4,
        "facts found": 3,
        "bags": 7,
        "bag size of a fact": {"mean": 5 / 3, "median": 2, "greatest": 2, "of one sentence": 1},
        "relation": {"NA": 5, "causes": 2, "excludes": 1, "treats": 2},
        "types": {"Drug:Problem": 4, "Problem:Drug": 1},
    }


@pytest.mark.parametrize(("ratio", "kept", "missing"), [(0, 0, 0), (0.4, 2, 0), (1, 5, 0), (3, 5, 10)])
def test_the_ratio_says_how_many_unrelated_pairs_stay(ratio: float, kept: int, missing: int):
    labelled, warnings = of(na_ratio=ratio)
    assert labelled.statistics["instances of NA"] == kept
    assert labelled.statistics["instances"] == 5 + kept
    assert warnings[distant.FEW_NA] == missing


def test_the_same_seed_draws_the_same_and_another_one_others():
    drawn = [of(na_ratio=0.4, max_per_fact=1, seed=seed)[0].instances for seed in (1, 1, *range(2, 12))]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 2


def test_types_that_may_be_related_can_be_named():
    labelled, _ = of(types=[("Drug", "Problem")])
    assert labelled.statistics["relation"] == {"NA": 2, "causes": 2, "treats": 2}  # (B, X) and (A, Z)


def test_of_a_fact_at_most_so_many_are_kept():
    labelled, warnings = of(max_per_fact=1, na_ratio=0)
    assert labelled.statistics["relation"] == {"causes": 1, "excludes": 1, "treats": 1}
    assert warnings[distant.BEYOND] == 2


def test_a_thing_that_is_related_to_itself_is_an_instance_in_both_directions():
    facts = KnowledgeBase({("A", "A"): ("equals",)})
    labelled = label([note()], facts, Counter())
    assert [(one.sentence, one.mentions, *one.bag) for one in labelled.instances] == [
        (3, (7, 8), "A", "equals", "A"),
        (3, (8, 7), "A", "equals", "A"),
    ]


def test_prefixes_are_not_ignored_unless_asked_for():
    relations = {("A", "X"): ("treats",)}
    prefixed = Document(
        "p", "a x", (Span(0, 3),), (Mention(0, 1, "Drug", "T1", "M:A"), Mention(2, 3, "Problem", "T2", "X"))
    )
    with pytest.raises(DataError, match="no sentence holds two mentions that the knowledge base relates"):
        label([prefixed], KnowledgeBase(relations), Counter())
    (found,) = label([prefixed], KnowledgeBase(relations, ignore_prefixes=True), Counter()).instances
    assert found.bag == ("A", "treats", "X")


def test_each_instance_is_a_document_of_one_sentence_that_opennre_keeps():
    labelled, _ = of()
    documents = tuple(labelled.documents([note()]))
    assert documents[4] == Document(
        "n1:1:2",
        "b x.",
        (Span(0, 4),),
        (Mention(2, 3, "Problem", "T1", "X"), Mention(0, 1, "Drug", "T2", "B")),
        (Entity("X", "Problem", (0,)), Entity("B", "Drug", (1,))),
        (Relation("excludes", "X", "B", (0, 1)),),
        {"document": "n1", "hospital": "general"},
    )
    assert len({document.id for document in documents}) == 10
    warnings: Counter[str] = Counter()
    assert tuple(opennre.parse(opennre.render(documents, warnings).splitlines(), Path("a"), warnings)) == documents
    assert not warnings


def test_steps_are_told_twice_a_document():
    steps: list[None] = []
    of(step=lambda: steps.append(None))
    assert len(steps) == 2


@pytest.mark.parametrize("ratio", [-1.0, float("inf"), float("nan")])
def test_a_ratio_that_is_none_is_refused(ratio: float):
    with pytest.raises(ConfigError, match="the NA ratio must be a number of 0 or more"):
        of(na_ratio=ratio)
