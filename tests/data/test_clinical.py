"""Notes as sections and sentences: headings and items stand alone, marks are whole, no character is lost."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from grandrounds.data.clinical import MARK, Section, clinical_sentences, one_a_line, sections
from grandrounds.data.documents import Span

NOTE = """Admission Date:  [**2151-7-16**]       Discharge Date:  [**2151-8-4**]

Service: ADU

History of Present Illness:
Mr. [**Known lastname 1234**] is a 42 year old man who was
seen by Dr. [**First Name (STitle) 7. of**] [**Hospital1 18**]. He denies
chest pain.

MEDICATIONS ON ADMISSION:
1. Aspirin 81 mg p.o. q.d.
2. Metoprolol 25 mg
   twice daily. Held today.
- Insulin
"""


def surfaces(text: str) -> list[str]:
    return one_a_line(text, clinical_sentences(text)).splitlines()


def test_a_note_gives_its_headings_sentences_and_items_a_line_each() -> None:
    assert surfaces(NOTE) == [
        "Admission Date:",
        "[**2151-7-16**] Discharge Date: [**2151-8-4**]",
        "Service:",
        "ADU",
        "History of Present Illness:",
        "Mr. [**Known lastname 1234**] is a 42 year old man who was seen by Dr. [**First Name (STitle) 7. of**] "
        "[**Hospital1 18**].",
        "He denies chest pain.",
        "MEDICATIONS ON ADMISSION:",
        "1. Aspirin 81 mg p.o. q.d.",
        "2. Metoprolol 25 mg twice daily.",
        "Held today.",
        "- Insulin",
    ]


def test_sections_are_all_of_the_text_in_order() -> None:
    text = "Seen today. PLAN: Rest. ALLERGIES: None."
    found = sections(text)
    assert found == (
        Section(None, Span(0, 12)),
        Section(Span(12, 17), Span(17, 24)),
        Section(Span(24, 34), Span(34, 40)),
    )
    assert surfaces(text) == ["Seen today.", "PLAN:", "Rest.", "ALLERGIES:", "None."]


@pytest.mark.parametrize(
    "heading",
    [
        "Assessment/Plan:",
        "Assessment/Plan (Brief):",
        "Impression/Plan(A):",
        "Time of/Date of Birth:",
        "Medications/(Home):",
        "Labs/#A:",
        "History and/or Findings:",
    ],
)
def test_slashes_in_a_heading(heading: str) -> None:
    assert surfaces(f"{heading} None.") == [heading, "None."]


def test_a_row_of_slashes_takes_about_as_long_as_words() -> None:
    def seconds(text: str) -> float:
        begun = time.perf_counter()
        clinical_sentences(text)
        return time.perf_counter() - begun

    for count in (25, 2500):  # the first would be slow enough to tell, the second would never end
        rows = [f"{'A/' * count} done", f"A{'/' * 2 * count} done", f"{'A/(' * count} done", f"{'of/' * count} done"]
        ordinary = min(seconds("It is " * (count // 3)) for _ in range(5))
        assert max(min(seconds(text) for _ in range(2)) for text in rows) < 50 * ordinary


def test_text_without_a_heading_is_one_section() -> None:
    assert sections("all well\nat 10:30") == (Section(None, Span(0, 17)),)
    assert sections("  \n") == ()


@pytest.mark.parametrize("inside", ["Hospital. The", "Name\nHISTORY: x", "1. a\n2. b", "A. B! C? D", ""])
def test_a_mark_is_never_cut(inside: str) -> None:
    mark = f"[**{inside}**]"
    text = f"He came to {mark} at noon. PLAN: {mark} Then {mark}"
    assert len(MARK.findall(text)) == 3
    for mark_at in (span.span() for span in MARK.finditer(text)):
        assert any(start <= mark_at[0] and mark_at[1] <= end for start, end in clinical_sentences(text))


def test_a_mark_that_does_not_end_takes_nothing_with_it() -> None:
    assert surfaces("See [** there. Then came [**Name**]. Done.") == [
        "See [** there.",
        "Then came [**Name**].",
        "Done.",
    ]


def test_nothing_but_white_space_is_lost_whatever_the_text() -> None:
    draw = random.Random(4)
    parts = [
        "PLAN:",
        "Plan:",
        "Dr. ",
        "\n",
        "\n\n",
        "1. ",
        "- ",
        " ",
        "[**",
        "**]",
        "x. Y",
        "a.b",
        "42",
        "\t",
        "?!",
        "é",
    ]
    for _ in range(500):
        text = "".join(draw.choice(parts) for _ in range(draw.randrange(1, 40)))
        spans = clinical_sentences(text)
        assert all(a.end <= b.start for a, b in pairwise(spans))
        kept = "".join(one_a_line(text, spans).split())
        assert kept == "".join(text.split())
