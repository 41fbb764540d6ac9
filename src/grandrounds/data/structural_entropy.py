"""Structural entropy of a document, by which FedLCC (2024, Section 3.5, Eq. 15) splits documents over unlike sites.

The graph: nodes are entities, mentions and sentences. Edges: two mentions in the same sentence, a mention and its
entity, a mention and its sentence, an entity and each sentence that mentions it, adjacent sentences, and from head to
tail of each candidate pair. A mention that belongs to two entities is a node for each.

    H = - sum_i p_i log p_i

paper  p_i is the share of nodes that have the i-th distinct degree, edges undirected; natural log
code   p_i is the out-degree of node i over the number of nodes, which do not sum to 1; log2 (as the public code has it)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.pairs import Pair, candidate_pairs, related_types
from grandrounds.errors import ConfigError

READINGS = ("paper", "code")


@dataclass(frozen=True)
class Spread:
    """Of H over the documents of a site."""

    min: float
    mean: float
    max: float

    @classmethod
    def of(cls, values: Collection[float]) -> Spread:
        return cls(min(values), fmean(values), max(values))


def entropies(documents: Sequence[Document], reading: str = "paper") -> list[float]:
    """H of every document; where a file lists no pairs, they are those of the types that relations here join."""
    types = related_types(documents)
    return [structural_entropy(document, candidate_pairs(document, types), reading) for document in documents]


def structural_entropy(document: Document, pairs: Iterable[Pair], reading: str = "paper") -> float:
    """H of one document's graph; 0 where nothing is connected."""
    counts = np.array(degrees(document, pairs, directed=reading == "code"), dtype=np.float64)
    shares = counts if reading == "code" else np.array(list(Counter(counts.tolist()).values()), dtype=np.float64)
    p = shares[shares > 0] / max(1, len(counts))
    return float(-(p * (np.log2(p) if reading == "code" else np.log(p))).sum()) + 0.0  # not -0.0


def degrees(document: Document, pairs: Iterable[Pair], *, directed: bool) -> list[int]:
    """Of every entity, then every mention, then every sentence; `directed` counts a pair at its head alone."""
    partners: dict[str, set[str]] = {entity.id: set() for entity in document.entities}
    for head, tail in pairs:
        if head != tail:
            partners[head].add(tail)
            if not directed:
                partners[tail].add(head)
    where = [_sentence(document, mention) for mention in document.mentions]
    at = {entity.id: [where[mention] for mention in entity.mentions] for entity in document.entities}
    mentions = Counter(sentence for held in at.values() for sentence in held)
    visitors = Counter(sentence for held in at.values() for sentence in set(held))
    last = len(document.sentences) - 1
    of_entities = [len(at[id]) + len(set(at[id]) - {None}) + len(partners[id]) for id in at]
    # The other mentions of its sentence, the sentence, its entity.
    of_mentions = [1 if i is None else mentions[i] + 1 for held in at.values() for i in held]
    of_sentences = [mentions[i] + visitors[i] + (i > 0) + (i < last) for i in range(last + 1)]
    return of_entities + of_mentions + of_sentences


def _sentence(document: Document, mention: Mention) -> int | None:
    """The sentence that it stands or at least starts in."""
    return document.sentence_of(Span(mention.start, mention.start + 1))


def intervals(values: Sequence[float], count: int) -> list[float]:
    """The inner edges of so many intervals of equal width, from the least value to the greatest."""
    return [float(edge) for edge in np.linspace(min(values), max(values), count + 1)[1:-1]]


def interval_of(value: float, edges: Sequence[float]) -> int:
    """Which interval, from 0 on; a value on an edge belongs to the upper one."""
    return int(np.searchsorted(edges, value, side="right"))


def check_edges(edges: Sequence[float], sites: int | None) -> None:
    if not edges or not all(a < b for a, b in pairwise(edges)) or not np.isfinite(edges).all():
        raise ConfigError(
            "partition.edges must be rising numbers: the values of H at which one site ends and the next begins"
        )
    if sites is not None and sites != len(edges) + 1:
        raise ConfigError(f"{len(edges)} edges make {len(edges) + 1} sites, not {sites}; remove partition.sites")
