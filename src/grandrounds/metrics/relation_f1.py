"""Micro-averaged F1 of relation extraction, from counts that can be summed over sites.

The class 'None' (label 0) is what is left when nothing holds: it counts in accuracy only. With one other class this
is the positive-class F1 of GAD and EU-ADR; with eight it is i2b2-2010's micro-F1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = Mapping[str, float]


def relation_counts(gold: NDArray[np.int64], predicted: NDArray[np.int64], labels: Sequence[str]) -> dict[str, float]:
    """Per class but None: tp, fp, fn; overall: n examples, and how many were right."""
    confusion = np.bincount(gold * len(labels) + predicted, minlength=len(labels) ** 2).reshape(len(labels), -1)
    counts: dict[str, float] = {"n": float(len(gold)), "right": float(np.trace(confusion))}
    for c, label in enumerate(labels[1:], start=1):
        tp = confusion[c, c]
        counts[f"tp/{label}"] = float(tp)
        counts[f"fp/{label}"] = float(confusion[:, c].sum() - tp)
        counts[f"fn/{label}"] = float(confusion[c].sum() - tp)
    return counts


def relation_score(counts: Counts, labels: Sequence[str]) -> dict[str, Any]:
    """Precision, recall and F1, micro and per class, beside the trivial baseline's."""
    tp, fp, fn = ({label: counts[f"{part}/{label}"] for label in labels[1:]} for part in ("tp", "fp", "fn"))
    support = {label: tp[label] + fn[label] for label in labels[1:]}
    commonest = max(support, key=lambda label: support[label])
    n, positives = counts["n"], sum(support.values())
    return {
        **precision_recall_f1(sum(tp.values()), sum(fp.values()), sum(fn.values())),
        "accuracy": counts["right"] / n if n else 0.0,
        "n": int(n),
        "baseline": f"all '{commonest}'",
        # Answering the commonest relation everywhere is right as often as it holds.
        "baseline_f1": precision_recall_f1(support[commonest], n - support[commonest], positives - support[commonest])[
            "f1"
        ],
        "per_class": {
            label: {**precision_recall_f1(tp[label], fp[label], fn[label]), "support": int(support[label])}
            for label in labels[1:]
        },
    }


def precision_recall_f1(tp: float, fp: float, fn: float) -> dict[str, float]:
    """All three are 0 where nothing was found or nothing was there, as in scikit-learn's zero_division=0."""
    precision = tp / (tp + fp) if tp + fp else 0.0
    recall = tp / (tp + fn) if tp + fn else 0.0
    f1 = 2 * tp / (2 * tp + fp + fn) if tp else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
