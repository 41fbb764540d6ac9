"""The facts behind synthetic notes: which treatment, test or problem stands in which relation to which problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from random import Random
from typing import NamedTuple

from grandrounds.data.synthetic.vocabulary import CONCEPTS, PROBLEM, SPECIALTIES, TEST, TREATMENT

HEAD_TYPE = {
    **dict.fromkeys(("TrIP", "TrWP", "TrCP", "TrAP", "TrNAP"), TREATMENT),
    **dict.fromkeys(("TeRP", "TeCP"), TEST),
    "PIP": PROBLEM,
}
"""The eight relations of i2b2-2010 with the type of their head; the tail is always a problem."""
RELATIONS = tuple(HEAD_TYPE)

_FACTS_A_SPECIALTY = {
    "TrAP": 14,
    "TrIP": 12,
    "TrWP": 10,
    "TrCP": 12,
    "TrNAP": 12,
    "TeRP": 16,
    "TeCP": 14,
    "PIP": 18,
}


class Fact(NamedTuple):
    """A line of the knowledge base; head and tail are concept ids."""

    head: str
    relation: str
    tail: str


def invent_facts(seed: int) -> tuple[Fact, ...]:
    """Facts within each specialty, at most one a pair; PIP is symmetric, so it is listed in both directions.

    They are drawn at random: that the names are medical must not let a model guess them.
    """
    facts: list[Fact] = []
    for specialty in SPECIALTIES:
        rng = Random(f"facts/{seed}/{specialty}")
        of_type = {
            type: [c.id for c in CONCEPTS.values() if (c.type, c.specialty) == (type, specialty)]
            for type in (TREATMENT, TEST, PROBLEM)
        }
        pairs = {type: list(product(of_type[type], of_type[PROBLEM])) for type in (TREATMENT, TEST)}
        pairs[PROBLEM] = list(combinations(of_type[PROBLEM], 2))
        for unused in pairs.values():
            rng.shuffle(unused)
        for relation, count in _FACTS_A_SPECIALTY.items():
            drawn = [pairs[HEAD_TYPE[relation]].pop() for _ in range(count)]
            facts += [Fact(head, relation, tail) for head, tail in drawn]
            facts += [Fact(tail, relation, head) for head, tail in drawn if relation == "PIP"]
    return tuple(facts)


@dataclass(frozen=True)
class Chart:
    """What may be written about a patient: some concepts, and the facts between them."""

    concepts: tuple[str, ...]
    facts: tuple[Fact, ...]

    @cached_property
    def of_type(self) -> Mapping[str, tuple[str, ...]]:
        return {
            type: tuple(id for id in self.concepts if CONCEPTS[id].type == type) for type in (PROBLEM, TREATMENT, TEST)
        }

    @cached_property
    def _labels(self) -> Mapping[frozenset[str], str]:
        return {frozenset((fact.head, fact.tail)): fact.relation for fact in self.facts}

    def label(self, one: str, other: str) -> str | None:
        """The relation of the two concepts, whichever is the head."""
        return self._labels.get(frozenset((one, other)))

    def heads(self, relation: str) -> list[str]:
        return sorted({fact.head for fact in self.facts if fact.relation == relation})


def chart(concepts: Iterable[str], facts: Iterable[Fact]) -> Chart:
    """The chart of some concepts, with those facts that concern no others."""
    kept = tuple(sorted(concepts))
    known = set(kept)
    return Chart(kept, tuple(fact for fact in facts if fact.head in known and fact.tail in known))
