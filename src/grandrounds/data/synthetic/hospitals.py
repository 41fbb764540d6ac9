"""Hospitals and their habits: layout, abbreviations, dialect, formulary, and which relations their notes dwell on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from grandrounds.data.synthetic.knowledge import RELATIONS
from grandrounds.data.synthetic.phrases import CORE, DIALECTS, NO_RELATION, Phrases
from grandrounds.data.synthetic.vocabulary import CONCEPTS, SPECIALTIES, Concept

_NAMES = ("st-anne", "riverside", "northgate", "lakeview", "mercy", "university")
_FAVOURITES = (
    ("TrAP", "TrCP"),
    ("TeRP", "TrIP"),
    ("PIP", "TeCP"),
    ("TrNAP", "TrCP"),
    ("TrIP", "TrAP"),
    ("TeCP", "TrWP"),
)
_RARE = (
    ("TeCP", "TrWP"),
    ("TrNAP", "PIP"),
    ("TrCP", "TrIP"),
    ("TeRP", "PIP"),
    ("TrNAP", "TeCP"),
    ("TrAP", "TrIP"),
)
_FAVOUR, _NEGLECT, _NONE_WEIGHT = 3.0, 0.4, 4.0

_OWN_WORDS = 0.35
"""How often a hospital uses its dialect where the common core would do."""
_STOCKED = 0.7
"""The share of a specialty's concepts that a hospital knows."""

_SLANG = {
    "patient": "pt", "complains of": "c/o", "status post": "s/p", "secondary to": "2/2", "history of": "h/o",
    "with": "w/", "without": "w/o", "because of": "b/c of", "year old": "yo", "developed": "dev'd",
    "treated": "tx'd", "evaluate": "eval", "consistent with": "c/w", "discharge": "d/c",
}  # fmt: skip
_TELEGRAM = {"was": "", "were": "", "is a": "", "is": "", "the": "", "there": ""}
_LETTERS = {"man": "gentleman", "woman": "lady", "was started": "was commenced", "because of": "due to"}


@dataclass(frozen=True)
class Hospital:
    """A hospital's habits; its notes follow from them, its patients and the seed."""

    name: str
    layout: str
    """prose, sections or bullets."""
    rewrites: Mapping[str, str]
    """House style: words and what is written in their place."""
    brevity: float
    """How often a short name takes the place of the full one."""
    dialect: Phrases
    weights: Mapping[str, float]
    """How often a clause speaks of each relation, or of None."""
    specialties: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    """The concepts that it knows, with the names in use here."""

    def phrases(self, key: tuple[str, str, str], rng: Random) -> tuple[str, ...]:
        return self.dialect[key] if rng.random() < _OWN_WORDS else CORE[key]

    def write(self, text: str) -> str:
        """Put a sentence into house style."""
        for pattern, replacement in _patterns(self.rewrites):
            text = pattern.sub(replacement, text)
        return re.sub(r"\s+([,;.]|$)", r"\1", re.sub(r"\s+", " ", text)).strip()


def found(index: int, seed: int) -> Hospital:
    """The index-th hospital; it depends on no other."""
    rng = Random(f"hospital/{seed}/{index}")
    kind = index % len(_NAMES)
    name = _NAMES[index] if index < len(_NAMES) else f"hospital-{index + 1}"
    return Hospital(
        name=name,
        layout=("prose", "bullets", "sections")[index % 3],
        rewrites=({}, {**_SLANG, **_TELEGRAM}, _LETTERS, _SLANG, {}, _TELEGRAM)[kind],
        brevity=(0.2, 0.9, 0.1, 0.7, 0.3, 0.8)[kind],
        dialect=DIALECTS[kind],
        weights=_weights(kind),
        # Neighbours share two of three, so that vocabularies overlap in part.
        specialties=tuple(SPECIALTIES[(index + step) % len(SPECIALTIES)] for step in range(3)),
        names=_names(rng),
    )


def _weights(kind: int) -> dict[str, float]:
    weights = dict.fromkeys(RELATIONS, 1.0) | {NO_RELATION: _NONE_WEIGHT}
    return weights | dict.fromkeys(_FAVOURITES[kind], _FAVOUR) | dict.fromkeys(_RARE[kind], _NEGLECT)


def _names(rng: Random) -> dict[str, tuple[str, ...]]:
    shelves: dict[tuple[str, str], list[Concept]] = {}
    for concept in CONCEPTS.values():
        shelves.setdefault((concept.specialty, concept.type), []).append(concept)
    return {
        concept.id: (concept.names[0], rng.choice(concept.names[1:]))
        for public_sets in shelves.values()
        for concept in rng.sample(public_sets, round(_STOCKED * len(public_sets)))
    }


def _patterns(rewrites: Mapping[str, str]) -> list[tuple[re.Pattern[str], str]]:
    # Longer ones first: "is a" before "is". Placeholders are never touched, they hold no such words.
    longest_first = sorted(rewrites, key=len, reverse=True)
    return [(re.compile(rf"(?<![\w/]){re.escape(words)}(?![\w/])"), rewrites[words]) for words in longest_first]
