"""Mentions as words: what is widened, what has no tags, and that nothing vanishes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.metrics.spans import spans_of, tags_of
from grandrounds.tasks.ner_coding import OVERLAPPING, TagCoding, apart
from grandrounds.tasks.ner_words import (
    ACROSS,
    IN_PIECES,
    OUTSIDE,
    TWICE,
    WIDENED,
    WordSentence,
    word_sentences,
)


def document(
    text: str, *mentions: tuple[int, int, str], sentences: tuple[Span, ...] = (), **attributes: str
) -> Document:
    made = tuple(Mention(start, end, type, f"T{i}") for i, (start, end, type) in enumerate(mentions))
    return Document("d", text, sentences, made, attributes=attributes)


def read(source: Document) -> tuple[list[WordSentence], dict[str, int]]:
    notes: Counter[str] = Counter()
    return word_sentences(source, source.mentions, notes), dict(+notes)


def words(source: Document) -> list[list[str]]:
    return [[source.surface(word) for word in sentence.words] for sentence in read(source)[0]]


def test_words_are_runs_of_letters_and_digits_or_single_signs() -> None:
    assert words(document("Naïve p53, 5mg (i.v.)\n— ok")) == [
        ["Naïve", "p53", ",", "5mg", "(", "i", ".", "v", ".", ")", "—", "ok"]
    ]


def test_tokens_between_white_space_stay_whole() -> None:
    assert words(document("COVID-19 (mild) .", tokens="between white space")) == [["COVID-19", "(mild)", "."]]


def test_a_document_without_sentences_is_split_by_its_text_alone() -> None:
    text = "He took aspirin. Pain eased."
    plain, crossing = document(text), document(text, (8, 21, "drug"))
    assert words(plain) == words(crossing) == [["He", "took", "aspirin", "."], ["Pain", "eased", "."]]


def test_mentions_point_at_words_of_their_sentence() -> None:
    (first, second), notes = read(document("He took aspirin. Pain eased.", (8, 15, "drug"), (17, 21, "problem")))
    assert (first.gold, second.gold, notes) == (((2, 3, "drug"),), ((0, 1, "problem"),), {})
    assert (second.number, second.span) == (1, Span(17, 28))


def test_a_mention_within_a_word_is_widened() -> None:
    (only,), notes = read(document("took 5mg today", (6, 8, "unit"), (0, 3, "verb")))
    assert (only.gold, notes) == (((0, 1, "verb"), (1, 2, "unit")), {WIDENED: 2})


def test_white_space_at_an_end_is_no_part_of_a_mention() -> None:
    (only,), notes = read(document("took aspirin today", (4, 13, "drug")))
    assert (only.gold, notes) == (((1, 2, "drug"),), {})


def test_of_overlapping_mentions_the_longer_then_the_earlier_has_tags() -> None:
    text = "severe chest pain now"
    (only,), _ = read(document(text, (0, 12, "sign"), (7, 17, "site"), (0, 17, "problem"), (18, 21, "time")))
    assert len(only.gold) == 4
    assert apart(only.gold, len(only.words)) == [(0, 3, "problem"), (3, 4, "time")]
    assert +TagCoding(["problem", "sign", "site", "time"], "BIO").unsaid(only.gold, len(only.words)) == {OVERLAPPING: 2}
    (only,), _ = read(document(text, (7, 17, "site"), (0, 12, "sign")))
    assert apart(only.gold, len(only.words)) == [(0, 2, "sign")]


def test_the_same_mention_twice_is_one() -> None:
    (only,), notes = read(document("took 5mg today", (6, 8, "unit"), (5, 8, "unit")))
    assert (only.gold, notes) == (((1, 2, "unit"),), {WIDENED: 1, TWICE: 1})


def test_a_mention_across_a_sentences_end_can_not_be_found_strictly() -> None:
    (first, second), notes = read(document("He took aspirin. Pain eased.", (8, 21, "drug")))
    assert (first.gold, second.gold, notes) == (((2, 5, "drug"),), (), {ACROSS: 1})
    assert apart(first.gold, len(first.words)) == []


def test_a_mention_outside_of_all_sentences_is_out_of_reach_of_any_span() -> None:
    text = "TITLE He took aspirin . the end"
    source = document(text, (0, 5, "head"), (5, 6, "gap"), (28, 31, "tail"), sentences=(Span(6, 23),))
    (only,), notes = read(source)
    assert notes == {OUTSIDE: 3}
    assert {type for *_, type in only.gold} == {"head", "gap", "tail"}
    assert len({first for first, *_ in only.gold}) == 3
    assert all(first >= len(only.words) for first, *_ in only.gold)


def test_a_mention_that_is_partly_outside_is_out_of_reach_too() -> None:
    (only,), notes = read(document("TITLE He took", (0, 8, "head"), sentences=(Span(6, 13),)))
    assert (notes, only.gold[0][0] >= 2) == ({OUTSIDE: 1}, True)


def test_a_text_of_white_space_has_no_sentence() -> None:
    assert read(document(" \n ", (0, 1, "gap"))) == ([], {OUTSIDE: 1})


def test_pieces_are_taken_from_the_first_to_the_last() -> None:
    mention = Mention(0, 15, "problem", "T1", fragments=(Span(0, 4), Span(11, 15)))
    (only,), notes = read(Document("d", "left or far arm", mentions=(mention,)))
    assert (only.gold, notes) == (((0, 4, "problem"),), {IN_PIECES: 1})


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.sampled_from("ab")), max_size=8)


@given(st.text(st.sampled_from("ab1 .\n"), min_size=1, max_size=40), spans)
def test_every_mention_is_gold_somewhere_and_tags_come_back_as_they_were(
    text: str, drawn: list[tuple[int, int, str]]
) -> None:
    made = [(start, min(start + size, len(text)), type) for start, size, type in drawn if start < len(text)]
    source = document(text, *made)
    sentences, notes = read(source)
    gold = sum(len(sentence.gold) for sentence in sentences)
    assert gold + notes.get(TWICE, 0) == (len(made) if sentences else 0)
    for sentence in sentences:
        kept = apart(sentence.gold, len(sentence.words))
        for scheme in ("BIO", "BIOES"):
            assert spans_of(tags_of(kept, len(sentence.words), scheme)) == kept
        for first, past, type in kept:
            start, end = sentence.words[first].start, sentence.words[past - 1].end
            assert any(start <= m.start + 8 and m.start < end and m.type == type for m in source.mentions)
