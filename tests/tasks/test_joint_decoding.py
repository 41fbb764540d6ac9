"""Decoding spans and relations together, against a search through all answers."""

from __future__ import annotations

from itertools import product
from math import inf, log
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grandrounds.models.spans import LIKELY
from grandrounds.tasks.joint_decoding import FLOOR, Constraints, Decoded, candidates, decode, from_rows, to_rows
from grandrounds.tasks.ner_coding import clash

TYPES, RELATIONS = 3, 3
"""With the one for none."""
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)  # on a busy machine


@st.composite
def windows(draw: Any, most: int) -> dict[str, Any]:
    words = sorted(draw(st.sets(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=most)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, ordered = len(words), draw(st.booleans())
    likely = rng.dirichlet([0.6] * TYPES, size=n)
    allowed = rng.random((TYPES, RELATIONS, TYPES)) < draw(st.sampled_from([0.2, 0.6]))
    allowed[0] = allowed[:, 0] = allowed[:, :, 0] = False
    if not ordered:
        allowed |= allowed.transpose(2, 1, 0)
    constraints = Constraints(allowed, ordered)
    spans = np.array([(first, first + size) for first, size in words], dtype=np.int64).reshape(-1, 2)
    related = np.zeros((n, n, RELATIONS))
    asked = constraints.pairs(spans, likely >= FLOOR)
    related[asked[:, 0], asked[:, 1]] = rng.dirichlet([0.5] * RELATIONS, size=len(asked))
    overlaps = draw(st.sampled_from(["types", "nested", "any", "none"]))
    return {"words": spans, "likely": likely, "related": related, "constraints": constraints, "overlaps": overlaps}


def worth(window: dict[str, Any], types: tuple[int, ...]) -> float:
    """Of the best answer with these types, term by term; -inf where they clash."""
    spans, total = window["words"].tolist(), 0.0
    for i, type in enumerate(types):
        if type:
            p = window["likely"][i, type]
            total += log(p / LIKELY) if p >= FLOOR else -inf
    for i, j in product(range(len(types)), repeat=2):
        if i < j and types[i] and types[j]:
            one, other = ((*spans[k], str(types[k])) for k in (i, j))
            total += -inf if clash(one, other, window["overlaps"]) else 0
        if i != j:
            held = window["constraints"].allowed[types[i], :, types[j]]
            gains = [log(p / LIKELY) for p, may in zip(window["related"][i, j], held, strict=True) if may and p > 0]
            total += max([0.0, *gains])
    return total


def decoded(window: dict[str, Any], **options: int) -> Decoded:
    return decode(**window, **options)


@slow
@given(windows(most=4))
def test_the_answer_is_worth_as_much_as_the_best_of_all(window: dict[str, Any]) -> None:
    found = decoded(window, beam=TYPES**4)
    best = max(worth(window, types) for types in product(range(TYPES), repeat=len(window["words"])))
    assert worth(window, tuple(found.types.tolist())) == pytest.approx(best)


@slow
@given(windows(most=8))
def test_constraints_are_never_broken(window: dict[str, Any]) -> None:
    found, spans, allowed = decoded(window, beam=2), window["words"].tolist(), window["constraints"].allowed
    kept = [(*spans[i], str(type)) for i, type in enumerate(found.types.tolist()) if type]
    assert not any(clash(one, two, window["overlaps"]) for i, one in enumerate(kept) for two in kept[:i])
    assert worth(window, tuple(found.types.tolist())) > -inf
    for head, tail in np.argwhere(found.relations).tolist():
        relation = found.relations[head, tail]
        assert allowed[found.types[head], relation, found.types[tail]]
        assert window["related"][head, tail, relation] >= LIKELY
        assert window["constraints"].ordered or spans[head] < spans[tail]


def window(likely: list[list[float]], related: float, overlaps: str = "types") -> dict[str, Any]:
    """Two words, of which the first may be head of relation 1 and the second its tail if their types are 1 and 2."""
    allowed = np.zeros((3, 2, 3), dtype=bool)
    allowed[1, 1, 2] = True
    scores = np.zeros((2, 2, 2))
    scores[0, 1, 1] = related
    return {
        "words": np.array([[0, 1], [1, 2]]),
        "likely": np.array(likely),
        "related": scores,
        "constraints": Constraints(allowed),
        "overlaps": overlaps,
    }


def test_a_relation_changes_a_type_and_brings_in_what_alone_is_too_unlikely() -> None:
    types = [[0.0, 1.0, 0.0], [0.0, 0.55, 0.45]]
    assert decoded(window(types, related=0.3)).types.tolist() == [1, 1]
    changed = decoded(window(types, related=0.9))
    assert (changed.types.tolist(), changed.relations[0, 1]) == ([1, 2], 1)
    unlikely = [[0.0, 1.0, 0.0], [0.85, 0.0, 0.15]]
    assert decoded(window(unlikely, related=0.3)).types.tolist() == [1, 0]
    assert decoded(window(unlikely, related=0.9)).types.tolist() == [1, 2]


def test_pairs_are_those_that_some_types_let_be_related() -> None:
    allowed = np.zeros((3, 2, 3), dtype=bool)
    allowed[1, 1, 2] = True
    words, types = np.array([[0, 1], [2, 4], [2, 4], [5, 6]]), np.eye(3, dtype=bool)[[2, 1, 2, 1]]
    assert Constraints(allowed).pairs(words, types).tolist() == [[1, 0], [3, 0], [3, 2]]  # [1, 2] are the same words
    both = Constraints(allowed | allowed.transpose(2, 1, 0), ordered=False)
    assert both.pairs(words, types).tolist() == [[0, 1], [0, 3], [2, 3]]
    assert Constraints(allowed).pairs(words[:0], types[:0]).tolist() == []


def test_candidates_are_the_likeliest_spans_in_order() -> None:
    probabilities = np.zeros((30, 2, 3))
    probabilities[..., 0] = 1
    for rank, first in enumerate(range(0, 30, 2)):
        probabilities[first, rank % 2] = [0.2, 0.4 + rank / 100, 0.2]
    probabilities[1, 0] = [0.95, 0.02, FLOOR - 0.01]
    found = candidates(probabilities, 20)
    assert len(found) == 10
    assert found.tolist() == sorted(found.tolist())
    assert found[:, 0].min() == 10
    assert candidates(probabilities, 30).shape == (15, 2)


@slow
@given(windows(most=6))
def test_rows_come_back_as_what_they_say(window: dict[str, Any]) -> None:
    found, likely, related = decoded(window), window["likely"], window["related"]
    mentions, relations = from_rows(to_rows(window["words"], likely, related, found, 16))
    kept = np.flatnonzero(found.types).tolist()
    assert [one[:3] for one in mentions] == [(*window["words"][i].tolist(), found.types[i]) for i in kept]
    assert [one[3] for one in mentions] == pytest.approx([likely[i, found.types[i]] for i in kept])
    said = [(kept[head], kept[tail], type) for head, tail, type, _ in relations]
    expected = [(h, t, found.relations[h, t]) for h, t in np.argwhere(found.relations).tolist()]
    assert said == expected
    assert [one[3] for one in relations] == pytest.approx([related[one] for one in expected])


def test_of_too_many_mentions_and_relations_those_that_have_room_are_kept() -> None:
    likeliest = np.arange(16.0).reshape(4, 4) / 20 + 0.01
    related = np.zeros((4, 4, 2))
    related[..., 1] = likeliest
    found = Decoded(np.ones(4, dtype=np.int64), 1 - np.eye(4, dtype=np.int64))
    words, likely = np.array([[i, i + 1] for i in range(4)]), np.full((4, 2), 0.5)
    mentions, relations = from_rows(to_rows(words, likely, related, found, 4))
    pairs = sorted(((i, j) for i in range(4) for j in range(4) if i != j), key=lambda pair: -likeliest[pair])
    assert (len(mentions), [one[:2] for one in relations]) == (4, sorted(pairs[:8]))
    mentions, relations = from_rows(to_rows(words, likely, related, found, 3))
    assert len(mentions) == 3
    assert {end for one in relations for end in one[:2]} == {0, 1, 2}
