"""The streaming mean is NumPy's weighted mean."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.aggregate import mean
from grandrounds.federation.contract import Registration, Reply
from grandrounds.federation.payloads import Parameters, Predictions


def reply(payload: object, weight: float = 1.0) -> Reply:
    return Reply(Registration("s", {}, (), {}), payload, weight)


def random_replies(count: int) -> tuple[list[Reply[Parameters]], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    values, weights = rng.normal(size=(count, 4, 3)).astype(np.float32), rng.integers(1, 500, count)
    made = [reply(Parameters({"w": torch.from_numpy(v)}), float(w)) for v, w in zip(values, weights, strict=True)]
    return made, values, weights


@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_it_is_the_weighted_mean_of_numpy(count: int) -> None:
    replies, values, weights = random_replies(count)
    found = mean(iter(replies)).values["w"].numpy()
    np.testing.assert_allclose(found, np.average(values.astype(np.float64), axis=0, weights=weights), atol=1e-6)


def test_predictions_keep_their_form_and_public_set() -> None:
    one, other = (torch.tensor([[p, 1 - p]]) for p in (0.2, 0.8))
    found = mean([reply(Predictions(p, "probabilities", "d"), w) for p, w in ((one, 1.0), (other, 3.0))])
    assert (found.form, found.public) == ("probabilities", "d")
    assert found.values.flatten().tolist() == pytest.approx([0.65, 0.35], abs=1e-6)


def test_one_reply_is_that_reply_bit_for_bit_and_a_copy() -> None:
    weights = torch.randn(50) * 1e-3
    found = mean([reply(Parameters({"w": weights}), 0.1)]).values["w"]
    assert found.numpy().tobytes() == weights.numpy().tobytes()
    found.zero_()
    assert weights.abs().sum() > 0


def test_equal_replies_have_themselves_as_mean_bit_for_bit() -> None:
    weights = torch.randn(50)
    found = mean(reply(Parameters({"w": weights.clone()}), w) for w in (3.0, 7.0, 11.0)).values["w"]
    assert torch.equal(found, weights)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_site_of_zero_weight_has_no_say(place: int) -> None:
    replies = [reply(Parameters({"w": torch.tensor([v])}), w) for v, w in ((1.0, 1.0), (4.0, 2.0))]
    replies.insert(place, reply(Parameters({"w": torch.tensor([1000.0])}), 0.0))
    assert mean(replies).values["w"].item() == pytest.approx(3.0, abs=1e-6)


def test_counters_are_not_averaged() -> None:
    replies = [reply(Parameters({"steps": torch.tensor(n), "w": torch.tensor([float(n)])})) for n in (5, 7)]
    found = mean(replies).values
    assert (found["steps"].item(), found["w"].item()) == (5, 6)


def test_replies_are_read_once_one_at_a_time() -> None:
    """A payload is a cursor: what it held is overwritten when the next one is read."""
    buffer = torch.zeros(1)

    def cursor() -> Iterator[Reply[Parameters]]:
        for value in (1.0, 2.0, 6.0):
            buffer.fill_(value)
            yield reply(Parameters({"w": buffer}))
        buffer.fill_(-1000)

    assert mean(cursor()).values["w"].item() == pytest.approx(3.0, abs=1e-6)


def test_no_reply_has_no_mean() -> None:
    with pytest.raises(GrandRoundsError, match="at least one reply"):
        mean([])
