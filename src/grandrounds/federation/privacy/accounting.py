"""What noise costs: (epsilon, delta) of Gaussian noise on Poisson samples, by privacy-loss distributions.

Koskela et al., AISTATS 2020; Doroshenko et al., PETS 2022 (connect the dots), as `dp-accounting` has them. Estimates
are pessimistic: the true epsilon is not larger. Neighbouring data sets differ in one unit, which is in one of them and
not in the other; the sampling rate and the number of steps are the same for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from math import ceil, expm1, floor, inf, log10, sqrt
from typing import Any, NamedTuple

from grandrounds.errors import ConfigError

INTERVAL, SMALL, FINE = 1e-3, 0.5, 2e-4
"""Of the discretised privacy loss; finer where epsilon is below `SMALL`, for there the first is up to 5% too high."""
COARSE = 1e-2
"""For the first guesses of a search."""
MOST_NOISE, MOST_STEPS = 1e4, 10**6
MOST_LOSS = 500.0
"""A larger privacy loss is infinite to us: it would take gigabytes to say how large it is."""


class Draw(NamedTuple):
    """Steps that release something with Gaussian noise."""

    noise: float
    """Standard deviation, as a multiple of what one unit can change."""
    rate: float
    """The chance of each unit to be in a step; 1: all are."""
    steps: int


def check_installed() -> None:
    """ConfigError without the package that counts epsilon."""
    if find_spec("dp_accounting") is None:
        raise ConfigError("privacy needs dp-accounting, which is not installed; pip install 'grandrounds[privacy]'")


def epsilon(draws: Iterable[Draw], delta: float) -> float:
    """Of all of them together, each chosen in view of what came before."""
    found = _epsilon(merged(draws), delta, INTERVAL)
    return found if found >= SMALL or found == 0 else min(found, _epsilon(merged(draws), delta, FINE))


def merged(draws: Iterable[Draw]) -> tuple[Draw, ...]:
    """Equal steps counted together."""
    steps: dict[tuple[float, float], int] = {}
    for draw in draws:
        key = draw.noise, draw.rate
        steps[key] = steps.get(key, 0) + draw.steps
    return tuple(Draw(*key, count) for key, count in sorted(steps.items()) if count)


@lru_cache(maxsize=512)
def noise_for(target: float, delta: float, rate: float, steps: int) -> float:
    """The smallest noise, to half a percent, with which so many steps cost no more than the target."""
    low, high = _bracket(target, delta, rate, steps)
    interval = COARSE
    while high / low > 1.005:
        if interval == COARSE and high / low < 1.2:  # the coarse estimate is too high: look a little lower, and finely
            interval, low = INTERVAL, low / 1.1
        middle = (low * high) ** 0.5
        if _epsilon((Draw(middle, rate, steps),), delta, interval) <= target:
            high = middle
        else:
            low = middle
    unit = 10.0 ** (floor(log10(high)) - 3)
    found = round(ceil(high / unit) * unit, 12)
    while epsilon([Draw(found, rate, steps)], delta) > target:
        found = round(found + unit, 12)
    return found


def steps_for(target: float, delta: float, noise: float, rate: float) -> int:
    """The largest number of such steps that cost no more than the target."""
    low, high = 0, 1
    while high < 1 << 24 and epsilon([Draw(noise, rate, high)], delta) <= target:
        low, high = high, high * 2
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon([Draw(noise, rate, middle)], delta) <= target else (low, middle)
    return low


def _bracket(target: float, delta: float, rate: float, steps: int) -> tuple[float, float]:
    high = 0.5
    while _epsilon((Draw(high, rate, steps),), delta, COARSE) > target:
        high *= 2
        if high > MOST_NOISE:
            raise ConfigError(
                f"epsilon {target:g} at delta {delta:g} can't last for {steps} steps: give more epsilon, or fewer "
                "rounds or epochs"
            )
    low = high / 2
    while high == 0.5 and low > 0.05 and _epsilon((Draw(low, rate, steps),), delta, COARSE) <= target:
        low /= 2
    return low, high


@lru_cache(maxsize=4096)
def _epsilon(draws: tuple[Draw, ...], delta: float, interval: float) -> float:
    if not draws:
        return 0.0
    if sum(d.steps for d in draws) > MOST_STEPS or _typical_loss(draws) > MOST_LOSS:
        return inf
    composed: Any = None
    for draw in draws:
        one = _distribution(draw.noise, draw.rate, interval).self_compose(draw.steps)
        composed = one if composed is None else composed.compose(one)
    found = float(composed.get_epsilon_for_delta(delta))
    return found if found == found else inf


def _typical_loss(draws: tuple[Draw, ...]) -> float:
    """By the central limit theorem (Bu et al., 2020: mu = q sqrt(T (e^(1 / sigma^2) - 1))), six deviations up; no more
    than without sampling."""
    square = 0.0
    for noise, rate, steps in draws:
        whole = noise**-2
        square += steps * (min(whole, rate**2 * expm1(whole)) if whole < 50 else whole)
    return square / 2 + 6 * sqrt(square)


@lru_cache(maxsize=64)
def _distribution(noise: float, rate: float, interval: float) -> Any:
    check_installed()
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=interval
    )
