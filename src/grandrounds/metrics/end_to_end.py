"""End-to-end F1 of relations: the mentions are found, too. Counts that can be summed over documents and sites.

    strict     a relation is found if one of its type joins mentions with the same words and types at both ends
    relaxed    the same where mentions share a word and have the same type

An end is a set of mentions: one where relations join mentions, all that name the concept where they join concepts. Ends
agree if some mention of the one is, or touches, some mention of the other. Each gold relation counts once, however
often it is found; what is found again is neither right nor wrong.

Each gold relation that was missed, and each wrong one that was found, has one cause: the first of these that holds.

    mention     an end of it has no mention of the same words on the other side
    type        an end has, but of another type
    relation    the other side relates the same two ends, but not in this way
    pair        the other side does not relate them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grandrounds.errors import GrandRoundsError, unknown
from grandrounds.metrics.relation_f1 import precision_recall_f1
from grandrounds.metrics.spans import Span

Counts = Mapping[str, float]
End = frozenset[Span]
CAUSES = ("mention", "type", "relation", "pair")
PARTS = ("tp", "fp", "fn")


@dataclass(frozen=True)
class Statement:
    """A relation between two things, each by its mentions."""

    type: str
    head: End
    tail: End


@dataclass(frozen=True)
class Annotation:
    """What a document says, or what was found in it."""

    mentions: frozenset[Span]
    relations: Sequence[Statement]


def relation_counts(
    gold: Sequence[Annotation], found: Sequence[Annotation], relations: Sequence[str], ordered: bool = True
) -> dict[str, float]:
    """Per type of relation: tp, fp, fn, strict and relaxed; the causes of errors; overall: n documents, and in how many
    all relations are right. Without order, (a, b) is (b, a)."""
    counts = {"n": float(len(gold)), "right": 0.0}
    counts |= {f"{kind}{part}/{relation}": 0.0 for kind in ("", "relaxed ") for part in PARTS for relation in relations}
    counts |= {f"{what} {cause}": 0.0 for what in ("missed", "wrong") for cause in CAUSES}
    for there, said in zip(gold, found, strict=True):
        if strange := {one.type for one in (*there.relations, *said.relations)}.difference(relations):
            raise GrandRoundsError(unknown("relation type", min(strange), relations))
        for kind, agree in (("", _same), ("relaxed ", _touching)):
            missed = _without(there.relations, said.relations, agree, ordered)
            wrong = _without(said.relations, there.relations, agree, ordered)
            for part, some in (("tp", there.relations), ("fn", missed), ("fp", wrong)):
                for one in some:
                    counts[f"{kind}{part}/{one.type}"] += 1
            for one in missed:
                counts[f"{kind}tp/{one.type}"] -= 1
            if not kind:
                counts["right"] += not missed and not wrong
                for one in missed:
                    counts[f"missed {cause_of(one, said)}"] += 1
                for one in wrong:
                    counts[f"wrong {cause_of(one, there)}"] += 1
    return counts


def cause_of(one: Statement, other: Annotation) -> str:
    """Why a relation is not among the others."""
    words = {span[:2] for span in other.mentions}
    if any(words.isdisjoint(span[:2] for span in end) for end in (one.head, one.tail)):
        return "mention"
    if any(other.mentions.isdisjoint(end) for end in (one.head, one.tail)):
        return "type"
    related = any(_joins(one, elsewhere, _same, ordered=False) for elsewhere in other.relations)
    return "relation" if related else "pair"


def relation_score(counts: Counts, relations: Sequence[str]) -> dict[str, Any]:
    """Precision, recall and F1, strict and relaxed, micro and per type; and the causes of errors: of what was missed as
    shares of the gold relations, which add up to 1 - recall, and of what is wrong as shares that add up to
    1 - precision."""
    per_type = {
        relation: {
            **_scored(counts, "", [relation]),
            "relaxed_f1": _scored(counts, "relaxed ", [relation])["f1"],
            "support": int(counts[f"tp/{relation}"] + counts[f"fn/{relation}"]),
        }
        for relation in relations
    }
    relaxed = _scored(counts, "relaxed ", relations)
    tp, fp, fn = (sum(counts[f"{part}/{relation}"] for relation in relations) for part in PARTS)
    of = {"missed": max(tp + fn, 1), "wrong": max(tp + fp, 1)}
    causes = {f"{what}_{cause}": counts[f"{what} {cause}"] / of[what] for what in of for cause in CAUSES}
    return {
        **_scored(counts, "", relations),
        **{f"relaxed_{name}": value for name, value in relaxed.items()},
        "accuracy": counts["right"] / counts["n"] if counts["n"] else 0.0,
        "n": int(counts["n"]),
        "baseline": "no relation",
        "baseline_f1": 0.0,
        **causes,
        "per_class": per_type,
    }


def _scored(counts: Counts, kind: str, relations: Sequence[str]) -> dict[str, float]:
    return precision_recall_f1(*(sum(counts[f"{kind}{part}/{relation}"] for relation in relations) for part in PARTS))


Agree = Callable[[End, End], bool]


def _without(some: Iterable[Statement], others: Sequence[Statement], agree: Agree, ordered: bool) -> list[Statement]:
    """Those that are not among the others."""
    return [
        one for one in some if not any(one.type == o.type and _joins(one, o, agree, ordered=ordered) for o in others)
    ]


def _joins(one: Statement, other: Statement, agree: Agree, *, ordered: bool) -> bool:
    """Whether both relate the same two things."""
    if agree(one.head, other.head) and agree(one.tail, other.tail):
        return True
    return not ordered and agree(one.head, other.tail) and agree(one.tail, other.head)


def _same(end: End, other: End) -> bool:
    return not end.isdisjoint(other)


def _touching(end: End, other: End) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] and a[2] == b[2] for a in end for b in other)
