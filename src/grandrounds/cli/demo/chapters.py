"""The demo's five chapters: what each system does, what travels, and the arms that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    title: str
    story: str
    """What the hospitals do, in a sentence."""
    travels: str
    """What leaves a hospital in a round, in words."""
    arms: Sequence[str]
    """The system, and a hospital alone."""
    further: Sequence[str]
    """What else `grandrounds demo SYSTEM` runs."""


CHAPTERS = {
    "fedbert": Chapter(
        "Federated BERT",
        "Two hospitals pre-train a small BERT on notes that stay where they are.",
        "its weights",
        ("fedavg", "local_only"),
        ("centralized",),
    ),
    "fedner": Chapter(
        "FedNER",
        "Three hospitals train taggers together though each annotates other types: the top layers stay private.",
        "gradients of the layers that are shared",
        ("fedner", "local_only"),
        ("all_shared",),
    ),
    "feded": Chapter(
        "FedED",
        "Six hospitals answer the server's own sentences, and the server learns relations from their answers.",
        "predictions, no weights",
        ("feded", "local_only"),
        ("fedavg", "fedatt", "centralized"),
    ),
    "fedlcc": Chapter(
        "FedLCC",
        "Three hospitals learn relations across whole documents; a contrast of contexts holds their models together.",
        "its weights",
        ("fedlcc", "local_only"),
        ("fedavg",),
    ),
    "lazy_mil": Chapter(
        "Lazy MIL",
        "Ten hospitals learn from a knowledge base: for each fact they agree on the one sentence that best says it.",
        "its weights, and scores of facts under a key that the server does not have",
        ("lazy_mil", "local_only"),
        ("one",),
    ),
}
