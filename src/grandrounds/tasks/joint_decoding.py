"""Which spans are mentions, of which types, and how they are related: decided together.

A mention of type t is worth log(p(t) / LIKELY), a relation r between two of them log(p(r) / LIKELY). Of all answers in
which mentions don't clash and relations join only types that they may join, the best is the one that is worth most. So
what is less likely than LIKELY is left out, unless a relation makes up for it; and a likely relation can change the
type of a mention.

A relation depends on the types of its own two mentions alone, so only types have to be searched. The search keeps the
BEAM best answers for the spans that it has seen: it is exact while there are no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grandrounds.models.spans import LIKELY
from grandrounds.tasks.ner_coding import Overlaps, clash

BEAM = 64
FLOOR = 0.1
"""A span with a type of this probability is a candidate."""
FEWEST, MOST = 8, 128
"""Candidates of a window: one for every two words, but not fewer or more than these."""
PER_WORD = 3
"""There is room for one mention and for two relations."""
Words = NDArray[np.int64]
"""[spans, 2]: first word, and past the last."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Constraints:
    """Which relations may join mentions of which types."""

    allowed: NDArray[np.bool_]
    """[types, relations, types]: head, relation, tail; 0, no mention or no relation, is never allowed."""
    ordered: bool = True
    """Whether (a, b) and (b, a) are two pairs; else there is only the one whose head comes first."""

    def pairs(self, words: Words, types: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[pairs, 2]: head and tail, as places in the spans, of all that some of their types, [spans, types], let be
        related. No span is related to its own words."""
        asked = types.astype(np.int64) @ self.allowed.any(axis=1) @ types.T > 0
        place = words[:, 0] * (words.max(initial=0) + 1) + words[:, 1]
        allowed = place[:, None] < place if not self.ordered else place[:, None] != place
        return np.argwhere(asked & allowed)


def candidates(probabilities: Numbers, words: int) -> Words:
    """The spans that may be mentions, the likeliest ones, in the order of the text; `probabilities` are [words,
    lengths, types], of a window of so many words."""
    likeliest = probabilities[..., 1:].max(axis=2, initial=0)
    first, length = np.nonzero(likeliest >= FLOOR)
    most = min(max(FEWEST, words // 2), MOST)
    chosen = np.sort(np.argsort(-likeliest[first, length], kind="stable")[:most])
    return np.stack([first[chosen], first[chosen] + length[chosen] + 1], axis=1)


@dataclass(frozen=True)
class Decoded:
    types: NDArray[np.int64]
    """[spans], 0 where there is no mention."""
    relations: NDArray[np.int64]
    """[spans, spans]: head, tail; 0 where there is none."""


def decode(
    words: Words,
    likely: Numbers,
    related: Numbers,
    constraints: Constraints,
    overlaps: Overlaps,
    beam: int = BEAM,
) -> Decoded:
    """The best answer for these spans, from the probabilities of their types, [spans, types], and of relations between
    them, [spans, spans, relations], which are 0 for pairs that are not asked about."""
    with np.errstate(divide="ignore"):
        worth = np.where(likely >= FLOOR, np.log(likely / LIKELY), -np.inf)
        gain = np.log(related / LIKELY).clip(min=0)
    barred = _clashes(words, overlaps)
    sure = (worth[:, 1:].max(axis=1, initial=-np.inf) >= 0) & ~barred.any(axis=(1, 2))
    worth[:, 0] = np.where(sure, -np.inf, 0)  # to leave a sure mention out is never worth more
    order = np.argsort(-likely[:, 1:].max(axis=1, initial=0), kind="stable")
    chosen, values = np.zeros((1, len(words)), dtype=np.int64), np.zeros(1)
    for i, span in enumerate(order):
        seen = order[:i]
        joined = _joined(gain, span, seen, constraints.allowed)
        alike = np.eye(len(worth[0]), dtype=bool)
        alike[0] = False
        other = ~alike
        other[0] = other[:, 0] = False
        joined[barred[span, seen, 0]] += np.where(alike, -np.inf, 0)
        joined[barred[span, seen, 1]] += np.where(other, -np.inf, 0)
        total = values[:, None] + worth[span] + joined[np.arange(i), :, chosen[:, seen]].sum(axis=1)
        best = np.argsort(-total, axis=None, kind="stable")[:beam]
        best = best[total.flat[best] > -np.inf]
        rows, types = np.divmod(best, total.shape[1])
        chosen, values = chosen[rows], total.flat[best]
        chosen[:, span] = types
    types = chosen[0]
    fitting = np.where(constraints.allowed[types][:, :, types].transpose(0, 2, 1), related, 0)
    best_relation = fitting.argmax(axis=2)
    return Decoded(types, np.where(fitting.max(axis=2) >= LIKELY, best_relation, 0))


def to_rows(words: Words, likely: Numbers, related: Numbers, decoded: Decoded, room: int) -> NDArray[np.float32]:
    """[room, 12]: for a window of so many words, end to end, as many mentions (first word, past the last, type,
    probability), then twice as many relations (head, tail, relation, probability), the likeliest if there is no room
    for all. Ends are numbered from 1, so that four zeros say nothing."""
    rows = np.zeros((PER_WORD * room, 4), dtype=np.float32)
    kept = np.flatnonzero(decoded.types)[:room]
    place = {span: number for number, span in enumerate(kept.tolist(), start=1)}
    for row, span in enumerate(kept.tolist()):
        type = decoded.types[span]
        rows[row] = *words[span], type, likely[span, type]
    found = [
        (place[head], place[tail], relation, related[head, tail, relation])
        for head, tail in np.argwhere(decoded.relations).tolist()
        for relation in [decoded.relations[head, tail]]
        if head in place and tail in place
    ]
    found = sorted(found, key=lambda one: -one[3])[: len(rows) - room]
    for row, relation in enumerate(sorted(found), start=room):
        rows[row] = relation
    return rows.reshape(room, -1)


def from_rows(rows: NDArray[np.float32]) -> tuple[list[tuple[int, int, int, float]], list[tuple[int, int, int, float]]]:
    """Mentions, and relations whose ends are places among them; numbered from 0."""
    said, room = rows.reshape(-1, 4), len(rows)
    mentions = [(int(a), int(b), int(type), float(score)) for a, b, type, score in said[:room] if b]
    relations = [(int(a) - 1, int(b) - 1, int(type), float(score)) for a, b, type, score in said[room:] if a]
    return mentions, relations


def _joined(gain: Numbers, span: int, seen: NDArray[np.int64], allowed: NDArray[np.bool_]) -> Numbers:
    """[seen, types of the span, types of those seen]: what relations between them are worth, both ways."""
    onward = (gain[span, seen][:, None, :, None] * allowed).max(axis=2, initial=0)
    back = (gain[seen, span][:, None, :, None] * allowed).max(axis=2, initial=0)
    both: Numbers = onward + back.transpose(0, 2, 1)
    return both


def _clashes(words: Words, overlaps: Overlaps) -> NDArray[np.bool_]:
    """[spans, spans, 2]: whether two can't be mentions of one type, and of two types."""
    barred = np.zeros((len(words), len(words), 2), dtype=bool)
    first, past = words[:, 0], words[:, 1]
    for i, j in np.argwhere((first[:, None] < past) & (first < past[:, None])).tolist():
        if i != j:
            one, other = words[i].tolist(), words[j].tolist()
            barred[i, j] = [clash((*one, "a"), (*other, type), overlaps) for type in ("a", "b")]
    return barred
