"""FedED's Eq. 1 and 2 against NumPy, and the [CLS]-only rival."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from grandrounds.models.encoder import Encoder
from grandrounds.models.entity_pair import EntityPair, SentenceOnly, mention_sums

SPANS = [[2, 4, 6, 9], [5, 6, 1, 4]]


def batch() -> SimpleNamespace:
    rng = np.random.default_rng(3)
    mask = np.ones((2, 10), dtype=np.int64)
    mask[1, 8:] = 0
    ids = rng.integers(5, 60, (2, 10)) * mask
    return SimpleNamespace(
        input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask), spans=torch.tensor(SPANS)
    )


def hidden_states(encoder: nn.Module, batch: SimpleNamespace) -> np.ndarray:
    with torch.no_grad():
        return encoder(batch.input_ids, batch.attention_mask).last_hidden_state.double().numpy()


def linear(head: nn.Linear, h: np.ndarray) -> np.ndarray:
    return h @ head.weight.detach().double().numpy().T + head.bias.detach().double().numpy()


def test_entity_pair_is_the_linear_map_of_cls_and_both_sums(encoder: Encoder) -> None:
    torch.manual_seed(0)
    model, rows = EntityPair(encoder, classes=5).eval(), batch()
    states = hidden_states(model.encoder, rows)
    h = np.stack(  # Eq. 1, row by row and piece by piece
        [
            np.concatenate([s[0], sum(s[i] for i in range(a, b)), sum(s[i] for i in range(c, d))])
            for s, (a, b, c, d) in zip(states, SPANS, strict=True)
        ]
    )
    with torch.no_grad():
        logits = model(rows).numpy()
    assert logits.shape == (2, 5)
    np.testing.assert_allclose(logits, linear(model.head, h), atol=1e-5)


def test_entity_pair_tells_head_from_tail(encoder: Encoder) -> None:
    torch.manual_seed(0)
    model, rows = EntityPair(encoder, classes=3).eval(), batch()
    turned = SimpleNamespace(**{**vars(rows), "spans": rows.spans[:, [2, 3, 0, 1]]})
    with torch.no_grad():
        assert (model(rows) - model(turned)).abs().max() > 1e-3


def test_sentence_only_reads_cls_and_no_span(encoder: Encoder) -> None:
    torch.manual_seed(0)
    model, rows = SentenceOnly(encoder, classes=3).eval(), batch()
    with torch.no_grad():
        logits = model(rows).numpy()
    np.testing.assert_allclose(logits, linear(model.head, hidden_states(model.encoder, rows)[:, 0]), atol=1e-5)


@pytest.mark.parametrize("head", [EntityPair, SentenceOnly])
def test_dropout_acts_in_training_alone(encoder: Encoder, head: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, rows = head(encoder, 3, 0.5), batch()
    model.eval()
    assert torch.equal(model(rows), model(rows))
    model.encoder.eval()
    model.dropout.train()
    assert not torch.equal(model(rows), model(rows))


def test_mention_sums_leave_out_the_piece_past_the_end() -> None:
    states = torch.arange(12.0).reshape(1, 6, 2)
    sums = mention_sums(states, torch.tensor([[1, 3, 5, 6]]))
    assert sums.tolist() == [[[2 + 4, 3 + 5], [10, 11]]]
