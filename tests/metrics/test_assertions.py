"""Assertions are counted by category, counts of sites add up, and i2b2-2010's names are ours."""

from __future__ import annotations

import pytest

from grandrounds.data.documents import Mention
from grandrounds.errors import GrandRoundsError
from grandrounds.metrics.assertions import assertion_counts, assertion_score, gold_assertion

BOTH = ("negated", "possible")
GOLD = [{"negated"}, {"negated", "possible"}, set(), {"possible"}]
FOUND = [{"negated"}, {"possible"}, {"negated"}, {"possible", "historical"}]


def test_counts_and_scores_by_hand() -> None:
    counts = assertion_counts(GOLD, FOUND, BOTH)
    assert counts == {
        "n": 4, "right": 2,  # the last one too: historical is not asked
        "tp/negated": 1, "fp/negated": 1, "fn/negated": 1,
        "tp/possible": 2, "fp/possible": 0, "fn/possible": 0,
    }  # fmt: skip
    score = assertion_score(counts, BOTH)
    assert (score["precision"], score["recall"], score["f1"]) == (3 / 4, 3 / 4, 3 / 4)
    assert (score["accuracy"], score["n"]) == (0.5, 4)
    assert score["per_class"]["negated"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    assert score["per_class"]["possible"] == {"precision": 1, "recall": 1, "f1": 1, "support": 2}


def test_counts_of_two_sites_add_up() -> None:
    whole = assertion_counts(GOLD, FOUND, BOTH)
    parts = [assertion_counts(GOLD[some], FOUND[some], BOTH) for some in (slice(0, 1), slice(1, 4))]
    assert whole == {key: sum(part[key] for part in parts) for key in whole}


def test_of_nothing_the_score_is_nought() -> None:
    assert assertion_score(assertion_counts([], [], BOTH), BOTH)["f1"] == 0


@pytest.mark.parametrize(
    ("assertion", "expected"),
    [
        ("present", set()),
        ("absent", {"negated"}),
        ("possible", {"possible"}),
        ("hypothetical", {"conditional"}),
        ("conditional", {"conditional"}),
        ("associated_with_someone_else", {"family"}),
    ],
)
def test_i2b2s_assertions_are_our_categories(assertion: str, expected: set[str]) -> None:
    assert gold_assertion(Mention(0, 1, "problem", "T1", attributes={"assertion": assertion})) == expected


def test_a_mention_without_an_assertion_has_no_gold_and_an_unknown_one_is_refused() -> None:
    assert gold_assertion(Mention(0, 1, "test", "T1")) is None
    with pytest.raises(GrandRoundsError, match="absnt"):
        gold_assertion(Mention(0, 1, "problem", "T1", attributes={"assertion": "absnt"}))
