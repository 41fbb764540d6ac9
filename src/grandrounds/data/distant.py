"""Distant supervision (Mintz et al., ACL 2009): sentences labelled by what a knowledge base says of the pairs in them.

Two mentions in a sentence whose concepts are related by a fact, in that direction, are an instance of its relation,
whether the sentence says so or not. Pairs of the same types that no fact relates are instances of NA; only some of
them are kept, drawn by the seed. A bag is all instances with the same head, relation and tail (FedDS, Section 3).
Nothing but the text at hand and the public facts is needed, so that each site can do it for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, permutations
from math import isfinite
from random import Random
from statistics import fmean, median
from typing import Any

from grandrounds.data.documents import Document, Span
from grandrounds.data.formats.pair_sentence import NA, End, overlap, pair_document
from grandrounds.data.formats.source import Warnings
from grandrounds.data.knowledge_base import KnowledgeBase
from grandrounds.data.pairs import NOT_INCLUDE, PAIRS, Pair
from grandrounds.errors import ConfigError, DataError

NO_CONCEPT = "mentions without a concept, in no pair"
NO_SENTENCE = "mentions in no sentence, or in two, in no pair"
OVERLAPPING = "related pairs of mentions that overlap, left out"
BEYOND = "instances of facts that have more sentences than asked for, left out"
FEW_NA = f"instances of {NA} fewer than asked for, since there are no more unrelated pairs"
_OF_THE_WHOLE = (PAIRS, NOT_INCLUDE, "brat", "tokens")
"""Attributes that say something of a document as it was, not of its sentences."""


@dataclass(frozen=True)
class Instance:
    """Two mentions of a sentence and what relates them."""

    document: int
    sentence: int
    mentions: tuple[int, int]
    head: str
    relation: str
    tail: str

    @property
    def bag(self) -> tuple[str, str, str]:
        return self.head, self.relation, self.tail


@dataclass(frozen=True)
class Labelled:
    """Instances in the order of the text, and the counts of a labelling."""

    instances: tuple[Instance, ...]
    statistics: dict[str, Any]

    def documents(self, documents: Sequence[Document]) -> Iterator[Document]:
        """Each as a document of its own: one sentence, two mentions, and a relation unless NA."""
        numbers: Counter[tuple[int, int]] = Counter()
        for one in self.instances:
            source = documents[one.document]
            numbers[one.document, one.sentence] += 1
            name = f"{source.id}:{one.sentence}:{numbers[one.document, one.sentence]}"
            start, end = source.sentences[one.sentence]
            head, tail = (
                End(Span(source.mentions[m].start - start, source.mentions[m].end - start), source.mentions[m].type, id)
                for m, id in zip(one.mentions, (one.head, one.tail), strict=True)
            )
            kept = {key: value for key, value in source.attributes.items() if key not in _OF_THE_WHOLE}
            yield pair_document(name, source.text[start:end], head, tail, one.relation, {"document": source.id, **kept})


def label(
    documents: Sequence[Document],
    facts: KnowledgeBase,
    warnings: Warnings,
    *,
    na_ratio: float = 1.0,
    seed: int = 1,
    types: Collection[Pair] | None = None,
    max_per_fact: int | None = None,
    step: Callable[[], None] = lambda: None,
) -> Labelled:
    """Instances of all facts found, with `na_ratio` instances of NA for each of them.

    `types` are those of head and tail that may be related, None for any; of a fact at most `max_per_fact` instances
    are kept, drawn by the seed. `step` is called after each document, twice in all.
    """
    if not (isfinite(na_ratio) and na_ratio >= 0):
        raise ConfigError("the NA ratio must be a number of 0 or more")
    random = Random(seed)
    related: list[Instance] = []
    paired: set[Pair] = set()
    unrelated: Counter[Pair] = Counter()
    for i, document in enumerate(documents):
        for pair in _pairs(document, facts, types, warnings):
            related += [Instance(i, pair.sentence, pair.mentions, *fact) for fact in pair.facts]
            if pair.facts:
                paired.add(pair.types)
            else:
                unrelated[pair.types] += 1
        step()
    if not related:
        raise DataError(
            "no sentence holds two mentions that the knowledge base relates; does it write ids as the corpus does? "
            "If only one of them has prefixes (MESH:D001241), ignore them"
        )
    instances = _at_most(related, max_per_fact, random, warnings)
    candidates, wanted = sum(unrelated[pair] for pair in paired), round(na_ratio * len(instances))
    if candidates < wanted:
        warnings[FEW_NA] += wanted - candidates
    drawn = set(random.sample(range(candidates), min(wanted, candidates)))
    number = count()
    for i, document in enumerate(documents):
        for pair in _pairs(document, facts, paired, Counter()) if drawn else ():
            if not pair.facts and next(number) in drawn:
                instances.append(Instance(i, pair.sentence, pair.mentions, pair.ids[0], NA, pair.ids[1]))
        step()
    instances.sort(key=lambda one: (one.document, one.sentence, one.mentions, one.bag))
    return Labelled(tuple(instances), _statistics(documents, instances, facts, candidates))


@dataclass(frozen=True)
class _Pair:
    """Two mentions of a sentence that may be related."""

    sentence: int
    mentions: tuple[int, int]
    types: Pair
    ids: Pair
    """The first id of each."""
    facts: list[tuple[str, str, str]]
    """Head, relation and tail of all that relate them; where there are none, they are a candidate for NA."""


def _pairs(
    document: Document, facts: KnowledgeBase, types: Collection[Pair] | None, warnings: Warnings
) -> Iterator[_Pair]:
    for sentence, held in sorted(_by_sentence(document, facts, warnings).items()):
        for (h, heads), (t, tails) in permutations(held, 2):
            head, tail = document.mentions[h], document.mentions[t]
            if types is not None and (head.type, tail.type) not in types:
                continue
            found = [(a, r, b) for a in heads for b in tails for r in facts.relations.get((a, b), ())]
            if overlap(head, tail):
                if found:
                    warnings[OVERLAPPING] += 1
            elif found or set(heads).isdisjoint(tails):  # two mentions of one thing ask nothing
                yield _Pair(sentence, (h, t), (head.type, tail.type), (heads[0], tails[0]), found)


def _by_sentence(
    document: Document, facts: KnowledgeBase, warnings: Warnings
) -> dict[int, list[tuple[int, tuple[str, ...]]]]:
    """The mentions of each sentence with their ids."""
    found: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
    for m, mention in enumerate(document.mentions):
        names, sentence = facts.ids(mention.concept), document.sentence_of(mention)
        if not names:
            warnings[NO_CONCEPT] += 1
        elif sentence is None:
            warnings[NO_SENTENCE] += 1
        else:
            found.setdefault(sentence, []).append((m, names))
    return found


def _at_most(related: list[Instance], most: int | None, random: Random, warnings: Warnings) -> list[Instance]:
    if most is None:
        return related
    bags: dict[tuple[str, str, str], list[Instance]] = {}
    for one in related:
        bags.setdefault(one.bag, []).append(one)
    kept = [one for bag in bags.values() for one in (random.sample(bag, most) if len(bag) > most else bag)]
    if len(kept) < len(related):
        warnings[BEYOND] += len(related) - len(kept)
    return kept


def _statistics(
    documents: Sequence[Document], instances: Sequence[Instance], facts: KnowledgeBase, candidates: int
) -> dict[str, Any]:
    bags = Counter(one.bag for one in instances)
    sizes = [size for (_, relation, _), size in bags.items() if relation != NA]
    unrelated = sum(one.relation == NA for one in instances)
    return {
        "documents": len(documents),
        "sentences": sum(len(document.sentences) for document in documents),
        "sentences with an instance": len({(one.document, one.sentence) for one in instances}),
        "instances": len(instances),
        "instances of NA": unrelated,
        "share of NA": unrelated / len(instances),
        "unrelated pairs to draw NA from": candidates,
        "facts of the knowledge base": facts.facts,
        "facts found": len(sizes),
        "bags": len(bags),
        "bag size of a fact": {
            "mean": fmean(sizes),
            "median": median(sizes),
            "greatest": max(sizes),
            "of one sentence": sizes.count(1),
        },
        "relation": dict(sorted(Counter(one.relation for one in instances).items())),
        "types": dict(
            sorted(
                Counter(
                    ":".join(documents[one.document].mentions[m].type for m in one.mentions)
                    for one in instances
                    if one.relation != NA
                ).items()
            )
        ),
    }
