"""End-to-end scores of relations, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grandrounds.errors import GrandRoundsError
from grandrounds.metrics.end_to_end import CAUSES, Annotation, Statement, relation_counts, relation_score
from grandrounds.metrics.spans import Span

DRUG, OTHER, ILL, FEVER = (0, 1, "drug"), (2, 3, "drug"), (4, 6, "problem"), (8, 9, "problem")
LABELS = ["eases", "causes"]


def says(*relations: tuple[str, set[Span], set[Span]], mentions: set[Span] | None = None) -> Annotation:
    stated = [Statement(type, frozenset(head), frozenset(tail)) for type, head, tail in relations]
    own = {span for one in stated for end in (one.head, one.tail) for span in end}
    return Annotation(frozenset(own if mentions is None else mentions), stated)


GOLD = says(("eases", {DRUG}, {ILL}), ("causes", {OTHER}, {FEVER}))


def counted(found: Annotation, gold: Annotation = GOLD, ordered: bool = True) -> dict[str, float]:
    counts = relation_counts([gold], [found], LABELS, ordered)
    return {name: number for name, number in counts.items() if number}


def test_a_relation_is_right_if_both_spans_both_types_and_its_own_type_are() -> None:
    right = {"n": 1, "tp/eases": 1, "tp/causes": 1, "relaxed tp/eases": 1, "relaxed tp/causes": 1, "right": 1}
    assert counted(GOLD) == right
    missed = {"fn/causes": 1, "relaxed fn/causes": 1, "tp/eases": 1, "relaxed tp/eases": 1, "n": 1}
    assert counted(says(("eases", {DRUG}, {ILL}))) == {**missed, "missed mention": 1}


@pytest.mark.parametrize(
    ("found", "missed", "wrong"),
    [
        (says(("eases", {DRUG}, {(4, 5, "problem")})), "mention", "mention"),
        (says(("eases", {DRUG}, {(4, 6, "drug")})), "type", "type"),
        (says(("causes", {DRUG}, {ILL})), "relation", "relation"),
        (says(("eases", {ILL}, {DRUG})), "relation", "relation"),
        (says(("eases", {DRUG}, {FEVER}), mentions={DRUG, ILL, FEVER}), "pair", "pair"),
    ],
)
def test_each_miss_and_each_wrong_answer_has_its_cause(found: Annotation, missed: str, wrong: str) -> None:
    gold = says(("eases", {DRUG}, {ILL}), mentions={DRUG, ILL, FEVER})
    counts = counted(found, gold)
    assert {name for name in counts if name.startswith(("missed", "wrong"))} == {f"missed {missed}", f"wrong {wrong}"}


def test_relaxed_is_a_shared_word_of_the_same_type() -> None:
    counts = counted(says(("eases", {DRUG}, {(5, 8, "problem")})))
    assert (counts["fn/eases"], counts["fp/eases"], counts["relaxed tp/eases"]) == (1, 1, 1)
    assert "relaxed tp/eases" not in counted(says(("eases", {DRUG}, {(5, 8, "sign")})))
    assert "relaxed tp/eases" not in counted(says(("eases", {DRUG}, {(6, 8, "problem")})))


def test_a_pair_of_concepts_counts_once_and_needs_an_exact_mention_of_each() -> None:
    again = (20, 21, "drug")
    gold = says(("eases", {DRUG, again}, {ILL, FEVER}))
    twice = says(("eases", {DRUG}, {ILL}), ("eases", {again}, {FEVER}))
    assert counted(twice, gold) == {"n": 1, "right": 1, "tp/eases": 1, "relaxed tp/eases": 1}
    near = says(("eases", {again, (20, 22, "drug")}, {FEVER}))
    assert counted(near, gold)["tp/eases"] == 1
    off = counted(says(("eases", {(20, 22, "drug")}, {FEVER})), gold)
    assert (off["fn/eases"], off["fp/eases"], off["relaxed tp/eases"]) == (1, 1, 1)


def test_without_direction_both_orders_are_one() -> None:
    turned = says(("eases", {ILL}, {DRUG}), ("causes", {OTHER}, {FEVER}))
    assert counted(turned)["fp/eases"] == 1
    assert counted(turned, ordered=False)["right"] == 1


def test_a_strange_type_is_refused() -> None:
    with pytest.raises(GrandRoundsError, match="unknown relation type 'cures'"):
        counted(says(("cures", {DRUG}, {ILL})))


spans = st.tuples(st.integers(0, 3), st.integers(1, 2), st.sampled_from("ab")).map(lambda s: (s[0], s[0] + s[1], s[2]))
documents = st.builds(
    lambda pairs, more: Annotation(
        frozenset({span for _, h, t in pairs for span in (h, t)} | more),
        [Statement(type, frozenset({h}), frozenset({t})) for type, h, t in dict.fromkeys(pairs)],
    ),
    st.lists(st.tuples(st.sampled_from(LABELS), spans, spans), max_size=4),
    st.frozensets(spans, max_size=3),
)


@given(st.lists(st.tuples(documents, documents), min_size=1, max_size=4))
def test_counts_add_up(pairs: list[tuple[Annotation, Annotation]]) -> None:
    gold, found = [one for one, _ in pairs], [other for _, other in pairs]
    counts = relation_counts(gold, found, LABELS)
    alone = [relation_counts([one], [other], LABELS) for one, other in pairs]
    assert counts == {name: sum(each[name] for each in alone) for name in counts}
    tp, fp, fn = (sum(counts[f"{part}/{label}"] for label in LABELS) for part in ("tp", "fp", "fn"))
    assert tp + fn == sum(len(one.relations) for one in gold)
    assert tp + fp == sum(len(other.relations) for other in found)  # of mentions, nothing is found twice
    assert sum(counts[f"missed {cause}"] for cause in CAUSES) == fn
    assert sum(counts[f"wrong {cause}"] for cause in CAUSES) == fp
    score = relation_score(counts, LABELS)
    assert sum(score[f"missed_{cause}"] for cause in CAUSES) == pytest.approx(1 - score["recall"] if tp + fn else 0)
    assert score["relaxed_f1"] >= score["f1"]
