"""Sentences: where they end, where they don't, and that mentions stay whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grandrounds.data.documents import Span
from grandrounds.data.sentences import join_sentences, split_sentences


def pieces(text: str, **options: object) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith saw Mr. J. Doe.", "He was well."],
        ["Drugs (e.g. Aspirin, i.e. ASA) vs. Placebo were compared.", "No effect was seen."],
        ["Smith et al. Nature 1990 showed it.", "We did not."],
        ["It was shown by Smith et al.", "The effect was large."],
        ["Shown in Fig. 2 and Figs. 3-4.", "See No. 5."],
        ["He received 5 mg i.v. and 0.5 mg p.o. daily.", "He improved!", "Did he?", "Yes."],
        ["He got 20 mg/kg i.v.", "Placebo was given to others."],
        ["P was 0. 05 in both.", "15 patients died."],
        ["E. coli and S. Aureus grew.", "mRNA rose.", "p53 fell.", "alpha-Blockers helped."],
        ["He has hepatitis C.", "Ribavirin was given."],
        ["She said no.", "Nothing was done."],
        ['It was "severe."', "(It was not.)", "It ended."],
        ["The temperature was 37 degrees C.", "Pressure was 3.5 kPa."],
        ["Treated in the U.S. Army.", "In the U.S.", "The rate is low."],
    ],
)
def test_sentences_end_where_a_reader_ends_them(sentences: list[str]):
    assert pieces(" ".join(sentences)) == sentences


def test_line_ends_break_as_asked():
    text = "Chief complaint\n\nchest pain since\nyesterday. Nausea"
    assert pieces(text) == ["Chief complaint", "chest pain since\nyesterday.", "Nausea"]
    assert pieces(text, breaks="line") == ["Chief complaint", "chest pain since", "yesterday.", "Nausea"]
    assert pieces(text, breaks="none") == ["Chief complaint\n\nchest pain since\nyesterday.", "Nausea"]


def test_list_numbers_stay_with_their_items():
    assert pieces("1. Aspirin\n2. Insulin", breaks="line") == ["1. Aspirin", "2. Insulin"]


def test_no_mention_is_cut_and_no_other_sentence_joined():
    text = "He took Dr. X. Y pills. They failed. End."
    assert pieces(text, keep=[Span(8, 22)]) == ["He took Dr. X. Y pills.", "They failed.", "End."]
    assert pieces(text, keep=[Span(16, 28)]) == ["He took Dr. X. Y pills. They failed.", "End."]
    assert pieces(" ill. Bad ", keep=[Span(0, 4), Span(5, 9)]) == [" ill.", " Bad"]


def test_empty_text_has_no_sentence():
    assert split_sentences("") == split_sentences(" \n ") == ()


def test_join_sentences_joins_those_that_share_a_span():
    lines = [Span(0, 4), Span(5, 9), Span(10, 14)]
    assert join_sentences(lines, [Span(2, 7)]) == (Span(0, 9), Span(10, 14))
    assert join_sentences(lines, [Span(5, 9)]) == tuple(lines)
    assert join_sentences([], []) == ()


@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    st.text(alphabet="aB1. \n!?()'\"\t", max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=3),
    st.sampled_from(["line", "paragraph", "none"]),
)
def test_sentences_are_in_order_apart_and_cover_all_but_white_space(text, raw, breaks):
    keep = [Span(start, min(start + length, len(text))) for start, length in raw if start < len(text)]
    sentences = split_sentences(text, keep, breaks=breaks)
    assert all(a.end <= b.start for a, b in pairwise(sentences))
    covered = {i for start, end in sentences for i in range(start, end)}
    assert all(i in covered for i, character in enumerate(text) if not character.isspace())
    assert all(any(s.start <= k.start and k.end <= s.end for s in sentences) for k in keep)
    if not keep:
        assert all(text[s:e] == text[s:e].strip() for s, e in sentences)
