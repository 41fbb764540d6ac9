"""Words and sentences of raw text as the training corpus had them."""

from __future__ import annotations

import json

import pytest

from grandrounds.data.documents import Document, Span
from grandrounds.data.words import PLAIN, TextRules, TokenRule


def tokenized(*sentences: str) -> Document:
    text = "\n".join(sentences)
    ends = [sum(len(s) + 1 for s in sentences[: i + 1]) - 1 for i in range(len(sentences))]
    spans = tuple(Span(end - len(s), end) for s, end in zip(sentences, ends, strict=True))
    return Document("d", text, spans, attributes={"tokens": "between white space"})


def words(rules: TextRules, text: str) -> list[list[str]]:
    document = Document("x", text)
    return [rules.pattern(document).findall(text[a:b]) for a, b in rules.sentences(document)]


WHOLE = tokenized("COVID-19 rose to 0.5 in well-fed men , and 3 / 4 of women .", "T-cells at 1.5 , ( mild ).")
PARTED = tokenized(
    "COVID - 19 rose to 0 . 5 in well - fed men , and 3 / 4 of women .", "T - cells at 1 . 5 , ( mild ) ."
)


def test_a_rule_is_which_signs_stay_within_words_and_no_words() -> None:
    assert TokenRule.learn(s for s in WHOLE.text.split("\n")) == TokenRule(("0.0", "a-0", "a-a"), runs=True)
    assert TokenRule.learn(s for s in PARTED.text.split("\n")) == TokenRule((), runs=False)
    rules = TextRules.learn([WHOLE])
    assert TextRules.from_json(json.loads(json.dumps(rules.as_json()))) == rules
    assert "COVID" not in json.dumps(rules.as_json())


def test_running_text_is_split_as_the_corpus_was() -> None:
    text = "COVID-20 (in 0.7 of well-off men). T-cells, 3/4."
    assert words(TextRules.learn([WHOLE]), text) == [
        ["COVID-20", "(", "in", "0.7", "of", "well-off", "men", ")."],
        ["T-cells", ",", "3", "/", "4", "."],
    ]
    assert words(TextRules.learn([PARTED]), text)[1] == ["T", "-", "cells", ",", "3", "/", "4", "."]
    assert words(PLAIN, text)[1] == ["T", "-", "cells", ",", "3", "/", "4", "."]


@pytest.mark.parametrize("document", [WHOLE, PARTED])
def test_the_same_sentences_as_raw_text_have_the_same_sentences_and_words(document: Document) -> None:
    rules = TextRules.learn([document])
    assert rules.sentences(Document("x", document.text)) == document.sentences
    assert words(rules, document.text) == [document.text[a:b].split() for a, b in document.sentences]


def test_stops_within_a_line_of_tokens_end_no_sentence() -> None:
    document = tokenized("Grade B vs . Grade C was 0 . 05 . The end .")
    assert len(TextRules.learn([document]).sentences(Document("x", document.text))) == 1
    assert len(PLAIN.sentences(Document("x", document.text))) > 1


@pytest.mark.parametrize(
    ("text", "sentences", "breaks"),
    [
        ("Aspirin\nhelped. It did.", ((0, 15), (16, 23)), "paragraph"),
        ("A title\nIt did.", ((0, 7), (8, 15)), "line"),
        ("One\n\nsentence.", ((0, 14),), "none"),
        ("No line ends here.", ((0, 18),), "paragraph"),
        ("No sentences\nare given.", (), "paragraph"),
    ],
)
def test_line_ends_end_sentences_if_they_did_in_the_corpus(
    text: str, sentences: tuple[tuple[int, int], ...], breaks: str
) -> None:
    document = Document("d", text, tuple(Span(*span) for span in sentences))
    assert TextRules.learn([document]) == TextRules(breaks, None)  # type: ignore[arg-type]


def test_of_corpora_that_differ_words_are_the_plain_ones() -> None:
    assert TextRules.learn([WHOLE, Document("d", "Raw text.", (Span(0, 9),))]).tokens is None
    assert TextRules.learn([]) == PLAIN
