"""A site's side of differential privacy: samples, noise, and the budget that both are paid from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from grandrounds.errors import DataError
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.accounting import Draw, noise_for
from grandrounds.federation.privacy.discrete import LEAST, discrete_gaussian, of
from grandrounds.federation.privacy.ledger import Limit, SpendingLedger
from grandrounds.federation.privacy.settings import Plan
from grandrounds.federation.seeds import derive

Rows = NDArray[np.int64]
Randomness = Callable[..., np.random.Generator]
"""A generator for a purpose: (who, round, exchange, purpose ...)."""


def from_the_system(*purpose: str | int) -> np.random.Generator:
    """256 bits of the system's randomness: nobody can draw this noise again, so such a run can't be repeated."""
    return np.random.default_rng(int.from_bytes(os.urandom(32), "big"))


def from_the_seed(seed: int) -> Randomness:
    """For simulations and tests. Whoever knows the seed can subtract the noise."""

    def randomness(*purpose: str | int) -> np.random.Generator:
        return np.random.default_rng(derive(seed, "privacy", *purpose))

    return randomness


@dataclass(frozen=True)
class Sample:
    """Steps of DP-SGD that are paid for: who is in each of them, and how much noise it gets."""

    steps: int
    expected: float
    """Units in a step, on average."""
    clip: float
    noise: float
    rng: np.random.Generator
    _units: Sequence[Rows]
    _rate: float
    _most_rows: int

    def draw(self) -> list[Rows]:
        """The rows of each unit of a step: every unit is in it with the same chance, whoever else is (a Poisson
        sample)."""
        chosen = np.flatnonzero(self.rng.random(len(self._units)) < self._rate)
        return [self._some(self._units[i]) for i in chosen.tolist()]

    def _some(self, rows: Rows) -> Rows:
        """Of a unit with many rows other ones in each step."""
        if len(rows) <= self._most_rows:
            return rows
        return np.sort(self.rng.permutation(rows)[: self._most_rows])


class SitePrivacy:
    """What one ask may draw at a site."""

    def __init__(
        self,
        plan: Plan,
        registered: Mapping[str, int],
        ledger: SpendingLedger,
        limits: Sequence[Limit],
        ask: Mapping[str, str | int],
        randomness: Randomness,
    ) -> None:
        """`registered` are the counts that everybody knows, `ask` names the ask in the ledger."""
        self.plan, self._ledger, self._limits, self._ask = plan, ledger, limits, ask
        self._registered, self._randomness = registered, randomness
        self.drawn = 0
        """How often it drew noise, or paid for what the server draws."""

    @property
    def by_gradient(self) -> bool:
        """Whether noise is in each gradient that a site computes; otherwise it is in what all sites' updates add up
        to."""
        return self.plan.unit != "site"

    def sample(self, units: Sequence[Rows], size: int, epochs: int) -> Sample:
        """For training on these units, of which a step has `size` on average and no more than `size` rows of each;
        RefusalError where the budget does not last."""
        population = population_of(self.plan, self._registered)
        steps = epochs * ceil(population / size)
        return self._sample(units, size, steps, steps * self.plan.rounds, size)

    def single(self, units: Sequence[Rows], size: int, most_rows: int) -> Sample:
        """For one gradient."""
        return self._sample(units, size, 1, self.plan.rounds * self.plan.exchanges, most_rows)

    def label_counts(self, by_unit: Sequence[Rows]) -> Rows:
        """How many units have each label, with noise. `by_unit` has how often each unit has it; once counts as much as
        often, so a unit changes the counts by the root of the number of labels at most."""
        if not self.plan.counts_labels:
            raise RefusalError("this algorithm does not say that it counts labels (Algorithm.counts_labels)")
        self._check_population(len(by_unit))
        return self._noisy(np.sum([counts > 0 for counts in by_unit], axis=0, dtype=np.int64))

    def registered(self) -> int:
        """How many units there are, with noise; at least one."""
        return max(1, int(self._noisy(np.array([population_of(self.plan, self._registered)]))[0]))

    def _noisy(self, counted: Rows) -> Rows:
        """Counts of which a unit changes each by one at most."""
        noise = noise_of(self.plan, 1.0, self.plan.counts, counts=True)
        self._pay(Draw(noise, 1.0, 1), self.plan.counts)
        uniform = of(self._randomness(*self._ask.values(), self.drawn))
        return counted + discrete_gaussian(len(counted), max(noise * sqrt(len(counted)), LEAST), uniform)

    def update(self) -> None:
        """Pay for an update that the server will add noise to."""
        self._pay(Draw(noise_of(self.plan, 1.0, self.plan.rounds), 1.0, 1), self.plan.rounds)

    def _sample(self, units: Sequence[Rows], size: int, steps: int, planned: int, most_rows: int) -> Sample:
        population = self._check_population(len(units))
        rate = min(1.0, size / population)
        noise = noise_of(self.plan, rate, planned)
        self._pay(Draw(noise, rate, steps), planned)
        rng = self._randomness(*self._ask.values(), self.drawn)
        clip = self.plan.settings.clip
        return Sample(steps, rate * population, clip, noise, rng, units, rate, most_rows)

    def _check_population(self, units: int) -> int:
        population = population_of(self.plan, self._registered)
        if units > population and not self.plan.settings.noisy_registration:
            raise RefusalError(f"this site has more units of privacy than the {population} that it registered")
        return population

    def _pay(self, draw: Draw, planned: int) -> None:
        self.drawn += 1
        self._ledger.spend({**self._ask, "draw": self.drawn}, draw, self._limits, planned)


def population_of(plan: Plan, registered: Mapping[str, int]) -> int:
    """How many units a site registered; this number is taken to be public."""
    return max(1, registered["patients" if plan.unit == "patient" else "examples"])


def noise_of(plan: Plan, rate: float, steps: int, counts: bool = False) -> float:
    """As the config says, or the smallest with which so many steps in all stay within its epsilon. Where something
    is counted, too, counts and training each have their share of epsilon and delta, which add up."""
    settings = plan.settings
    if settings.noise and not counts:
        return settings.noise
    share = settings.counts if counts else 1 - settings.counts if plan.counts else 1.0
    return noise_for(settings.epsilon * share, settings.delta * share, rate, max(1, steps))


def check_patients(plan: Plan | None, named: bool, site: str) -> None:
    """DataError where patients are to be protected and some document does not say whose it is."""
    if plan is not None and plan.unit == "patient" and not named:
        raise DataError(
            f"privacy.unit = 'patient', and site '{site}' has documents that do not say whose they are: give each a "
            "field 'patient'"
        )


def grouped(ids: Rows, rows: Rows) -> list[Rows]:
    """The rows with the same id together, in the order of the ids."""
    order = np.argsort(ids, kind="stable")
    return [rows[part] for part in np.split(order, np.flatnonzero(np.diff(ids[order])) + 1) if len(part)]
