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


def macro_f1(counts: Counts, labels: Sequence[str]) -> float:
    """The mean of the F1 of all classes, None among them, where each example has one class."""
    tp, fp, fn = ([counts[f"{part}/{label}"] for label in labels[1:]] for part in ("tp", "fp", "fn"))
    right = counts["right"] - sum(tp)  # of None
    there, said = (counts["n"] - sum(tp) - sum(wrong) for wrong in (fn, fp))
    scores = [
        precision_recall_f1(*of)["f1"] for of in ((right, said - right, there - right), *zip(tp, fp, fn, strict=True))
    ]
    return sum(scores) / len(scores)


def pair_counts(
    gold: NDArray[np.bool_],
    predicted: NDArray[np.bool_],
    relations: Sequence[str],
    within: NDArray[np.bool_],
    seen: NDArray[np.bool_] | None = None,
    outside: NDArray[np.int64] | None = None,
) -> dict[str, float]:
    """The same where a pair may have several relations, [pairs, relations]: beside the classes, pairs that some
    sentence names together (`within`) and those that none does, and what is right and stands in the training data.
    What holds `outside` of all pairs, [relations], is missed."""
    counts: dict[str, float] = {"n": float(len(gold)), "right": float((gold == predicted).all(axis=1).sum())}
    right, wrong, missed = gold & predicted, predicted & ~gold, gold & ~predicted
    for part, found in (("tp", right), ("fp", wrong), ("fn", missed)):
        counts.update({f"{part}/{r}": float(n) for r, n in zip(relations, found.sum(axis=0), strict=True)})
        for place, held in (("within", within), ("across", ~within)):
            counts[f"{part} {place}"] = float(found[held].sum())
    for relation, number in zip(relations, () if outside is None else outside, strict=outside is not None):
        counts[f"fn/{relation}"] += float(number)
    if seen is not None:
        counts["tp seen"] = float((right & seen).sum())
    return counts


def type_counts(
    gold: NDArray[np.bool_], predicted: NDArray[np.bool_], types: Sequence[str], outside: NDArray[np.int64]
) -> dict[str, float]:
    """tp, fp and fn where answers count as the same if they are of one type; `types` has that of each column."""
    right = wrong = missed = 0.0
    for type in dict.fromkeys(types):
        columns = [i for i, other in enumerate(types) if other == type]
        there, said = gold[:, columns].any(axis=1), predicted[:, columns].any(axis=1)
        right += float((there & said).sum())
        wrong += float((said & ~there).sum())
        missed += float((there & ~said).sum())
    return {"tp types": right, "fp types": wrong, "fn types": missed + float(outside.sum())}


def pair_score(counts: Counts, relations: Sequence[str]) -> dict[str, Any]:
    """As `relation_score`, with F1 within and across sentences and, where what was seen in training is known, DocRED's
    Ign-F1, whose precision leaves out facts of the training data. Where labels are types with an attribute, also F1
    of the types."""
    score = relation_score(counts, ("", *relations))
    for place in ("within", "across"):
        score[f"f1_{place}"] = precision_recall_f1(*(counts[f"{part} {place}"] for part in ("tp", "fp", "fn")))["f1"]
    if "tp types" in counts:
        score["f1_types"] = precision_recall_f1(*(counts[f"{part} types"] for part in ("tp", "fp", "fn")))["f1"]
    if "tp seen" in counts:
        score["ign_f1"] = ignoring_f1(counts, relations)
    return score


def ignoring_f1(counts: Counts, relations: Sequence[str]) -> float:
    """DocRED's official rule: precision without right answers that the training data give away, recall with them."""
    tp, fp, fn = (sum(counts[f"{part}/{r}"] for r in relations) for part in ("tp", "fp", "fn"))
    new = tp - counts["tp seen"]
    precision = new / (new + fp) if new + fp else 0.0
    recall = tp / (tp + fn) if tp + fn else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def best_threshold(gold: NDArray[np.bool_], logits: NDArray[np.float32]) -> float:
    """The logit above which to answer yes for the best micro-F1: half-way between two answers; 0 where nothing is to
    be found. Of equally good ones the highest."""
    order = np.argsort(-logits, axis=None, kind="stable")
    ranked, values = gold.ravel()[order], logits.ravel()[order].astype(np.float64)
    if not ranked.any():
        return 0.0
    f1 = 2 * ranked.cumsum() / (np.arange(1, len(ranked) + 1) + ranked.sum())
    last_of_equals = np.append(values[:-1] > values[1:], True)  # equal answers are all taken or none
    best = int(np.argmax(np.where(last_of_equals, f1, -1.0)))
    below = values[best + 1] if best + 1 < len(values) else values[best] - 1
    return float((values[best] + below) / 2)


def precision_recall_f1(tp: float, fp: float, fn: float) -> dict[str, float]:
    """All three are 0 where nothing was found or nothing was there, as in scikit-learn's zero_division=0."""
    precision = tp / (tp + fp) if tp + fp else 0.0
    recall = tp / (tp + fn) if tp + fn else 0.0
    f1 = 2 * tp / (2 * tp + fp + fn) if tp else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
