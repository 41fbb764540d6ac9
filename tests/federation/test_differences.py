"""Weights and gradients in a byte a number: against NumPy, with what rounding took added to the next upload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.federation.differences import Downlink, update
from grandrounds.federation.payloads import Expected, Gradients, Packed, Parameters, PayloadError, unpack
from grandrounds.federation.rows import Rows, Tables
from grandrounds.federation.scaled import SCALES
from grandrounds.federation.seeds import derive

SHAPES = {"words": (40, 6), "head": (5, 3, 2), "bias": (4,), "height": ()}
TABLES, TRAINED = frozenset({"words"}), frozenset(SHAPES)
PLACE = (7, "charity", 3, 1, 0)


def drawn(seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=rng) * scale for name, shape in SHAPES.items()}


def expected(base: Mapping[str, Tensor] | None = None) -> Expected:
    shapes = {**SHAPES, "count": ()}
    return Expected(shapes, integers=frozenset({"count"}), trained=TRAINED, tables=TABLES, base=base)


def by_hand(x: NDArray[np.float32], *place: str | int) -> NDArray[np.float32]:
    """What the other side reads, in NumPy: floor(x / s + u) s, s of each row."""
    rows = x.reshape(len(x), -1) if x.ndim > 1 else x.reshape(1, -1)
    s = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    bits = np.random.Generator(np.random.SFC64(derive(*place))).bytes(2 * x.size)
    u = (np.frombuffer(bits, dtype="<u2") + 0.5).reshape(rows.shape) / 65536
    q = np.clip(np.floor(rows.astype(np.float64) / s + u), -127, 127)
    return np.asarray((q * s).reshape(x.shape), dtype=np.float32)


def sent(packed: Packed, base: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    again = Packed.from_bytes(packed.to_bytes())
    assert packed.nbytes == len(packed.to_bytes())
    assert packed.digest == again.digest
    found = unpack(again, expected(base), Parameters)
    assert isinstance(found, Parameters)
    assert not found.rows
    return found.values


def test_weights_travel_as_rounded_differences_as_numpy_has_them() -> None:
    x, y = drawn(1), drawn(2)
    packed, taken = update(Parameters({**y, "count": torch.tensor(5)}), x, frozenset(), {}, *PLACE)
    found = sent(packed, {**x, "count": torch.tensor(0)})
    assert found["count"] == 5
    for name in SHAPES:
        change = (y[name] - x[name]).numpy()
        told = by_hand(change, *PLACE, "rounding", name)
        np.testing.assert_allclose(found[name].numpy(), x[name].numpy() + told, atol=1e-5)
        np.testing.assert_allclose(taken[name].numpy(), change - told, atol=1e-5)
    again, _ = update(Parameters({**y, "count": torch.tensor(5)}), x, frozenset(), {}, *PLACE)
    assert again.digest == packed.digest
    other, _ = update(Parameters({**y, "count": torch.tensor(5)}), x, frozenset(), {}, *PLACE[:-1], 1)
    assert other.digest != packed.digest


def test_rounding_is_right_on_average() -> None:
    gradient = Gradients({"head": drawn(3)["head"]})
    mean = torch.zeros(SHAPES["head"])
    for number in range(400):
        packed, _ = update(gradient, {}, TABLES, {}, number)
        found = unpack(packed, Expected({"head": SHAPES["head"]}, trained=frozenset({"head"})))
        assert isinstance(found, Gradients)
        mean += found.values["head"] / 400
    step = float(gradient.values["head"].abs().max()) / 127
    assert float((mean - gradient.values["head"]).abs().max()) < 4 * step / 2 / 400**0.5


def test_nothing_is_lost_in_the_long_run() -> None:
    """What was sent in all, and what rounding took last, is what changed in all."""
    x, taken, told, changed = drawn(0), dict[str, Tensor](), drawn(0, 0.0), drawn(0, 0.0)
    for round in range(1, 9):
        y = {name: x[name] + change for name, change in drawn(round, 0.01).items()}
        y["words"][round:] = x["words"][round:]
        packed, taken = update(Parameters({**y, "count": torch.tensor(0)}), x, TABLES, taken, *PLACE, round)
        found = sent(packed, {**x, "count": torch.tensor(0)})
        for name in SHAPES:
            told[name] += found[name] - x[name]
            changed[name] += y[name] - x[name]
    rest = {**taken, "words": Rows(taken["words rows"], taken["words"]).whole(x["words"])}
    for name in SHAPES:
        assert (float(rest[name].abs().max()) > 0) == (name != "height")  # one number has a scale of its own
        torch.testing.assert_close(told[name] + rest[name], changed[name], atol=1e-5, rtol=0)


def test_rows_that_hardly_changed_wait_and_travel_later() -> None:
    x = drawn(1)
    y = {name: value.clone() for name, value in x.items()}
    y["words"][4] += 1
    y["words"][9] += 0.003  # less than half a step of row 4's
    before: dict[str, Tensor] = {}
    for round, rows in enumerate(([4], [4, 9]), start=1):
        packed, before = update(Parameters(y), x, TABLES, before, *PLACE, round)
        assert packed.tensors["words rows"].tolist() == rows
        assert packed.tensors["words"].shape == (len(rows), 6)
    again, rest = update(Parameters(x), x, TABLES, before, *PLACE, 3)  # words that no batch has any more
    assert again.tensors["words rows"].tolist() == []
    assert rest["words rows"].tolist() == before["words rows"].tolist()


def test_rows_of_gradients_keep_their_places_and_their_errors() -> None:
    words = drawn(1)["words"]
    gradient = Gradients({}, {"words": Rows(torch.tensor([3, 8]), words[[3, 8]])})
    packed, taken = update(gradient, {}, TABLES, {"words": words[[5]], "words rows": torch.tensor([5])}, *PLACE)
    found = unpack(packed, Expected(SHAPES, trained=TABLES, tables=TABLES))
    assert isinstance(found, Gradients)
    assert found.rows["words"].index.tolist() == [3, 8]
    told = by_hand(words[[3, 8]].numpy(), *PLACE, "rounding", "words")
    np.testing.assert_allclose(found.rows["words"].values.numpy(), told, atol=1e-5)
    kept = Rows(taken["words rows"], taken["words"])
    assert kept.index.tolist() == [3, 5, 8]
    assert kept.values[1].equal(words[5])  # of a word that this batch has not
    np.testing.assert_allclose(kept.values[[0, 2]].numpy(), words[[3, 8]].numpy() - told, atol=1e-5)


def test_the_server_sends_differences_to_the_start_and_keeps_what_rounding_took() -> None:
    start, w = Tables(lambda: drawn(0)), drawn(0)
    for name, change in drawn(1, 0.1).items():
        w[name] += change
    down = Downlink(start, TABLES, 7)
    packed = down.pack(Parameters(w), 3, 1, 0)
    assert packed.header["since"] == start.digest_of(SHAPES)
    x = unpack(packed, Expected(SHAPES, tables=TABLES, base=start.start), Parameters)
    assert isinstance(x, Parameters)
    for name in SHAPES:
        told = by_hand((w[name] - start.start[name]).numpy(), 7, "server", 3, 1, 0, "rounding", name)
        np.testing.assert_allclose(x.values[name].numpy(), start.start[name].numpy() + told, atol=1e-5)
    up, _ = update(Parameters(x.values), x.values, TABLES, {}, *PLACE)  # a site that learnt nothing
    back = unpack(up, Expected(SHAPES, tables=TABLES, base=down.base(Parameters(w))), Parameters)
    assert isinstance(back, Parameters)
    assert all(back.values[name].equal(w[name]) for name in SHAPES)  # not x: nothing is lost on the way down
    rows = Parameters({}, {"words": Rows(torch.tensor([2]), w["words"][[2]], "d")})
    assert down.base(rows)["words"][2].equal(w["words"][2])
    assert down.base(rows)["words"][3].equal(start.start["words"][3])
    assert down.base(None) is start.start


def hostile(**changes: Any) -> Packed:
    packed, _ = update(Parameters({**drawn(2), "count": torch.tensor(0)}), drawn(1), TABLES, {}, *PLACE)
    tensors = {**packed.tensors, **{name.replace("_", " "): value for name, value in changes.items()}}
    return Packed("parameters", packed.header, {name: value for name, value in tensors.items() if value is not None})


SOME = hostile().tensors[SCALES]


def scaled(value: float) -> Tensor:
    return torch.cat([SOME[:-1], torch.tensor([value])])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"_scales": scaled(float("nan"))}, "a scale is negative or not finite"),
        ({"_scales": scaled(float("inf"))}, "a scale is negative or not finite"),
        ({"_scales": scaled(1e37)}, "or larger than any number"),
        ({"_scales": scaled(-1.0)}, "a scale is negative"),
        ({"_scales": SOME.double()}, "one for each row"),
        ({"_scales": SOME[1:]}, "one for each row"),
        ({"_scales": SOME[:, None]}, "one for each row"),
        ({"_scales": None}, "type torch.int8, which was not declared"),
        ({"bias": torch.zeros(5, dtype=torch.int8)}, "has shape"),
        ({"bias": None}, "one for each row"),
        ({"count": torch.tensor(1, dtype=torch.int8)}, "one for each row"),
        ({"words_rows": torch.tensor([1])}, "has shape"),
        ({"words_rows": torch.arange(40).flip(0)}, "in order, each once"),
    ],
)
def test_hostile_bytes_are_rejected(changes: dict[str, Any], problem: str) -> None:
    base = {**drawn(1), "count": torch.tensor(0)}
    unpack(hostile(), expected(base))
    with pytest.raises(PayloadError, match=problem):
        unpack(hostile(**changes), expected(base))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["words", "head"])
def test_weights_that_are_not_finite_are_rejected(name: str, value: float) -> None:
    base, y = {**drawn(1), "count": torch.tensor(0)}, {**drawn(2), "count": torch.tensor(0)}
    y[name][3] = value
    packed, _ = update(Parameters(y), base, TABLES, {}, *PLACE)
    with pytest.raises(PayloadError, match="a scale is negative or not finite"):
        unpack(packed, expected(base))


def test_differences_to_nothing_and_sums_beyond_all_numbers_are_rejected() -> None:
    with pytest.raises(PayloadError, match="differences came where weights were expected"):
        unpack(hostile(), expected())
    base = {**drawn(1), "count": torch.tensor(0), "bias": torch.full((4,), 3e38)}
    far, _ = update(Parameters({**base, "bias": torch.full((4,), 6e37)}), {**base, "bias": torch.zeros(4)}, TABLES, {})
    with pytest.raises(PayloadError, match="'bias' has values that are not finite"):
        unpack(far, expected({**base, "bias": torch.full((4,), 3e38)}))
