"""Epsilon beside closed forms, and noise that lasts as long as it must."""

from __future__ import annotations

from math import exp, sqrt
from statistics import NormalDist

import pytest

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

from grandrounds.errors import ConfigError
from grandrounds.federation.privacy.accounting import Draw, epsilon, merged, noise_for, steps_for

DELTA = 1e-5


def exact(noise: float, steps: int, delta: float) -> float:
    """Of Gaussian noise without sampling (Balle and Wang, ICML 2018, Theorem 8, for mu = sqrt(steps) / noise)."""
    mu, phi = sqrt(steps) / noise, NormalDist().cdf
    low, high = 0.0, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        spent = phi(mu / 2 - middle / mu) - exp(middle) * phi(-mu / 2 - middle / mu) if middle < 400 else 0.0
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (2.0, 4), (4.0, 100), (10.0, 50)])
def test_epsilon_without_sampling_is_the_closed_form_or_little_more(noise: float, steps: int) -> None:
    found, wanted = epsilon([Draw(noise, 1.0, steps)], DELTA), exact(noise, steps, DELTA)
    assert wanted <= found <= wanted * 1.002


@pytest.mark.parametrize(
    ("draw", "known"),  # of PLD at an interval of 1e-4, measured with dp-accounting 0.6.0
    [(Draw(1.0, 0.01, 1000), 1.8282), (Draw(0.8, 0.05, 300), 9.3102), (Draw(2.0, 0.2, 100), 5.0232)],
)
def test_epsilon_of_samples_is_near_that_of_a_finer_grid(draw: Draw, known: float) -> None:
    assert known <= epsilon([draw], DELTA) + 1e-4 <= known * 1.002


def test_steps_add_up_whatever_their_order() -> None:
    one, two, more = Draw(1.0, 0.1, 10), Draw(1.0, 0.1, 15), Draw(2.0, 0.5, 3)
    assert merged([one, more, two]) == (Draw(1.0, 0.1, 25), more)
    assert epsilon([one, more, two], DELTA) == epsilon([more, Draw(1.0, 0.1, 25)], DELTA)
    assert epsilon([one], DELTA) < epsilon([one, two], DELTA) < epsilon([one, two, more], DELTA)


def test_nothing_drawn_costs_nothing() -> None:
    assert epsilon([], DELTA) == 0


@pytest.mark.parametrize(("target", "rate", "steps"), [(1.0, 0.05, 200), (8.0, 0.05, 200), (3.0, 1.0, 10)])
def test_noise_lasts_for_its_steps_and_not_for_many_more(target: float, rate: float, steps: int) -> None:
    noise = noise_for(target, DELTA, rate, steps)
    assert target * 0.97 <= epsilon([Draw(noise, rate, steps)], DELTA) <= target
    assert steps <= steps_for(target, DELTA, noise, rate) <= steps * 1.06 + 1


def test_a_budget_that_no_noise_can_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"can't last for 100000000 steps"):
        noise_for(1e-4, DELTA, 1.0, 100_000_000)
