"""Clinical notes from several hospitals that never were, for demonstrations, documentation and tests.

Problems, treatments and tests, with the eight relations of i2b2-2010 between them (Uzuner et al., JAMIA 2011).
Hospitals differ in style, abbreviations, vocabulary, phrasing and in what they write about; what is stated follows,
mostly, one knowledge base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from grandrounds.data.documents import Document, entities_by_concept
from grandrounds.data.synthetic.hospitals import Hospital, found
from grandrounds.data.synthetic.knowledge import RELATIONS, Fact, chart, invent_facts
from grandrounds.data.synthetic.notes import Patient, write_note
from grandrounds.data.synthetic.vocabulary import CONCEPTS, PROBLEM, TEST, TREATMENT
from grandrounds.errors import DataError, unknown

__all__ = ["RELATIONS", "Fact", "Synthetic", "synthesize"]

_CHART = {PROBLEM: 8, TREATMENT: 6, TEST: 4}
"""How many concepts a patient's notes draw from; few, so that they meet again, related or not."""


@dataclass(frozen=True)
class Synthetic:
    """Notes for training and test, of different patients, and the facts that they (mostly) state."""

    train: tuple[Document, ...]
    test: tuple[Document, ...]
    facts: tuple[Fact, ...]
    hospitals: tuple[str, ...]


def synthesize(
    hospitals: int = 6, notes: int = 60, seed: int = 1, first: int = 1, types: Sequence[str] | None = None
) -> Synthetic:
    """Notes of some hospitals from the first on: so many each to train on, and a third as many to test on.

    A hospital's notes depend on the seed and its number only, and its first notes not on how many there are. With
    `types` only mentions of these are annotated, and no relation.
    """
    if hospitals < 1 or notes < 1:
        raise DataError(f"cannot synthesize {notes} notes of {hospitals} hospitals; both must be at least 1")
    if first < 1:
        raise DataError(f"hospitals are numbered from 1 on; there is no first one numbered {first}")
    for type in types or ():
        if type not in _CHART:
            raise DataError(unknown("type of synthetic mention", type, _CHART))
    facts = invent_facts(seed)
    founded = [found(index, seed) for index in range(first - 1, first - 1 + hospitals)]
    held_out = max(1, notes // 3)
    return Synthetic(
        train=tuple(_only(note, types) for h in founded for note in _notes(h, facts, "train", notes, seed)),
        test=tuple(_only(note, types) for h in founded for note in _notes(h, facts, "test", held_out, seed)),
        facts=facts,
        hospitals=tuple(h.name for h in founded),
    )


def _notes(hospital: Hospital, facts: tuple[Fact, ...], split: str, count: int, seed: int) -> list[Document]:
    visits = Random(f"visits/{seed}/{hospital.name}/{split}")
    notes: list[Document] = []
    number = 0
    while len(notes) < count:
        number += 1
        patient = _admit(f"{hospital.name}/{split}/{number}", hospital, facts, seed)
        for _ in range(visits.choice((1, 2, 3, 4))):
            id = f"{hospital.name}-{split}-{len(notes) + 1}"
            notes.append(write_note(id, hospital, patient, Random(f"note/{seed}/{id}"), test=split == "test"))
    return notes[:count]


def _only(note: Document, types: Sequence[str] | None) -> Document:
    if types is None:
        return note
    mentions = tuple(mention for mention in note.mentions if mention.type in types)
    return replace(note, mentions=mentions, entities=entities_by_concept(mentions), relations=())


def _admit(id: str, hospital: Hospital, facts: tuple[Fact, ...], seed: int) -> Patient:
    rng = Random(f"patient/{seed}/{id}")
    specialty = rng.choice(hospital.specialties)
    known: list[str] = []
    for type, count in _CHART.items():
        stocked = [c for c in hospital.names if (CONCEPTS[c].type, CONCEPTS[c].specialty) == (type, specialty)]
        known += rng.sample(stocked, min(count, len(stocked)))
    return Patient(id, specialty, rng.randint(19, 91), rng.choice(("man", "woman")), chart(known, facts))
