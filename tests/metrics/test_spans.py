"""Span F1 is seqeval's; relaxed F1 by hand; tags and spans go back and forth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from grandrounds.errors import DataError, GrandRoundsError
from grandrounds.metrics.spans import Span, span_counts, span_score, spans_of, split, tag_names, tags_of

TYPES = ("ADE", "Dosage", "Drug")


def random_tags(rng: np.random.Generator, scheme: str, length: int) -> list[str]:
    return [str(tag) for tag in rng.choice(tag_names(TYPES, scheme), length)]


def nearly(rng: np.random.Generator, tags: list[str], scheme: str) -> list[str]:
    return [tag if rng.random() < 0.7 else str(rng.choice(tag_names(TYPES, scheme))) for tag in tags]


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IO"])
def test_strict_scores_are_seqevals_on_a_thousand_random_sequences(scheme: str) -> None:
    rng = np.random.default_rng(3)
    gold = [random_tags(rng, scheme, int(n)) for n in rng.integers(1, 15, 1000)]
    found = [nearly(rng, tags, scheme) for tags in gold]
    for tags in gold:
        assert spans_of(tags) == [(first, last + 1, type) for type, first, last in get_entities(tags)]
    score = span_score(span_counts([spans_of(t) for t in gold], [spans_of(t) for t in found], TYPES), TYPES)
    expected = classification_report(gold, found, output_dict=True, zero_division=0)
    assert [score[name] for name in ("precision", "recall", "f1")] == pytest.approx(
        [expected["micro avg"][name] for name in ("precision", "recall", "f1-score")], abs=1e-12
    )
    for type in TYPES:
        assert [score["per_class"][type][name] for name in ("precision", "recall", "f1", "support")] == pytest.approx(
            [expected[type][name] for name in ("precision", "recall", "f1-score", "support")], abs=1e-12
        )


@pytest.mark.parametrize(
    ("gold", "found", "precision", "recall"),
    [
        ([(0, 2, "Drug")], [(1, 3, "Drug")], 1, 1),  # one word in common
        ([(0, 2, "Drug")], [(2, 3, "Drug")], 0, 0),  # neighbours
        ([(0, 2, "Drug")], [(0, 2, "ADE")], 0, 0),  # the type must match
        ([(0, 2, "Drug"), (3, 5, "Drug")], [(1, 4, "Drug")], 1, 1),  # one covers two
        ([(0, 9, "ADE")], [(0, 2, "ADE"), (3, 4, "ADE"), (9, 10, "ADE")], 2 / 3, 1),  # two within one, one beside
        ([(0, 1, "ADE"), (4, 6, "ADE"), (8, 9, "Drug")], [(5, 6, "ADE")], 1, 1 / 3),
        ([], [(0, 1, "Drug")], 0, 0),
        ([(0, 1, "Drug")], [], 0, 0),
    ],
)
def test_relaxed_scores_by_hand(gold: list[Span], found: list[Span], precision: float, recall: float) -> None:
    score = span_score(span_counts([gold], [found], TYPES), TYPES)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    names = ("relaxed_precision", "relaxed_recall", "relaxed_f1")
    assert [score[name] for name in names] == pytest.approx([precision, recall, f1], abs=1e-12)


def test_spans_of_different_sentences_never_meet() -> None:
    score = span_score(span_counts([[(0, 1, "Drug")], []], [[], [(0, 1, "Drug")]], TYPES), TYPES)
    assert (score["f1"], score["relaxed_f1"], score["accuracy"], score["n"]) == (0, 0, 0, 2)


def test_counts_by_hand() -> None:
    gold = [[(0, 1, "Drug"), (2, 4, "ADE")], [], [(1, 2, "Drug")]]
    found = [[(0, 1, "Drug"), (3, 4, "ADE")], [], [(1, 2, "ADE")]]
    counts = span_counts(gold, found, ("ADE", "Drug"))
    assert counts == {
        "n": 3,
        "right": 1,
        "tp/ADE": 0,
        "fp/ADE": 2,
        "fn/ADE": 1,
        "touching/ADE": 1,
        "touched/ADE": 1,
        "tp/Drug": 1,
        "fp/Drug": 0,
        "fn/Drug": 1,
        "touching/Drug": 1,
        "touched/Drug": 1,
    }
    per_class = span_score(counts, ("ADE", "Drug"))["per_class"]
    assert per_class["ADE"]["relaxed_f1"] == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert (per_class["Drug"]["precision"], per_class["Drug"]["recall"], per_class["Drug"]["support"]) == (1, 0.5, 2)


def test_the_sum_of_two_sites_counts_is_the_count_of_their_joined_sentences() -> None:
    rng = np.random.default_rng(0)
    gold = [spans_of(random_tags(rng, "BIO", 8)) for _ in range(60)]
    found = [spans_of(random_tags(rng, "BIO", 8)) for _ in range(60)]
    one, other = span_counts(gold[:25], found[:25], TYPES), span_counts(gold[25:], found[25:], TYPES)
    assert {name: one[name] + other[name] for name in one} == span_counts(gold, found, TYPES)


def test_a_type_that_is_not_known_is_named() -> None:
    with pytest.raises(GrandRoundsError, match="unknown entity type 'Drugs'; did you mean 'Drug'"):
        span_counts([[(0, 1, "Drugs")]], [[]], TYPES)


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    borders = sorted(draw(st.sets(st.integers(0, 12), max_size=8)))
    pairs = list(zip(borders[::2], borders[1::2], strict=False))
    return [(first, past, draw(st.sampled_from(TYPES))) for first, past in pairs], 12


@given(sentences(), st.sampled_from(["BIO", "BIOES", "IO"]))
def test_spans_come_back_from_their_tags(sentence: tuple[list[Span], int], scheme: str) -> None:
    spans, length = sentence
    tags = tags_of(spans, length, scheme)
    assert len(tags) == length
    assert set(tags) <= set(tag_names(TYPES, scheme))
    assert spans_of(tags) == spans


def test_neighbours_of_a_type_are_parted_in_bio_and_bioes_but_not_in_io() -> None:
    spans = [(0, 1, "Drug"), (1, 3, "Drug")]
    assert tags_of(spans, 4, "BIO") == ["B-Drug", "B-Drug", "I-Drug", "O"]
    assert tags_of(spans, 4, "BIOES") == ["S-Drug", "B-Drug", "E-Drug", "O"]
    assert tags_of(spans, 4, "IO") == ["I-Drug", "I-Drug", "I-Drug", "O"]
    assert spans_of(tags_of(spans, 4, "IO")) == [(0, 3, "Drug")]


def test_a_type_may_have_a_dash() -> None:
    assert split("B-ADE-severe") == ("B", "ADE-severe")
    assert spans_of(tags_of([(0, 2, "x-y")], 3, "BIOES")) == [(0, 2, "x-y")]


@pytest.mark.parametrize("spans", [[(0, 3, "A"), (2, 4, "A")], [(3, 6, "A")], [(2, 2, "A")], [(-1, 1, "A")]])
def test_spans_that_tags_cannot_say_are_refused(spans: list[Span]) -> None:
    with pytest.raises(DataError, match=r"overlap|outside of its sentence's 5 words"):
        tags_of(spans, 5, "BIO")


@pytest.mark.parametrize("tag", ["X-Drug", "B", "O-Drug", "", "Drug"])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(GrandRoundsError, match="is no tag"):
        spans_of([tag])


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(GrandRoundsError, match="unknown tag scheme 'BIOS'; did you mean 'BIOES'"):
        tags_of([], 3, "BIOS")
