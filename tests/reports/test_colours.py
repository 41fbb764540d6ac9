"""A type has one colour on every page."""

from __future__ import annotations

import re

from grandrounds.data.documents import Document, Mention
from grandrounds.data.partition import SiteRow
from grandrounds.reports import plots
from grandrounds.reports.colours import HUES, colour, distinct
from grandrounds.reports.extraction import highlighted


def test_common_types_of_one_kind_share_a_colour_and_kinds_differ() -> None:
    assert colour("treatment") == colour("Drug") == colour("Drugs") == colour("CHEMICAL") == "t0"
    assert colour("problem") == colour("Disease") == "t1"
    assert colour("test") == "t2"
    assert len({colour(name) for name in ("drug", "problem", "test", "anatomy", "dose", "date", "gene")}) == 7


def test_any_other_type_has_a_colour_by_its_name_alone() -> None:
    assert colour("Weather") == colour("Weather")
    assert {colour(name).split()[1] for name in ("Weather", "<b>", "", "\ud800")} == {"dashed"}
    assert len({colour(f"type {i}") for i in range(100)}) == 7


def test_the_colour_does_not_depend_on_what_else_is_on_the_page() -> None:
    mentions = (Mention(0, 1, "test", "T1"), Mention(2, 3, "problem", "T2"))
    both = highlighted(Document("d", "a b", mentions=mentions))
    alone = highlighted(Document("d", "a b", mentions=mentions[1:]))
    assert 'class="m1 t1 l0"' in both
    assert 'class="m0 t1 l0"' in alone


def test_a_chart_has_the_colours_of_the_pages_and_none_twice() -> None:
    assert distinct(["test", "problem", "treatment"]) == [2, 1, 0]
    assert distinct(["Weather", "drug", "treatment"])[1:] == [
        0,
        next(h for h in range(1, HUES) if h != _hue("Weather")),
    ]
    assert sorted(distinct([f"type {i}" for i in range(HUES)])) == list(range(HUES))
    drawn = plots.holdings([SiteRow("mercy", 1, 9, {"problem": 5, "treatment": 4})])
    assert re.findall(r"fill: var\(--(s\d)", drawn)[:2] == ["s1", "s0"]


def _hue(name: str) -> int:
    return int(colour(name)[1])
