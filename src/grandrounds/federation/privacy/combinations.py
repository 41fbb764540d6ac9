"""What goes together with differential privacy, and why not where it does not."""

from __future__ import annotations

from dataclasses import dataclass

from grandrounds.federation.privacy.settings import Unit


@dataclass(frozen=True)
class Combination:
    unit: Unit
    unaccounted: str
    """What the algorithm says: why its uploads have no accountant under this unit; empty: all of them have."""
    algorithm: str
    personal: bool = False
    """Whether each site has a model of its own, and sends scores of it."""
    compression: str = "fp32"
    aggregate: str = "mean"
    exact_scores: bool = False
    noisy_registration: bool = False
    task: str = ""
    next_sentence: bool = False
    """masked_lm: whether rows have text of two notes."""
    vocabulary: str | None = None
    votes: bool = False
    """Whether sites answer for rows of the public set."""
    rounds: int = 1
    fraction: float = 1.0


def refusal(wanted: Combination) -> str:
    """Why it is refused, as a sentence for the author of the config; empty: it is allowed."""
    c = wanted
    if c.unaccounted:
        return f"privacy.unit = '{c.unit}': '{c.algorithm}' is refused, because {c.unaccounted}"
    if c.personal and not c.exact_scores:
        return (
            f"'{c.algorithm}' has each site score its own model on its own data, and these scores are counted exactly: "
            "set privacy.exact_scores = true if the patients in validation and test data need no guarantee"
        )
    if c.vocabulary == "sites":
        return (
            "model.vocabulary = 'sites' counts words in the sites' text exactly, which privacy has no noise for: take "
            "'public' or a file"
        )
    if c.next_sentence:
        return (
            "task.next_sentence puts text of two notes into one row, so no gradient is of one note alone: leave it out "
            "under privacy"
        )
    if c.unit == "example" and c.task == "distant_re":
        return (
            "privacy.unit = 'example': in distant_re one gradient is of a fact with sentences of several notes, so no "
            "single sentence can be hidden; take privacy.unit = 'patient' or 'site'"
        )
    return _of_sites(c) if c.unit == "site" else ""


def _of_sites(c: Combination) -> str:
    if c.noisy_registration:
        return (
            "privacy.noisy_registration hides one example or patient, and with privacy.unit = 'site' noise would have "
            "to hide them all: leave it out"
        )
    if c.aggregate != "mean":
        return (
            f"privacy.unit = 'site' has noise for a mean, and federation.aggregate = '{c.aggregate}' is none: one site "
            "may change it by more; leave one of them out"
        )
    if c.compression != "fp32":
        return (
            f"federation.compression = '{c.compression}' rounds an update after it was clipped, so it may be longer "
            "than privacy.clip: take fp32 with privacy.unit = 'site'"
        )
    if c.votes and (c.rounds > 1 or c.fraction < 1):
        return (
            "privacy.unit = 'site': a public sentence that is voted on again is paid for again, and few votes drown in "
            "noise: set federation.rounds = 1 and federation.fraction = 1, so that all sites vote once"
        )
    return ""
