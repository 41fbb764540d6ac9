"""Pictures are places in per cent; a page says the same in words."""

from __future__ import annotations

import re

import pytest

from grandrounds.web.view.pictures import Curve, Level, Part, bar, by_round
from tests.reports.pages import elements


def test_a_curve_lies_between_round_one_and_the_last_one_planned() -> None:
    drawn = by_round("F1", [Curve("test set", [(1, 0.2), (6, 0.4)], "s0", kept=6)], [Level("bar", 0.3)], 11)
    assert re.search(r'points="0.0,(\S+) 500.0,(\S+)"', drawn)
    low, high = re.findall(r'points="0.0,(\S+) 500.0,(\S+)"', drawn)[0]
    assert (low, high) == ("1000.0", "0.0")
    assert drawn.count('class="dot s0"') == 2
    assert drawn.count('class="ring s0"') == 1
    assert "test set, round 6: 0.400" in drawn
    assert "bar 0.300" in drawn
    assert re.findall(r'text-anchor="end">(0\.\d+)<', drawn) == ["0.20", "0.25", "0.30", "0.35", "0.40"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((0.5, 0.5), ["0.4950", "0.4975", "0.5000", "0.5025", "0.5050"]),
        ((0.0, 1.0), ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        ((3.1, 12.0), ["2.5", "5.0", "7.5", "10.0", "12.5"]),
        ((0.0, 900.0), ["0", "250", "500", "750", "1000"]),
    ],
)
def test_ticks_are_round_and_span_the_values(values: tuple[float, float], ticks: list[str]) -> None:
    drawn = by_round("x", [Curve("c", list(enumerate(values, 1)), "s0")], [], 2)
    assert re.findall(r'x="8.0%"[^>]*>([\d.]+)<', drawn) == ticks


def test_one_round_alone_is_drawn() -> None:
    assert by_round("F1", [Curve("c", [(1, 0.5)], "s0")], [], 1).count("dot") == 1


def test_a_bar_is_in_shares_and_its_words_are_escaped() -> None:
    drawn = bar([Part(0.25, 0.75, "ok", "<b>")], '"><script>')
    assert 'x="25.00%" width="50.00%"' in drawn
    assert set(elements(drawn)) == {"svg", "rect", "title"}
