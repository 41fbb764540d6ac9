"""Precision, recall and F1 of assertions by category, from counts that can be summed over sites.

A mention may have several categories; each is a yes or no of its own. i2b2-2010 gives a problem exactly one, which
`OF_I2B2` names in our words; `present` is none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from grandrounds.data.documents import Mention
from grandrounds.errors import GrandRoundsError, unknown
from grandrounds.metrics.relation_f1 import precision_recall_f1

OF_I2B2: Mapping[str, str | None] = {
    "present": None,
    "absent": "negated",
    "possible": "possible",
    "conditional": "conditional",
    "hypothetical": "conditional",
    "associated_with_someone_else": "family",
}
"""What i2b2-2010 knows; of the past it says nothing, so `historical` is not scored on it."""


def gold_assertion(mention: Mention) -> frozenset[str] | None:
    """The categories of a mention that was read with its `assertion`; None where it has none, as a treatment has."""
    value = mention.attributes.get("assertion")
    if value is None:
        return None
    if value not in OF_I2B2:
        raise GrandRoundsError(unknown("assertion", value, OF_I2B2))
    category = OF_I2B2[value]
    return frozenset({category} if category else ())


def assertion_counts(
    gold: Sequence[Collection[str]], found: Sequence[Collection[str]], categories: Sequence[str]
) -> dict[str, float]:
    """Of mentions, per category: tp, fp, fn; overall: n mentions, and of how many all is right."""
    counts = {"n": float(len(gold)), "right": 0.0}
    counts.update({f"{part}/{category}": 0.0 for part in ("tp", "fp", "fn") for category in categories})
    scored = set(categories)
    for there, said in zip((scored & set(g) for g in gold), (scored & set(f) for f in found), strict=True):
        counts["right"] += there == said
        for part, some in (("tp", there & said), ("fp", said - there), ("fn", there - said)):
            for category in some:
                counts[f"{part}/{category}"] += 1
    return counts


def assertion_score(counts: Mapping[str, float], categories: Sequence[str]) -> dict[str, Any]:
    """Precision, recall and F1, micro and per category."""
    parts = {category: [counts[f"{part}/{category}"] for part in ("tp", "fp", "fn")] for category in categories}
    return {
        **precision_recall_f1(*(sum(column) for column in zip(*parts.values(), strict=True))),
        "accuracy": counts["right"] / counts["n"] if counts["n"] else 0.0,
        "n": int(counts["n"]),
        "per_class": {
            category: {**precision_recall_f1(tp, fp, fn), "support": int(tp + fn)}
            for category, (tp, fp, fn) in parts.items()
        },
    }
