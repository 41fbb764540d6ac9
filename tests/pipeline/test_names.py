"""Spellings of one name become the same; names of different things do not."""

from __future__ import annotations

import pytest

from grandrounds.pipeline.names import contradict, normalise, trigrams


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Myocardial  Infarction", "myocardial infarction"),
        ("Infarction, Myocardial", "myocardial infarction"),
        ("Leukemia, Myeloid, Acute", "acute myeloid leukemia"),
        ("1,2-dichloroethane", "1 2 dichloroethane"),  # no space: not inverted
        ("Sjögren’s syndrome", "sjogren syndrome"),
        ("Parkinson's disease", "parkinson disease"),
        ("TNF-α", "tnf alpha"),
        ("TNFα", "tnf alpha"),
        ("β-Blockers", "beta blocker"),
        ("αβ T cell", "alpha beta t cell"),
        ("µ-opioid", "mu opioid"),  # the micro sign, not the letter
        ("καρδιά", "καρδια"),  # a Greek word is no Greek letter
        ("ﬁbrosis", "fibrosis"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("deformities", "deformity"),
        ("abscess", "abscess"),
        ("sepsis", "sepsis"),
        ("thrombus", "thrombus"),
        ("gas", "gas"),
        ("高血圧", "高血圧"),
        ("がん", "か\u3099ん"),  # a voicing mark is no accent
        ("--- +", ""),
        ("", ""),
    ],
)
def test_normalised(name: str, key: str) -> None:
    assert normalise(name) == key
    assert normalise(key) == key, "nothing is left to take away"


def test_trigrams_mark_where_a_name_begins_and_ends() -> None:
    assert trigrams("gout") == {" go", "gou", "out", "ut "}
    assert trigrams("k") == {" k "}
    assert trigrams("aaaaa") == {" aa", "aaa", "aa "}


@pytest.mark.parametrize(
    ("one", "other", "different"),
    [
        ("type 1 diabetes", "type 2 diabetes", True),
        ("interleukin 2", "interleukin", True),
        ("hypokalemia", "hyperkalemia", True),
        ("bradycardia", "tachycardia", True),
        ("type 2 diabetes", "diabetes type 2", False),
        ("hypertension", "hypertensions", False),
    ],
)
def test_numbers_and_opposites_contradict(one: str, other: str, different: bool) -> None:
    assert contradict(one, other) is different
