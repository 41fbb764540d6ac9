"""Noise that sites share: whole numbers with the stated deviation, and enough of it whoever stays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from grandrounds.errors import ConfigError
from grandrounds.federation.privacy.discrete import discrete_gaussian, of
from grandrounds.federation.secure.fixed_point import RANGE, FixedPoint
from grandrounds.federation.secure.masks import uniform
from grandrounds.federation.secure.noise import SharedNoise
from grandrounds.federation.secure.settings import SecureSettings

CLIP = 0.7


def drawn(count: int, deviation: float, seed: int = 1) -> NDArray[np.int64]:
    return discrete_gaussian(count, deviation, uniform(bytes([seed]) * 32))


def chi_square(found: NDArray[np.int64], deviation: float) -> float:
    """Against exp(-x^2 / (2 deviation^2)), by numbers -8 to 8 and what is beyond; 17 degrees of freedom."""
    chances = np.exp(-(np.arange(-60, 61) ** 2) / (2 * deviation**2))
    chances /= chances.sum()
    wanted = np.append(chances[52:69], 1 - chances[52:69].sum()) * len(found)
    counts = np.array([(found == x).sum() for x in range(-8, 9)] + [(np.abs(found) > 8).sum()])
    return float(((counts - wanted) ** 2 / wanted).sum())


def test_small_noise_has_the_chances_of_a_discrete_gaussian_and_a_wrong_deviation_is_seen() -> None:
    found = drawn(200_000, 2.5)
    assert chi_square(found, 2.5) < 41  # 99.9%
    assert chi_square(found, 2.55) > 60
    assert chi_square(discrete_gaussian(200_000, 2.5, of(np.random.default_rng(3))), 2.5) < 41
    assert chi_square(drawn(200_000, 0.8), 0.8) < 41
    rounded = np.rint(np.random.default_rng(3).normal(0, 0.8, 200_000)).astype(np.int64)
    assert chi_square(rounded, 0.8) > 60


@pytest.mark.parametrize("deviation", [0.3, 4.0, 1000.5, 3e6])
def test_noise_has_the_deviation_and_the_tails_of_a_gaussian(deviation: float) -> None:
    found = drawn(200_000, deviation)
    whole = np.arange(-100, 101)
    weights = np.exp(-(whole**2) / (2 * deviation**2))
    wanted = math.sqrt((weights * whole**2).sum() / weights.sum()) if deviation < 10 else deviation
    assert abs(found.mean()) < 4 * wanted / math.sqrt(len(found))
    assert found.std() == pytest.approx(wanted, rel=0.01)
    assert found.std() != pytest.approx(wanted * 1.03, rel=0.01)
    if deviation > 100:
        assert (np.abs(found) > 3 * deviation).mean() == pytest.approx(0.0027, rel=0.15)
    assert len(np.unique(drawn(200, 1e6))) > 190
    assert not np.array_equal(found, drawn(200_000, deviation, seed=2))


@pytest.mark.parametrize("sites", [2, 3, 5, 10, 100])
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_all_parts_but_one_of_the_fewest_who_may_stay_add_up_to_the_stated_deviation(sites: int, share: float) -> None:
    shared = SharedNoise(1.3, CLIP)
    settings = SecureSettings("examples", 0.5, share, shared)
    threshold, bits = settings.threshold(sites), settings.numbers(sites).bits
    stated = 1.3 * CLIP * 2.0**bits
    part = shared.part(bits, threshold)
    assert part**2 * (threshold - 1) == pytest.approx(stated**2 + 4)
    assert stated < part * math.sqrt(threshold - 1) < stated * 1.001
    assert shared.excess(bits, threshold, sites) == pytest.approx(math.sqrt(sites / (threshold - 1)), rel=1e-3)


def test_so_little_noise_that_whole_numbers_could_not_say_it_is_raised() -> None:
    assert SharedNoise(1.0, 1e-9).part(20, 3) == 4
    assert SharedNoise(1.0, 1.0).part(20, 2) == pytest.approx(2**20)


def parts(numbers: FixedPoint, noise: SharedNoise, threshold: int, stayed: int) -> float:
    """The deviation of the noise in a mean of sites that send what they were sent."""
    sent = np.random.default_rng(1).normal(0, 1, 40_000).astype(np.float32)
    total = np.zeros(len(sent), dtype=np.uint32)
    for site in range(stayed):
        words, _ = numbers.encode_update(sent, sent, 1024, noise.clip)
        total += words + drawn(len(sent), noise.part(numbers.bits, threshold), site).astype(np.uint32)
    assert numbers.possible(total, stayed)
    return float((numbers.mean(total, [1024] * stayed).astype(np.float64) - sent).std())


@pytest.mark.parametrize("stayed", [3, 4, 5])
def test_the_mean_of_those_who_stay_has_the_noise_that_is_said(stayed: int) -> None:
    noise = SharedNoise(1.1, CLIP)
    settings = SecureSettings("examples", 0.5, 0.5, noise)
    numbers = settings.numbers(5)
    wanted = noise.excess(numbers.bits, 3, stayed) * 1.1 * CLIP / stayed
    assert wanted * stayed >= 1.1 * CLIP * math.sqrt(stayed / 2)
    assert parts(numbers, noise, 3, stayed) == pytest.approx(wanted, rel=0.015)
    assert parts(numbers, SharedNoise(1.1 * 0.95, CLIP), 3, stayed) != pytest.approx(wanted, rel=0.015)


@pytest.mark.parametrize("weight", [1024, 300, 1])
def test_an_update_in_words_is_no_longer_than_the_clip_to_the_last_bit(weight: int) -> None:
    rng, numbers = np.random.default_rng(2), FixedPoint(5, 12.0)
    sent = rng.normal(0, 1, 50_000).astype(np.float32)
    for step in (0.1, CLIP / np.sqrt(50_000), 1e-5):  # longer, as long and shorter
        values = sent + rng.normal(0, step, 50_000).astype(np.float32)
        words, _ = numbers.encode_update(sent, values, weight, CLIP)
        without, _ = numbers.encode_update(sent, sent, weight, CLIP)
        change = words.view(np.int32).astype(object) - without.view(np.int32).astype(object)
        square = sum(int(x) ** 2 for x in change)  # whole numbers of Python
        assert square <= (CLIP * 2.0**numbers.bits * weight / 1024) ** 2
    assert numbers.encode(sent, weight)[0].tolist() == without.tolist()


def test_a_long_update_keeps_its_direction_and_a_short_one_its_length() -> None:
    rng, numbers = np.random.default_rng(3), FixedPoint(3)
    sent, step = (rng.normal(0, scale, 10_000).astype(np.float32) for scale in (1, 0.5))
    found = numbers.mean(numbers.encode_update(sent, sent + step, 1024, CLIP)[0], [1024]).astype(np.float64) - sent
    assert np.linalg.norm(found) == pytest.approx(CLIP, rel=1e-3)
    assert np.corrcoef(found, step)[0, 1] > 0.999
    little = (step * 1e-3).astype(np.float32)
    kept = numbers.mean(numbers.encode_update(sent, sent + little, 1024, CLIP)[0], [1024]).astype(np.float64) - sent
    assert np.abs(kept - little).max() < 2e-6


def test_what_is_counted_as_clipped_is_of_what_was_sent_and_tells_nothing_of_a_site() -> None:
    sent = np.array([0, 40, 1], dtype=np.float32)
    own = np.array([50, 60, -70], dtype=np.float32)
    numbers = FixedPoint(3)
    assert numbers.encode_update(sent, own, 1024, 1e9)[1] == numbers.encode_update(sent, sent, 1024, 1e9)[1] == 1
    words = numbers.encode_update(sent, own, 1024, 1e9)[0]
    assert numbers.mean(words, [1024]).tolist() == [RANGE, RANGE, -RANGE]


def test_words_have_room_for_the_noise_of_all_sites() -> None:
    for sites in (2, 3, 7, 100):
        for noise in (0.5, 30.0, 1000.0):
            settings = SecureSettings("examples", 0.5, 0.5, SharedNoise(noise, 1.0))
            numbers, threshold = settings.numbers(sites), settings.threshold(sites)
            room = RANGE + 12 * noise / math.sqrt(threshold - 1)
            assert sites * room * 2.0**numbers.bits < 2**31
            assert sites * numbers.tail == pytest.approx(sites * (room - RANGE))


def test_noise_that_32_bits_have_no_room_for_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lower privacy\.clip"):
        SecureSettings("examples", 0.5, 0.5, SharedNoise(1e4, 1e5)).numbers(5)
