"""Schwartz and Hearst's rules; expected pairs are derived by hand from the paper's algorithm."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grandrounds.data.documents import Span
from grandrounds.pipeline.abbreviations import LongForms, abbreviations


def pairs(text: str) -> list[tuple[str, str]]:
    found = abbreviations(text)
    return [(text[short.start : short.end], text[long.start : long.end]) for short, long in found.items()]


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("He has hypertension (HTN).", "HTN", "hypertension"),
        ("He has HTN (hypertension).", "HTN", "hypertension"),
        ("binds the heat shock transcription factor (HSF)", "HSF", "heat shock transcription factor"),
        ("the Gcn5-related N-acetyltransferase (GNAT) family", "GNAT", "Gcn5-related N-acetyltransferase"),
        ("an A-kinase anchor protein (AKAP)", "AKAP", "A-kinase anchor protein"),
        ("mutated adenomatous polyposis coli (APC) gene", "APC", "adenomatous polyposis coli"),
        (
            "a score (attention deficit hyperactivity disorder (ADHD))",
            "ADHD",
            "attention deficit hyperactivity disorder",
        ),
        ("in myocardial infarction (MI, n = 12)", "MI", "myocardial infarction"),
        ("in myocardial infarction (MI; ref. 3)", "MI", "myocardial infarction"),
        ("and MI (acute myocardial infarction)", "MI", "myocardial infarction"),
        ("adverse drug\nreactions (ADRs)", "ADRs", "adverse drug\nreactions"),
        ("5-hydroxytryptamine (5-HT)", "5-HT", "5-hydroxytryptamine"),
        ("Fever. Hypertension was severe; angiotensin II (Ang II)", "Ang II", "angiotensin II"),
        # Each letter takes the rightmost match: the paper's algorithm stops at "transcription".
        ("the thyroid transcription factor 1 (TTF-1)", "TTF-1", "transcription factor 1"),
    ],
)
def test_found(text: str, short: str, long: str) -> None:
    assert pairs(text) == [(short, long)]


@pytest.mark.parametrize(
    "text",
    [
        "the anterior thalamus (ATN)",  # letters out of order
        "cyclophilin seven suppressor (CNS1)",  # a character without a match
        "serotonin (5-HT)",
        "was high (hypertension).",  # the word before has no capital
        "chronic hypertension (n = 5)",
        "the patient (ab)",  # its first letter starts no word within reach
        "renal failure (R)",  # one character
        "hyper tension (hypertensiontn)",  # over ten characters
        "the HTN (HTN)",
        "no (",
        "(HTN) alone",
        "of hypertension. (HTN)",  # another sentence
        "hypertension(HTN)",  # as in poly(A)
        "",
    ],
)
def test_not_found(text: str) -> None:
    assert pairs(text) == []


def test_the_long_form_is_within_min_a_plus_5_and_2_a_words() -> None:
    within, beyond = "alpha w x b", "alpha w x y b"  # 2 * 2 = 4 words for two letters
    assert pairs(f"{within} (ab)") == [("ab", within)]
    assert pairs(f"{beyond} (ab)") == []


def test_a_short_form_means_its_last_definition_else_its_first() -> None:
    text = "MI at once. Myocardial infarction (MI) and MI. Mitral insufficiency (MI), then MI."
    forms = LongForms(text)
    at = [i for i in range(len(text)) if text.startswith("MI", i) and text[i : i + 3] != "Mit"]
    found = [forms.of("MI", i) for i in at]
    assert [text[slice(*span)] if span else None for span in found] == [
        "Myocardial infarction",
        "Myocardial infarction",
        "Myocardial infarction",
        "Mitral insufficiency",
        "Mitral insufficiency",
    ]
    assert forms.of("HTN", 0) is None
    assert LongForms("adverse drug reactions (ADRs)").of("ADR", 99) == Span(0, 22), "a plural is the same abbreviation"


@given(st.text(alphabet="aAbB1 ().,;-\n\ud800é", max_size=80))
def test_any_text_gives_spans_within_it(text: str) -> None:
    for short, long in abbreviations(text).items():
        assert 0 <= long.start < long.end <= len(text)
        assert 2 <= short.end - short.start <= 10 < 10 + long.end - long.start
        assert short.end <= long.start or long.end <= short.start


@pytest.mark.parametrize("piece", ["(", ")", " (", "a", "a ", " (ab)", "alpha beta (AB) "])
def test_a_long_text_takes_seconds(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    abbreviations(text)
    assert time.process_time() - start < 5
