"""Structural entropy from an adjacency matrix, which shares nothing with ours."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from grandrounds.data.documents import Document


def by_matrix(document: Document, pairs: Iterable[tuple[str, str]], reading: str) -> float:
    """H from the adjacency matrix, an edge at a time; every mention of one entity and inside a sentence."""
    entities = {entity.id: node for node, entity in enumerate(document.entities)}
    first, count = len(entities), len(document.mentions)
    matrix = np.zeros((first + count + len(document.sentences),) * 2)
    at = [next(i for i, s in enumerate(document.sentences) if s.start <= m.start < s.end) for m in document.mentions]
    for entity in document.entities:
        for m in entity.mentions:
            sentence = first + count + at[m]
            for a, b in ((entities[entity.id], first + m), (first + m, sentence), (entities[entity.id], sentence)):
                matrix[a, b] = matrix[b, a] = 1
    for m in range(count):
        for other in range(count):
            matrix[first + m, first + other] = m != other and at[m] == at[other]
    for sentence in range(first + count, len(matrix) - 1):
        matrix[sentence, sentence + 1] = matrix[sentence + 1, sentence] = 1
    for head, tail in pairs:
        matrix[entities[head], entities[tail]] = 1
    if reading == "code":
        p = matrix.sum(axis=1) / len(matrix)
        return float(-np.sum(p * np.log2(p)))
    p = np.unique(np.maximum(matrix, matrix.T).sum(axis=1), return_counts=True)[1] / len(matrix)
    return float(-np.sum(p * np.log(p)))
