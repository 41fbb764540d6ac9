"""The ranking CNN and its loss against NumPy; padding has no say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grandrounds.models.encoder import Encoder
from grandrounds.models.ranking_cnn import POSITIONS, RankingCNN, ranking_loss


def rows(*lengths: int, width: int) -> SimpleNamespace:
    rng = np.random.default_rng(5)
    ids = rng.integers(5, 60, (len(lengths), width))
    mask = np.arange(width) < np.array(lengths)[:, None]
    spans = np.array([[1, 2, length - 3, length - 1] for length in lengths])
    return SimpleNamespace(
        input_ids=torch.from_numpy(ids * mask),
        attention_mask=torch.from_numpy(mask.astype(np.int64)),
        spans=torch.from_numpy(spans),
    )


def first(batch: SimpleNamespace, width: int) -> SimpleNamespace:
    return SimpleNamespace(
        input_ids=batch.input_ids[:1, :width], attention_mask=batch.attention_mask[:1, :width], spans=batch.spans[:1]
    )


@pytest.fixture
def model(encoder: Encoder) -> RankingCNN:
    torch.manual_seed(0)
    return RankingCNN(encoder, classes=4, filters=6, widths=(3, 5)).eval()


def test_logits_are_those_of_a_convolution_by_hand(model: RankingCNN) -> None:
    batch = rows(9, width=9)
    with torch.no_grad():
        states = model.encoder(batch.input_ids, batch.attention_mask).last_hidden_state[0].double().numpy()
        logits = model(batch)[0].numpy()
    table = model.position.weight.detach().double().numpy()
    e1, e2 = int(batch.spans[0, 0]), int(batch.spans[0, 2])
    x = np.stack([np.concatenate([states[i], table[i - e1 + POSITIONS], table[i - e2 + POSITIONS]]) for i in range(9)])
    pooled = []
    for conv in model.convolutions:
        weight, bias = conv.weight.detach().double().numpy(), conv.bias.detach().double().numpy()
        half = weight.shape[2] // 2
        padded = np.pad(x, ((half, half), (0, 0)))
        at = [np.einsum("fcw,wc->f", weight, padded[i : i + weight.shape[2]]) + bias for i in range(9)]
        pooled.append(np.maximum(np.stack(at), 0).max(axis=0))
    scores = np.concatenate(pooled) @ model.head.weight.detach().double().numpy().T
    np.testing.assert_allclose(logits, [0, *scores], atol=1e-5)


def test_a_sentence_has_the_same_logits_however_much_it_is_padded(model: RankingCNN) -> None:
    padded = rows(9, 20, width=20)
    with torch.no_grad():
        alone, beside = model(first(padded, 9))[0], model(padded)[0]
    np.testing.assert_allclose(alone.numpy(), beside.numpy(), atol=1e-5)


def test_padding_never_wins_the_max(model: RankingCNN) -> None:
    """Filters that fire where there is no word, and on no word, must pool to zero."""
    batch = rows(6, width=12)
    with torch.no_grad():
        for conv in model.convolutions:
            conv.weight.zero_()
            conv.weight[:, 32:42] = -1
            conv.bias.fill_(3)
        model.position.weight.fill_(1)
        assert model(batch)[0].tolist() == [0, 0, 0, 0]


def test_none_is_fixed_at_zero_and_the_encoder_stays_frozen(model: RankingCNN) -> None:
    model.train()
    batch = rows(9, 7, width=9)
    logits = model(batch)
    assert logits[:, 0].tolist() == [0, 0]
    ranking_loss(logits, torch.tensor([1, 0])).backward()
    assert not model.encoder.training
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert all(conv.weight.grad.abs().sum() > 0 for conv in model.convolutions)


def loss_by_hand(
    logits: np.ndarray, labels: list[int], gamma: float = 2, right: float = 2.5, wrong: float = 0.5
) -> float:
    losses = []
    for scores, label in zip(logits[:, 1:], labels, strict=True):
        rivals = [score for c, score in enumerate(scores, start=1) if c != label]
        loss = np.log1p(np.exp(gamma * (wrong + max(rivals)))) if rivals else 0.0
        if label:
            loss += np.log1p(np.exp(gamma * (right - scores[label - 1])))
        losses.append(loss)
    return float(np.mean(losses))


@pytest.mark.parametrize("labels", [[1, 2, 3, 0], [0, 0, 0, 0], [3, 3, 3, 3]])
def test_the_loss_is_the_papers_with_one_term_for_none(labels: list[int]) -> None:
    logits = np.random.default_rng(1).normal(size=(4, 4))
    logits[:, 0] = 0
    found = ranking_loss(torch.from_numpy(logits), torch.tensor(labels))
    assert found.item() == pytest.approx(loss_by_hand(logits, labels), abs=1e-12)


def test_margins_and_scale_are_options() -> None:
    logits = np.array([[0, 1.5, -0.3]])
    found = ranking_loss(torch.from_numpy(logits), torch.tensor([2]), gamma=1.0, right=3.0, wrong=0.1)
    assert found.item() == pytest.approx(loss_by_hand(logits, [2], 1.0, 3.0, 0.1), abs=1e-12)


def test_with_a_single_relation_there_is_no_rival_and_no_nan() -> None:
    logits = torch.tensor([[0.0, 1.5], [0.0, -1.0]], requires_grad=True)
    loss = ranking_loss(logits, torch.tensor([1, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(loss_by_hand(logits.detach().double().numpy(), [1, 0]), abs=1e-6)
    assert torch.isfinite(logits.grad).all()
