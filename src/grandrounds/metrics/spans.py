"""Strict and relaxed F1 of mentions (FedNER, section 4.1), from counts that can be summed over sites; spans as tags.

    strict    a mention found is right if a gold one has the same first word, last word and type
    relaxed   precision is the share of mentions found that share a word with a gold one of their type,
              recall the share of gold mentions that share a word with one found of their type

One mention found may so cover two gold ones, and the reverse: neither is matched to a single partner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from grandrounds.data.formats.conll import Tag, decode, encode
from grandrounds.errors import DataError, GrandRoundsError, unknown
from grandrounds.metrics.relation_f1 import precision_recall_f1

Counts = Mapping[str, float]
Span = tuple[int, int, str]
"""First word, word after the last, type."""
SCHEMES = {"BIO": "BI", "BIOES": "BIES", "IO": "I"}
"""The letters of each scheme's tags beside O."""


def tag_names(types: Sequence[str], scheme: str) -> list[str]:
    """Every tag of a scheme: O, then those of each type in turn."""
    letters = _letters(scheme)
    return ["O", *(f"{letter}-{type}" for type in types for letter in letters)]


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The mentions that tags of any scheme say, broken sequences mended as conlleval and seqeval's default mode do."""
    return decode([Tag(*split(tag)) for tag in tags])


def tags_of(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """The tags of a sentence of so many words. IO can't part neighbours of a type: they come back as one."""
    ordered = sorted(spans)
    _letters(scheme)
    if any(not 0 <= first < past <= length for first, past, _ in ordered):
        raise DataError(f"a mention is empty or lies outside of its sentence's {length} words")
    if any(right[0] < left[1] for left, right in pairwise(ordered)):
        raise DataError("two mentions overlap, which tags can't say; keep the longer one")
    tags = encode(length, ordered, "BIO" if scheme == "IO" else scheme)
    return [f"I{tag[1:]}" if tag[0] == "B" else tag for tag in tags] if scheme == "IO" else tags


@lru_cache(maxsize=1024)
def split(tag: str) -> tuple[str, str]:
    """Letter and type: B-Drug is B and Drug, O is O and nothing."""
    letter, _, type = tag.partition("-")
    if letter not in ("O", "B", "I", "E", "S") or (letter == "O") != (type == ""):
        raise GrandRoundsError(f"'{tag}' is no tag; write O, or B, I, E or S with a type, as in B-Drug")
    return letter, type


def span_counts(
    gold: Sequence[Iterable[Span]], found: Sequence[Iterable[Span]], types: Sequence[str]
) -> dict[str, float]:
    """Of sentences' mentions, per type: tp, fp, fn; how many found ones touch a gold one, and gold ones a found one;
    overall: n sentences, and in how many all is right."""
    counts = {"n": float(len(gold)), "right": 0.0}
    counts.update({f"{part}/{type}": 0.0 for part in PARTS for type in types})
    for there, said in zip(map(set, gold), map(set, found), strict=True):
        strange = {span[2] for span in there | said}.difference(types)
        if strange:
            raise GrandRoundsError(unknown("entity type", min(strange), types))
        counts["right"] += there == said
        for part, spans in (
            ("tp", there & said),
            ("fp", said - there),
            ("fn", there - said),
            ("touching", {span for span in said if _touches(span, there)}),
            ("touched", {span for span in there if _touches(span, said)}),
        ):
            for *_, type in spans:
                counts[f"{part}/{type}"] += 1
    return counts


PARTS = ("tp", "fp", "fn", "touching", "touched")


def span_score(counts: Counts, types: Sequence[str]) -> dict[str, Any]:
    """Precision, recall and F1, strict and relaxed, micro and per type; of types that were not counted, nothing."""
    per_type = {
        type: tuple(counts[f"{part}/{type}"] for part in PARTS) for type in types if f"{PARTS[0]}/{type}" in counts
    }
    return {
        **_strict_and_relaxed(*(sum(column) for column in zip(*per_type.values(), strict=True))),
        "accuracy": counts["right"] / counts["n"] if counts["n"] else 0.0,
        "n": int(counts["n"]),
        "baseline": "no mention",
        "baseline_f1": 0.0,
        "per_class": {
            type: {**_strict_and_relaxed(*parts), "support": int(parts[0] + parts[2])}
            for type, parts in per_type.items()
        },
    }


def _strict_and_relaxed(tp: float, fp: float, fn: float, touching: float, touched: float) -> dict[str, float]:
    precision = touching / (tp + fp) if tp + fp else 0.0
    recall = touched / (tp + fn) if tp + fn else 0.0
    return {
        **precision_recall_f1(tp, fp, fn),
        "relaxed_precision": precision,
        "relaxed_recall": recall,
        "relaxed_f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
    }


def _touches(span: Span, others: Iterable[Span]) -> bool:
    first, past, type = span
    return any(first < other[1] and other[0] < past and type == other[2] for other in others)


def _letters(scheme: str) -> str:
    if scheme not in SCHEMES:
        raise GrandRoundsError(unknown("tag scheme", scheme, SCHEMES))
    return SCHEMES[scheme]
