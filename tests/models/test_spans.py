"""The span head: scores, loss and answers against loops in NumPy over every span."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.models.spans import LIKELY, SpanClassifier

WIDTH, CLASSES, HIDDEN, LENGTHS = 5, 4, 3, [6, 1, 4]


def head(longest: int, seed: int = 0) -> SpanClassifier:
    torch.manual_seed(seed)
    made = SpanClassifier(WIDTH, CLASSES, longest, HIDDEN, dropout=0.3).eval()
    with torch.no_grad():
        made.product.normal_()  # as large as the linear terms, so that a mistake shows
        made.of_length.normal_()
    return made


def states(seed: int = 1) -> Tensor:
    return torch.randn(len(LENGTHS), max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(seed))


def probabilities(model: SpanClassifier, sentence: NDArray[np.float32], first: int, last: int) -> NDArray[np.float64]:
    """p = softmax(a^T U b + W [a; b] + c_n) of one span, term by term."""
    weights = {name: value.detach().numpy().astype(np.float64) for name, value in model.state_dict().items()}
    a = np.maximum(weights["first.weight"] @ sentence[first] + weights["first.bias"], 0)
    b = np.maximum(weights["last.weight"] @ sentence[last] + weights["last.bias"], 0)
    joined = np.concatenate([weights["of_first.weight"], weights["of_last.weight"]], axis=1) @ np.concatenate([a, b])
    r = joined + weights["of_length"][last - first]
    for c in range(CLASSES):
        r[c] += sum(a[h] * weights["product"][h, c, k] * b[k] for h, k in product(range(HIDDEN), repeat=2))
    e = np.exp(r - r.max())
    return e / e.sum()


def every_span(longest: int) -> list[tuple[int, int, int]]:
    return [
        (row, first, last)
        for row, words in enumerate(LENGTHS)
        for first in range(words)
        for last in range(first, min(first + longest, words))
    ]


@pytest.mark.parametrize("longest", [1, 3, 9])
def test_the_loss_is_the_cross_entropy_of_every_span_as_a_mean_over_sentences(longest: int) -> None:
    model, words, lengths = head(longest), states(), torch.tensor(LENGTHS)
    targets = torch.randint(0, CLASSES, (3, 6, longest), generator=torch.Generator().manual_seed(2))
    expected = 0.0
    for row, first, last in every_span(longest):
        p = probabilities(model, words[row].numpy(), first, last)
        expected -= np.log(p[targets[row, first, last - first]]) / len(LENGTHS)
    assert model.loss(model(words), targets, lengths).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("longest", [1, 3, 9])
def test_answers_are_the_best_type_and_its_probability_and_0_where_there_is_no_span(longest: int) -> None:
    model, words = head(longest), states()
    found = model.outputs(model(words), torch.tensor(LENGTHS)).detach().numpy()
    expected = np.zeros((3, 6, 2 * longest))
    for row, first, last in every_span(longest):
        p = probabilities(model, words[row].numpy(), first, last)
        expected[row, first, last - first] = 1 + p[1:].argmax() if p[1:].max() >= LIKELY else 0
        expected[row, first, longest + last - first] = p[1:].max()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert len({int(c) for c in expected[:, :, :longest].flatten()}) > 1


def test_a_likely_type_is_a_mention_even_where_no_mention_is_likelier() -> None:
    classes = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.8, 0.1, 0.1, 0.0], [0.1, 0.4, 0.5, 0.0]])
    answers = head(1).outputs(classes[None, :, None].log(), torch.tensor([3]))
    assert answers[0, :, 0].tolist() == [1, 0, 2]
    assert answers[0, :, 1].tolist() == pytest.approx([0.3, 0.1, 0.5])


def test_what_lies_past_the_end_changes_nothing() -> None:
    model, words, lengths = head(3), states(), torch.tensor(LENGTHS)
    targets = torch.ones(3, 6, 3, dtype=torch.int64)
    spoilt, others = words.clone(), targets.clone()
    spoilt[1, 1:], spoilt[2, 4:], others[1, 1:], others[2, 4:] = 99.0, 99.0, 2, 2
    assert torch.equal(model.loss(model(words), targets, lengths), model.loss(model(spoilt), others, lengths))
    assert torch.equal(model.outputs(model(words), lengths), model.outputs(model(spoilt), lengths))


def test_an_untrained_head_finds_few_mentions() -> None:
    torch.manual_seed(0)
    fresh = SpanClassifier(WIDTH, CLASSES, 3, HIDDEN, dropout=0.3).eval()
    classes = fresh(torch.zeros(1, 6, WIDTH)).softmax(dim=-1)
    assert classes[..., 1:].sum(dim=-1).max() < 0.05


def test_every_part_learns() -> None:
    model = head(3).train()
    model.loss(model(states()), torch.ones(3, 6, 3, dtype=torch.int64), torch.tensor(LENGTHS)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
