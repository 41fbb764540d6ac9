"""Synthetic notes by annotation guides that differ, and in silos that need not be hospitals."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from grandrounds.data.synthetic import synthesize
from grandrounds.data.synthetic.guides import KINDS, guide
from grandrounds.data.synthetic.phrases import AFTER, BEFORE
from grandrounds.data.synthetic.vocabulary import CONCEPTS
from grandrounds.errors import DataError


def labels(disagreement: int, number: int) -> set[str]:
    notes = synthesize(1, 30, first=number, disagreement=disagreement).train
    return {mention.type for note in notes for mention in note.mentions}


def test_where_guides_agree_all_hospitals_mark_the_same_types() -> None:
    assert [labels(0, number) for number in (1, 2, 3)] == [{"problem", "treatment", "test"}] * 3


def test_where_nothing_is_agreed_no_two_hospitals_share_a_label_and_each_leaves_one_kind_out() -> None:
    found = [labels(100, number) for number in (1, 2, 3)]
    assert [len(own) for own in found] == [3, 3, 3]
    assert not any(one & other for one, other in combinations(found, 2))


def test_half_way_two_kinds_of_four_differ_and_those_of_a_quarter_are_among_them() -> None:
    for number, name in enumerate(("st-anne", "riverside"), start=1):
        quarter, half = (guide(name, number, share, seed=1).names for share in (0.25, 0.5))
        assert (len(quarter), len(half)) == (1, 2)
        assert quarter.items() <= half.items()
        assert None not in half.values()
        assert {*guide(name, number, 1.0, seed=1).names} == {*KINDS}


def test_a_guide_changes_annotations_and_no_text() -> None:
    by_common, by_own = (synthesize(3, 20, disagreement=d).train for d in (0, 100))
    for common, own in zip(by_common, by_own, strict=True):
        assert common.text == own.text
        known = {mention.id: mention for mention in common.mentions}
        for mention in own.mentions:
            assert mention.start <= known[mention.id].start
            assert mention.end >= known[mention.id].end
            assert mention.type.startswith(f"{CONCEPTS[str(mention.concept)].kind}-")


@pytest.mark.parametrize(("number", "before", "after"), [(1, False, False), (2, True, False), (3, True, True)])
def test_hospitals_in_turn_take_words_around_a_name_into_the_mention(number: int, before: bool, after: bool) -> None:
    common, own = (synthesize(1, 30, first=number, disagreement=d).train for d in (0, 100))
    added: dict[str, set[str]] = {"before": set(), "after": set()}
    for one, other in zip(common, own, strict=True):
        names = {mention.id: mention for mention in one.mentions}
        for mention in other.mentions:
            name = names[mention.id]
            added["before"].add(one.text[mention.start : name.start].strip().lower())
            added["after"].add(one.text[name.end : mention.end].strip().lower())
    taken = {side: {*words} - {""} for side, words in added.items()}
    assert (len(taken["before"]) > 5, len(taken["after"]) > 5) == (before, after)
    for side, phrases in (("before", BEFORE), ("after", AFTER)):
        assert taken[side] <= {words.lower() for some in phrases.values() for words in some}


def test_relations_stay_where_both_mentions_are_marked() -> None:
    for common, own in zip(*(synthesize(2, 15, disagreement=d).train for d in (0, 75)), strict=True):
        assert len(common.mentions) == len(own.mentions)
        assert common.relations == own.relations
    for common, own in zip(*(synthesize(2, 15, disagreement=d).train for d in (0, 100)), strict=True):
        marked = {mention.concept for mention in own.mentions}
        assert [(r.type, r.head, r.tail) for r in own.relations] == [
            (r.type, r.head, r.tail) for r in common.relations if {r.head, r.tail} <= marked
        ]


def test_a_silo_is_the_hospital_or_any_and_a_patient_is_in_one() -> None:
    apart, mixed, half = (synthesize(3, 40, divergence=d).train for d in (100, 0, 50))
    assert all(note.attributes["silo"] == note.attributes["hospital"] for note in apart)
    assert [note.text for note in apart] == [note.text for note in mixed]
    silos: dict[str, set[str]] = {}
    for note in half:
        silos.setdefault(note.attributes["patient"], set()).add(note.attributes["silo"])
    assert {len(held) for held in silos.values()} == {1}
    for notes, expected in ((mixed, 1 / 3), (half, 2 / 3)):
        at_home = Counter(note.attributes["silo"] == note.attributes["hospital"] for note in notes)
        assert at_home[True] / at_home.total() == pytest.approx(expected, abs=0.12)


def test_the_test_has_as_many_notes_as_asked() -> None:
    data = synthesize(2, 3, test=7)
    assert (len(data.train), len(data.test)) == (6, 14)
    assert data.test[:1] == synthesize(2, 3).test[:1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"disagreement": 101}, "disagreement is 101 percent; it must be between 0 and 100"),
        ({"divergence": -1}, "divergence is -1 percent; it must be between 0 and 100"),
        ({"test": -1}, "cannot synthesize -1 notes to test on"),
    ],
)
def test_what_cannot_be_made_is_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(DataError, match=said):
        synthesize(1, 2, **wrong)  # type: ignore[arg-type]
