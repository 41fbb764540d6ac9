"""Clinical notes from several hospitals that never were, for demonstrations, documentation and tests.

Problems, treatments and tests, with the eight relations of i2b2-2010 between them (Uzuner et al., JAMIA 2011).
Hospitals differ in style, abbreviations, vocabulary, phrasing and in what they write about; what is stated follows,
mostly, one knowledge base. They may differ in their annotation guides, too, and silos of notes need not be hospitals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from grandrounds.data.documents import Document, entities_by_concept
from grandrounds.data.synthetic.guides import guide
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
    hospitals: int = 6,
    notes: int = 60,
    seed: int = 1,
    first: int = 1,
    types: Sequence[str] | None = None,
    test: int = 0,
    disagreement: int = 0,
    divergence: int = 100,
) -> Synthetic:
    """Notes of some hospitals from the first on: so many each to train on, and `test` to test on, by default a third
    as many.

    A hospital's notes depend on the seed and its number only, and its first notes not on how many there are. With
    `types` only mentions of these are annotated, and no relation. `disagreement` percent of each hospital's annotation
    guide are its own. The attribute `silo` of a note is its hospital for `divergence` percent of the patients, and any
    of the hospitals for the others.
    """
    if hospitals < 1 or notes < 1:
        raise DataError(f"cannot synthesize {notes} notes of {hospitals} hospitals; both must be at least 1")
    if first < 1:
        raise DataError(f"hospitals are numbered from 1 on; there is no first one numbered {first}")
    if test < 0:
        raise DataError(f"cannot synthesize {test} notes to test on; give 1 or more, or 0 for a third of the others")
    for name, percent in (("disagreement", disagreement), ("divergence", divergence)):
        if not 0 <= percent <= 100:
            raise DataError(f"{name} is {percent} percent; it must be between 0 and 100")
    for type in types or ():
        if type not in _CHART:
            raise DataError(unknown("type of synthetic mention", type, _CHART))
    facts = invent_facts(seed)
    founded = {number: found(number - 1, seed) for number in range(first, first + hospitals)}
    names = tuple(h.name for h in founded.values())
    guides = {h.name: guide(h.name, number, disagreement / 100, seed) for number, h in founded.items()}

    def finished(hospital: Hospital, split: str, count: int) -> Iterator[Document]:
        for note in _notes(hospital, facts, split, count, seed):
            silo = _silo(note, names, divergence / 100, seed)
            annotated = guides[hospital.name].annotate(_only(note, types))
            yield replace(annotated, attributes={**note.attributes, "silo": silo})

    return Synthetic(
        train=tuple(note for h in founded.values() for note in finished(h, "train", notes)),
        test=tuple(note for h in founded.values() for note in finished(h, "test", test or max(1, notes // 3))),
        facts=facts,
        hospitals=names,
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


def _silo(note: Document, hospitals: Sequence[str], divergence: float, seed: int) -> str:
    """Where a patient's notes lie: at one place, all of them."""
    rng = Random(f"silo/{seed}/{note.attributes['patient']}")
    return note.attributes["hospital"] if rng.random() < divergence else rng.choice(hospitals)


def _admit(id: str, hospital: Hospital, facts: tuple[Fact, ...], seed: int) -> Patient:
    rng = Random(f"patient/{seed}/{id}")
    specialty = rng.choice(hospital.specialties)
    known: list[str] = []
    for type, count in _CHART.items():
        stocked = [c for c in hospital.names if (CONCEPTS[c].type, CONCEPTS[c].specialty) == (type, specialty)]
        known += rng.sample(stocked, min(count, len(stocked)))
    return Patient(id, specialty, rng.randint(19, 91), rng.choice(("man", "woman")), chart(known, facts))
