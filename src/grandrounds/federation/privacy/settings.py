"""What a config says about differential privacy, and what follows from it for a run."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Unit = Literal["example", "patient", "site"]


class Privacy(BaseModel):
    """[privacy]: differential privacy. Needs `grandrounds[privacy]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Literal["none", "example", "patient", "site"] = "none"
    """Whose presence the noise hides: an example, a patient with all examples, or a site; none: nobody's."""
    epsilon: float = Field(8.0, gt=0, allow_inf_nan=False)
    """The budget of a site for the whole run. A site that has spent it refuses to train on."""
    delta: float = Field(1e-5, gt=0, lt=0.1)
    """The chance that epsilon does not hold. It should be far below one in the number of units."""
    clip: float = Field(1.0, gt=0, allow_inf_nan=False)
    """The largest norm of an example's or a patient's gradient, or of a site's update; what is longer is cut."""
    noise: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Standard deviation of the noise, as a multiple of what one unit can change. By default the smallest with which
    epsilon lasts for all rounds."""
    counts: float = Field(0.1, gt=0, lt=1)
    """The share of epsilon and delta that goes to counts: of labels, where an algorithm asks for them, and of what a
    site registers, where the next key asks for noise."""
    noisy_registration: bool = False
    """Let sites register how many examples or patients they have with noise, and each of them as one example, one note
    and one patient. By default these numbers are exact, and taken to be public."""
    exact_scores: bool = False
    """Let sites send scores on their own validation and test data, counted exactly: the patients in these data have no
    guarantee. Algorithms that give each site its own model need it."""


@dataclass(frozen=True)
class Plan:
    """How often a run may draw noise."""

    settings: Privacy
    rounds: int
    """In which a site is asked at most; it refuses after that."""
    exchanges: int = 1
    """Of a round, for an algorithm that asks for one gradient after the other."""
    counts_labels: bool = False
    """Whether a round also asks for counts of labels."""

    @property
    def counts(self) -> int:
        """How often a site counts something with noise."""
        return self.rounds * self.counts_labels + self.settings.noisy_registration

    @classmethod
    def of(
        cls, settings: Privacy, rounds: int, fraction: float, exchanges: int = 1, counts_labels: bool = False
    ) -> Plan:
        """Where a round asks only some sites, two standard deviations more than the expected number of rounds."""
        expected = rounds * fraction
        most = min(rounds, ceil(expected + 2 * sqrt(expected * (1 - fraction))))
        return cls(settings, most, exchanges, counts_labels)

    def sentence(self, simulated: bool) -> str:
        """What a run says of its noise before round 1."""
        s = self.settings
        said = f"privacy by {s.unit}: at most epsilon {s.epsilon:g} at delta {s.delta:g} for each site"
        if simulated:
            return f"{said}; its noise comes from the seed, so whoever has the seed can subtract it: an experiment only"
        return f"{said}; its noise comes from the systems' randomness, so this run can't be repeated"

    @property
    def unit(self) -> Unit:
        assert self.settings.unit != "none"  # there is no plan then
        return self.settings.unit
