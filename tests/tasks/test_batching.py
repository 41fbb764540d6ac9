"""Batches cover every row exactly once, with little padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grandrounds.data.documents import Document
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.batching import evaluation_batches, predict_outputs, training_batches
from grandrounds.tasks.sentence_re import SentenceRE

LENGTHS = np.random.default_rng(0).integers(5, 120, 1000)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("size", [1, 7, 16, 2000])
def test_training_batches_cover_each_row_exactly_once(size: int) -> None:
    batches = list(training_batches(LENGTHS, size, seeded(1)))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    assert all(len(batch) <= size for batch in batches)
    assert len(batches) <= -(-1000 // size) + 1


def test_the_generator_alone_decides_the_batches() -> None:
    def drawn(seed: int) -> list[list[int]]:
        return [batch.tolist() for batch in training_batches(LENGTHS, 16, seeded(seed))]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_training_batches_need_less_than_half_the_padding_of_random_ones() -> None:
    def padding(batches: list[np.ndarray]) -> int:
        return sum(int((LENGTHS[batch].max() - LENGTHS[batch]).sum()) for batch in batches)

    shuffled = np.random.default_rng(1).permutation(1000)
    at_random = [shuffled[i : i + 16] for i in range(0, 1000, 16)]
    assert padding(list(training_batches(LENGTHS, 16, seeded(1)))) < 0.5 * padding(at_random)


def test_rows_of_one_length_are_batched_anew_each_epoch() -> None:
    same = np.full(32, 10)
    first, second = ({frozenset(b.tolist()) for b in training_batches(same, 4, seeded(s))} for s in (1, 2))
    assert len(first & second) < 2


def test_evaluation_batches_cover_each_row_once_within_both_limits() -> None:
    batches = list(evaluation_batches(LENGTHS, pieces=900, rows=20))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    assert all(len(batch) <= 20 and LENGTHS[batch].max() * len(batch) <= 900 for batch in batches)


def test_a_row_longer_than_the_limit_is_evaluated_alone() -> None:
    assert [b.tolist() for b in evaluation_batches(np.array([3, 5000, 4]), pieces=100)] == [[1], [2, 0]]


def test_no_rows_make_no_batches() -> None:
    none = np.array([], dtype=np.int64)
    assert list(training_batches(none, 4, seeded(1))) == []
    assert list(evaluation_batches(none)) == []


def test_predicted_logits_stand_in_the_order_of_the_rows_asked_for(
    task: SentenceRE, documents: list[Document], encoder: Encoder
) -> None:
    features = task.features(task.examples(documents)[0], encoder)
    torch.manual_seed(0)
    model = task.model(encoder)
    rows = np.random.default_rng(2).permutation(len(features.labels))[:20]
    found = predict_outputs(task, model, features, rows, torch.device("cpu"))
    with torch.no_grad():
        one_by_one = [model.eval()(features.batch([row]))[0].numpy() for row in rows]
    np.testing.assert_allclose(found, np.stack(one_by_one), atol=1e-5)
