"""Privacy of whole sites: the clip and the noise as they are in the encoded bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.payloads import (
    Expected,
    Gradients,
    LabelCounts,
    Packed,
    Parameters,
    PredictedLabels,
    Predictions,
    unpack,
)
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.updates import SiteNoise, clipped

SHAPES = {"a": (300, 100), "b": (50,)}
CLIP, NOISE = 0.7, 1.1


def parameters(scale: float, seed: int) -> Parameters:
    rng = torch.Generator().manual_seed(seed)
    values = {name: torch.randn(shape, generator=rng) * scale for name, shape in SHAPES.items()}
    return Parameters({**values, "count": torch.tensor(seed)})


def over_the_wire(payload: Parameters) -> dict[str, torch.Tensor]:
    expected = Expected({**SHAPES, "count": ()}, integers=frozenset({"count"}))
    arrived = unpack(Packed.from_bytes(payload.pack("fp32").to_bytes()), expected, Parameters)
    assert isinstance(arrived, Parameters)
    return dict(arrived.values)


def length(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return float(np.sqrt(sum(((one[n].double() - other[n].double()) ** 2).sum().item() for n in SHAPES)))


def moved(sent: Parameters, scale: float) -> Parameters:
    step = parameters(scale, 2).values
    return Parameters({**{n: sent.values[n] + step[n] for n in SHAPES}, "count": torch.tensor(99)})


def test_the_update_in_the_bytes_is_no_longer_than_the_clip_and_points_the_same_way() -> None:
    sent = parameters(1.0, 1)
    trained = moved(sent, 0.1)
    leaving = clipped(trained, [sent], CLIP)
    assert isinstance(leaving, Parameters)
    arrived = over_the_wire(leaving)
    assert length(arrived, dict(trained.values)) > 10
    assert length(arrived, dict(sent.values)) == pytest.approx(CLIP, rel=1e-4)
    step, whole = arrived["a"] - sent.values["a"], trained.values["a"] - sent.values["a"]
    assert torch.cosine_similarity(step.flatten(), whole.flatten(), dim=0) > 0.999
    assert arrived["count"] == 1  # counters are as they were sent


def test_a_short_update_keeps_its_bits() -> None:
    sent = parameters(1.0, 1)
    trained = moved(sent, 1e-4)
    leaving = clipped(trained, [sent], CLIP)
    assert isinstance(leaving, Parameters)
    assert all(torch.equal(over_the_wire(leaving)[name], trained.values[name]) for name in SHAPES)


def test_an_update_that_is_not_finite_leaves_as_none() -> None:
    sent = parameters(1.0, 1)
    broken = Parameters({**sent.values, "b": torch.full((50,), float("nan"))})
    leaving = clipped(broken, [sent], CLIP)
    assert isinstance(leaving, Parameters)
    assert all(torch.equal(leaving.values[name], sent.values[name]) for name in SHAPES)


@pytest.mark.parametrize(
    ("payload", "received"),
    [
        (parameters(1.0, 1), ()),
        (LabelCounts(torch.tensor([3, 4])), (parameters(1.0, 1),)),
        (Gradients({"a": torch.ones(2)}), (parameters(1.0, 1),)),
        (Predictions(torch.tensor([[0.5, 0.5]]), "probabilities", "d"), (parameters(1.0, 1),)),
    ],
)
def test_what_has_no_clip_does_not_leave(payload: object, received: tuple[object, ...]) -> None:
    with pytest.raises(RefusalError, match="only updates of weights that it was sent leave"):
        clipped(payload, received, CLIP)  # type: ignore[arg-type]


def noise_found(noise: float, largest: float) -> float:
    """The deviation of the noise in the bytes, over what was stated."""
    mean = parameters(1.0, 1)
    noisy = over_the_wire(SiteNoise(noise, CLIP, np.random.default_rng(3)).add(mean, largest))
    drawn = (noisy["a"].double() - mean.values["a"].double()).numpy()
    assert abs(drawn.mean()) < 4 * drawn.std() / np.sqrt(drawn.size)
    return float(drawn.std() / (NOISE * CLIP * 0.25))


def test_the_noise_in_the_bytes_has_the_stated_deviation_and_a_wrong_one_is_seen() -> None:
    """30,000 draws tell the deviation to 0.4%."""
    assert noise_found(NOISE, 0.25) == pytest.approx(1, abs=0.015)
    assert noise_found(NOISE * 1.05, 0.25) != pytest.approx(1, abs=0.015)
    assert noise_found(NOISE * 0.95, 0.25) != pytest.approx(1, abs=0.015)
    assert noise_found(NOISE, 0.5) == pytest.approx(2, abs=0.03)  # a site with half the mean needs twice the noise


def test_noisy_votes_keep_the_winner_where_it_is_clear_and_not_where_noise_is_large() -> None:
    votes = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).repeat(200, 1)
    mean = Predictions(votes, "probabilities", "d")
    little, much = (SiteNoise(noise, CLIP, np.random.default_rng(1)).add(mean, 0.1) for noise in (0.05, 50.0))
    assert torch.equal(little.values, (votes > 0.5).float())
    right = (much.values == (votes > 0.5)).float().mean()
    assert 0.4 < right < 0.6
    assert bool((much.values.sum(dim=1) == 1).all())


def test_votes_on_more_rows_need_more_noise() -> None:
    """A site changes all rows at once: by the root of their number. Lead 0.3, share 0.1, noise 1: the difference of two
    counts has the deviation sqrt(2 rows) 0.1, so the leader wins with Phi(0.3 / (0.1 sqrt(2 rows)))."""
    for rows, wins in ((400, 0.5422), (4, 0.8556)):
        mean = Predictions(torch.tensor([[0.65, 0.35]]).repeat(rows, 1), "probabilities", "d")
        rng, won, times = np.random.default_rng(5), 0.0, 40_000 // rows
        for _ in range(times):
            won += SiteNoise(1.0, CLIP, rng).add(mean, 0.1).values[:, 0].mean().item()
        assert won / times == pytest.approx(wins, abs=0.011)


def test_a_mean_that_noise_is_not_made_for_is_an_error() -> None:
    with pytest.raises(GrandRoundsError, match="no noise for a mean of 'gradients'"):
        SiteNoise(1.0, CLIP, np.random.default_rng(1)).add(Gradients({"a": torch.ones(2)}), 1.0)


def test_votes_may_leave_as_they_are() -> None:
    votes = PredictedLabels(torch.tensor([1, 0]), 2, "d")
    assert clipped(votes, (), CLIP) is votes
