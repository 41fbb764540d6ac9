"""Piecewise pooling and bags against NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grandrounds.models.bag_attention import (
    attended,
    attended_by_label,
    bag_mean,
    bag_softmax,
    largest_in_bag,
    most_confident,
)
from grandrounds.models.encoder import Encoder
from grandrounds.models.pcnn import CNN, PCNN, largest, largest_of_each

BAG = torch.tensor([0, 0, 0, 1, 2, 2])
OF = [[0, 1, 2], [3], [4, 5]]


def batch(lengths: list[int], spans: list[tuple[int, int, int, int]], words: int = 30) -> SimpleNamespace:
    torch.manual_seed(sum(lengths))
    longest = max(lengths)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, words, (len(lengths), longest)) * mask
    return SimpleNamespace(input_ids=ids, attention_mask=mask, spans=torch.tensor(spans))


@pytest.fixture(scope="module")
def words() -> Encoder:
    return Encoder.find("words", public=[" ".join(f"w{i}" for i in range(40))] * 2)


def by_hand(model: CNN, given: SimpleNamespace, row: int) -> np.ndarray:
    """The representation of one sentence, window by window and piece by piece."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}
    n = int(given.attention_mask[row].sum())
    heads = given.spans[row, [0, 2]].tolist()
    tokens = []
    for place in range(n):
        near = [state[f"position.{e}.weight"][place - heads[e] + 100] for e in range(2)]
        tokens.append(np.concatenate([state["encoder.embeddings.weight"][given.input_ids[row, place]], *near]))
    padded = [np.zeros_like(tokens[0]), *tokens, np.zeros_like(tokens[0])]
    weight, bias = state["convolution.weight"], state["convolution.bias"]
    convolved = np.array(
        [sum(weight[:, :, k] @ padded[place + k] for k in range(3)) + bias for place in range(n)]
    )  # [n, filters]
    if isinstance(model, PCNN):
        first, second = sorted(heads)
        parts = [convolved[: first + 1], convolved[first + 1 : second + 1], convolved[second + 1 :]]
    else:
        parts = [convolved]
    pooled = [part.max(axis=0) if len(part) else np.zeros(len(bias)) for part in parts]
    return np.tanh(np.concatenate(pooled))


@pytest.mark.parametrize("kind", [PCNN, CNN])
def test_a_sentence_is_convolved_and_its_pieces_pooled(words: Encoder, kind: type[CNN]) -> None:
    torch.manual_seed(3)
    model = kind(words, 4, filters=7).eval()
    # In text order, turned round, side by side, and with the second entity last: its third piece is empty.
    given = batch([9, 6, 4, 5], [(2, 3, 6, 7), (4, 5, 1, 2), (0, 1, 1, 2), (1, 2, 4, 5)])
    found = model.represent(given).detach().numpy()
    assert found.shape == (4, 7 * model.pieces)
    for row in range(4):
        np.testing.assert_allclose(found[row], by_hand(model, given, row), atol=1e-6)


def test_padding_never_wins_and_nothing_gives_zero() -> None:
    values = torch.full((1, 2, 4), -5.0)
    values[:, :, 3] = 100
    inside = torch.tensor([[True, True, True, False]])
    assert largest(values, inside).tolist() == [[-5, -5]]
    assert largest(values, torch.zeros(1, 4, dtype=torch.bool)).tolist() == [[0, 0]]


def test_all_pieces_at_once_are_each_piece_by_itself_to_the_bit_and_so_are_gradients() -> None:
    torch.manual_seed(5)
    values = torch.randn(6, 4, 12).mul(2).round()  # so that several are the largest
    piece = torch.randint(0, 4, (6, 12)).sort(dim=1).values
    piece[0] = 3  # nothing but padding
    gradient = torch.randn(6, 3 * 4)
    found = []
    for pool in (
        lambda x: torch.cat([largest(x, piece == part) for part in range(3)], dim=1),
        lambda x: largest_of_each(x, piece, 3),
    ):
        x = values.clone().requires_grad_()
        pooled = pool(x)
        pooled.backward(gradient)
        found.append((pooled.detach(), x.grad))
    (one, its), (other, others) = found
    assert one.equal(other)
    assert its is not None
    assert others is not None
    assert its.equal(others)


def test_a_bag_is_weighed_by_itself() -> None:
    scores = torch.tensor([1.0, 2.0, -1.0, 7.0, 100.0, 98.0])
    found = bag_softmax(scores, BAG, 3).numpy()
    for rows in OF:
        powers = np.exp(scores.numpy()[rows] - scores.numpy()[rows].max())
        np.testing.assert_allclose(found[rows], powers / powers.sum(), rtol=1e-6)


def test_attention_is_lins_and_ye_and_lings() -> None:
    rng = np.random.default_rng(2)
    x, queries = rng.normal(size=(6, 5)), rng.normal(size=(4, 5))
    labels = np.array([2, 0, 3])
    every = attended(torch.from_numpy(x), BAG, 3, torch.from_numpy(queries)).numpy()
    own = attended_by_label(torch.from_numpy(x), BAG, torch.from_numpy(labels), torch.from_numpy(queries)).numpy()
    for b, rows in enumerate(OF):
        for r in range(4):
            e = np.exp(x[rows] @ queries[r])
            view = (e / e.sum()) @ x[rows]
            np.testing.assert_allclose(every[b, r], view, rtol=1e-9)
            if r == labels[b]:
                np.testing.assert_allclose(own[b], view, rtol=1e-9)
    np.testing.assert_allclose(bag_mean(torch.from_numpy(x), BAG, 3).numpy()[0], x[:3].mean(axis=0), rtol=1e-12)


def test_one_takes_the_surest_sentence_of_the_bags_relation_and_the_first_of_equals() -> None:
    p = torch.tensor([[0.1, 0.9], [0.4, 0.6], [0.4, 0.6], [0.5, 0.5], [0.3, 0.7], [0.2, 0.8]])
    assert most_confident(p.log(), BAG, torch.tensor([0, 1, 1])).tolist() == [1, 3, 5]
    best = largest_in_bag(p, BAG, 3).numpy()
    np.testing.assert_allclose(best, [[0.4, 0.9], [0.5, 0.5], [0.3, 0.8]])
