"""Rows of embeddings stand for whole tables, to the bit, and are checked on arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grandrounds import Reply, mean
from grandrounds.federation.contract import Registration
from grandrounds.federation.payloads import Expected, Gradients, Packed, Parameters, PayloadError, unpack
from grandrounds.federation.rows import Rows, Tables, rows_of, sparse_gradients, table_names

WORDS, WIDTH = 30, 5
NAME = "words.weight"
EXPECTED = Expected({NAME: (WORDS, WIDTH)}, trained=frozenset({NAME}), tables=frozenset({NAME}))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some(*index: int, seed: int = 0) -> Rows:
    return Rows(torch.tensor(index, dtype=torch.int64), drawn(len(index), WIDTH, seed=seed))


def reply(rows: Rows, weight: float) -> Reply[Gradients]:
    return Reply(Registration("a", {}, (), {}), Gradients({}, {NAME: rows}), weight)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.top = nn.Linear(WIDTH, 2)


def test_a_sparse_gradient_has_the_bits_of_the_whole_one() -> None:
    """Words that come again and again are summed in the same order."""
    model = Reader()
    words = torch.randint(0, 9, (40, 12), generator=torch.Generator().manual_seed(1))
    slope = drawn(40, 12, WIDTH)
    model.words(words).backward(slope)
    whole = model.words.weight.grad
    assert whole is not None
    model.zero_grad()
    with sparse_gradients(model, lambda name: True):
        model.words(words).backward(slope)
    assert model.words.sparse is False
    assert model.words.weight.grad is not None
    assert model.words.weight.grad.is_sparse
    rows = Gradients.of(model, lambda name: name == NAME).rows[NAME]
    assert rows.index.tolist() == list(range(1, 9))  # but for padding
    assert rows.whole(whole).equal(whole)
    assert rows_of(whole).index.equal(rows.index)
    assert rows_of(whole).values.equal(rows.values)
    assert table_names(model) == [NAME]


def test_the_mean_of_rows_is_that_of_whole_tables_to_the_bit() -> None:
    replies = [
        (some(1, 4, 20, seed=1), 5.0),
        (some(0, 4, seed=2), 2.0),
        (some(seed=3), 3.0),
        (some(4, 29, seed=4), 9.0),
    ]
    found = mean(reply(rows, weight) for rows, weight in replies)
    whole = torch.zeros(WORDS, WIDTH)
    tables = [(rows.whole(whole), weight) for rows, weight in replies]
    kind = Registration("a", {}, (), {})
    expected = mean(Reply(kind, Gradients({NAME: table}), weight) for table, weight in tables).values[NAME]
    assert found.rows[NAME].index.tolist() == [0, 1, 4, 20, 29]
    assert found.rows[NAME].whole(whole).equal(expected)
    by_hand = sum(table.double().numpy() * weight for table, weight in tables) / 19
    np.testing.assert_allclose(expected.numpy(), by_hand, atol=1e-6)


def test_what_has_changed_since_the_start_is_found_bit_by_bit_and_put_back() -> None:
    for width in (4, 5):
        start = drawn(WORDS, width)
        start[2, 0] = 0.0
        now = start.clone()
        now[2, 0] = -0.0  # another bit, and the same number
        now[7, width - 1] += 1
        tables = Tables(lambda start=start: {NAME: start})
        rows = tables.changed(NAME, now)
        assert rows is not None
        assert rows.index.tolist() == [2, 7]
        assert rows.since == tables.digest(NAME)
        site = torch.zeros(WORDS, width)
        tables.put(NAME, rows, site)
        assert site.view(torch.int32).equal(now.view(torch.int32))
        tables.put(NAME, Rows(torch.tensor([9]), drawn(1, width)), site)  # rows 2 and 7 are as at the start again
        assert (site != start).any(dim=1).nonzero().flatten().tolist() == [9]
        site += 1  # by whomever
        tables.put(NAME, rows, site)
        assert site.equal(now)
        assert tables.changed(NAME, start + 1) is None  # the whole table is shorter


def test_rows_travel_and_come_back() -> None:
    for payload in (Gradients({}, {NAME: some(3, 8, 29)}), Gradients({}, {NAME: some()})):
        packed = payload.pack("fp32")
        assert packed.nbytes == len(packed.to_bytes())
        found = unpack(Packed.from_bytes(packed.to_bytes()), EXPECTED, Gradients)
        assert isinstance(found, Gradients)
        assert found.rows[NAME].index.equal(payload.rows[NAME].index)
        assert found.rows[NAME].values.equal(payload.rows[NAME].values)
    half = unpack(Gradients({}, {NAME: some(3)}).pack("fp16"), EXPECTED)
    assert isinstance(half, Gradients)
    assert half.rows[NAME].values.equal(some(3).values.half().float())
    weights = Parameters({}, {NAME: Rows(torch.tensor([3]), drawn(1, WIDTH), "digest")}).pack("fp32")
    again = unpack(Packed.from_bytes(weights.to_bytes()), EXPECTED)
    assert isinstance(again, Parameters)
    assert again.rows[NAME].since == "digest"
    whole = unpack(Parameters({NAME: drawn(WORDS, WIDTH)}).pack("fp32"), EXPECTED)
    assert isinstance(whole, Parameters)
    assert not whole.rows


@pytest.mark.parametrize(
    ("index", "values", "problem"),
    [
        ([4, 3], drawn(2, WIDTH), "must be in order, each once"),
        ([3, 3], drawn(2, WIDTH), "must be in order, each once"),
        ([3, WORDS], drawn(2, WIDTH), "has 30 rows, and others came"),
        ([-1, 3], drawn(2, WIDTH), "has 30 rows, and others came"),
        ([3.0], drawn(1, WIDTH), "which was not declared"),
        ([3, 4], drawn(1, WIDTH), "has shape"),
        ([3], drawn(1, WIDTH + 1), "has shape"),
        ([3], drawn(1, WIDTH) / 0, "not finite"),
        (list(range(WORDS + 1)), drawn(WORDS + 1, WIDTH), "at most 30 rows"),
        ([[3]], drawn(1, WIDTH), "at most 30 rows"),
        (None, drawn(WORDS, WIDTH), "at most 30 rows"),
    ],
)
def test_rows_that_can_t_be_are_refused(index: Any, values: Tensor, problem: str) -> None:
    which = {} if index is None else {f"{NAME} rows": torch.tensor(index)}
    with pytest.raises(PayloadError, match=problem):
        unpack(Packed("gradients", {}, {NAME: values, **which}), EXPECTED)


def test_rows_of_what_is_no_table_are_refused() -> None:
    expected = Expected({"cnn": (WORDS, WIDTH)}, trained=frozenset({"cnn"}))
    with pytest.raises(PayloadError, match="undeclared 'cnn rows'"):
        unpack(Gradients({}, {"cnn": some(1)}).pack("fp32"), expected)
    with pytest.raises(PayloadError, match="digest of the table"):
        unpack(Packed("parameters", {}, {NAME: drawn(1, WIDTH), f"{NAME} rows": torch.tensor([1])}), EXPECTED)
