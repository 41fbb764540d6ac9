"""Notes: sentences in a hospital's layout, as documents with mentions, entities and relations."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from grandrounds.data.documents import Document, Mention, Relation, Span, entities_by_concept
from grandrounds.data.synthetic import phrases
from grandrounds.data.synthetic.hospitals import Hospital
from grandrounds.data.synthetic.knowledge import Chart, Fact
from grandrounds.data.synthetic.sentences import OutOfConceptsError, Sentence, Writer
from grandrounds.data.synthetic.vocabulary import CONCEPTS, TREATMENT

_PLACEHOLDER = re.compile(r"\{(\w+)(\*?)\}")
_SECTIONS = ("HISTORY OF PRESENT ILLNESS", "HOSPITAL COURSE", "ASSESSMENT AND PLAN")
_LONGEST = 26
"""Words in a sentence."""
_ONE_IN_TEST = 4
_STATEMENTS = (3, 3, 4)


@dataclass(frozen=True)
class Patient:
    """Whom a note is about."""

    id: str
    specialty: str
    age: int
    sex: str
    chart: Chart


@dataclass
class Draft:
    """A note in the making."""

    sentences: list[Sentence] = field(default_factory=list)
    links: list[tuple[Fact, tuple[int, int] | None]] = field(default_factory=list)
    """Relations across sentences, with the sentences that mention head and tail."""
    stated: dict[frozenset[str], str] = field(default_factory=dict)

    def fits(self, relations: Iterable[Fact]) -> bool:
        """Whether the note would not state two relations of one pair."""
        return all(self.stated.get(frozenset((h, t)), label) == label for h, label, t in relations)

    def add(self, *sentences: Sentence) -> None:
        self.sentences += sentences
        self.state(fact for sentence in sentences for fact in sentence.relations)

    def link(self, fact: Fact, places: tuple[int, int] | None, texts: list[str], test: bool) -> None:
        """Add sentences that state a fact together, if they may be added."""
        if self.fits([fact]) and all(_acceptable(text, test) for text in texts):
            self.links.append((fact, places))
            self.state([fact])
            self.add(*map(Sentence, texts))

    def state(self, relations: Iterable[Fact]) -> None:
        self.stated.update((frozenset((h, t)), label) for h, label, t in relations)


def is_test_sentence(text: str) -> bool:
    """Whether a sentence may occur in test notes only, or in training notes only.

    The sentence with every mention blinded decides, by its checksum: then sentences that agree once two mentions
    are blinded are always on one side, whatever hospital, note or seed they come from.
    """
    skeleton = _PLACEHOLDER.sub(lambda m: f"@{CONCEPTS[m[1]].type}$", text).lower()
    return zlib.crc32(skeleton.encode()) % _ONE_IN_TEST == 0


def write_note(id: str, hospital: Hospital, patient: Patient, rng: Random, *, test: bool) -> Document:
    """A note: an introduction, a few statements, their sequels, and what else notes say."""
    draft = Draft()

    def write(make: Callable[[Writer], Sentence]) -> Sentence:
        while True:
            with suppress(OutOfConceptsError):
                made = make(Writer(hospital, patient.chart, rng))
                made = Sentence(hospital.write(made.text), made.relations)
                if draft.fits(made.relations) and _acceptable(made.text, test):
                    draft.add(made)
                    return made

    write(lambda writer: _introduction(writer, patient))
    for _ in range(rng.choice(_STATEMENTS)):
        said = write(Writer.sentence)
        if rng.random() < 0.25 and (subject := _lone_treatment(said)):
            write(partial(Writer.about, concept=subject))
        if rng.random() < 0.3:
            write(lambda writer: Sentence(writer.fill(rng.choice(phrases.FILLERS))))
    for chance, relate in ((0.35, _relate_across), (0.3, _relate_by_list)):
        if rng.random() < chance:
            with suppress(OutOfConceptsError):
                relate(draft, Writer(hospital, patient.chart, rng), test)
    return _document(id, draft, hospital, patient, rng)


def _acceptable(text: str, test: bool) -> bool:
    mentions = len(_PLACEHOLDER.findall(text))
    return len(text.split()) <= _LONGEST and (mentions < 2 or is_test_sentence(text) == test)


def _introduction(writer: Writer, patient: Patient) -> Sentence:
    template = writer.rng.choice(phrases.INTRODUCTIONS)
    return Sentence(writer.fill(template, age=patient.age, sex=patient.sex))


def _lone_treatment(sentence: Sentence) -> str | None:
    """The treatment that "the drug" in the next sentence must mean."""
    found = [id for id, _ in _PLACEHOLDER.findall(sentence.text) if CONCEPTS[id].type == TREATMENT]
    return found[0] if len(found) == 1 else None


def _relate_across(draft: Draft, writer: Writer, test: bool) -> None:
    *pair, fact = writer.across()
    first, second = (writer.hospital.write(text) for text in pair)
    place = len(draft.sentences)
    places = (place, place + 1) if f"{{{fact.head}}}" in first else (place + 1, place)
    draft.link(fact, places, [first, second], test)


def _relate_by_list(draft: Draft, writer: Writer, test: bool) -> None:
    """A treatment for "the second problem": no mention of a problem stands beside it."""
    nth = writer.rng.randrange(len(phrases.ORDINALS))
    problems = writer.hospital.write(writer.fill(phrases.PROBLEM_LIST, when=writer.rng.choice(phrases.WHEN)))
    plan = writer.hospital.write(writer.fill(writer.rng.choice(phrases.PLANS), nth=phrases.ORDINALS[nth]))
    (treatment, _), (problem, _) = _PLACEHOLDER.findall(plan)[0], _PLACEHOLDER.findall(problems)[nth]
    draft.link(Fact(treatment, "TrAP", problem), None, [problems, plan], test)


def _document(id: str, draft: Draft, hospital: Hospital, patient: Patient, rng: Random) -> Document:
    text = ""
    sentences: list[Span] = []
    mentions: list[Mention] = []
    index: dict[tuple[int, str], int] = {}
    for number, sentence in enumerate(draft.sentences):
        text += _lead(hospital.layout, number, len(draft.sentences))
        start = len(text)
        for literal, concept, anaphor in _pieces(sentence.text):
            text += literal if len(text) > start else _capital(literal)
            if concept:
                index[number, concept] = len(mentions)
                name = _name(hospital, concept, bool(anaphor), rng)
                name = name if len(text) > start else _capital(name)
                type, m = CONCEPTS[concept].type, f"T{len(mentions) + 1}"
                mentions.append(Mention(len(text), len(text) + len(name), type, m, concept))
                text += name
        text += "."
        sentences.append(Span(start, len(text)))
    relations = [
        _relation(fact, (index[number, fact.head], index[number, fact.tail]))
        for number, sentence in enumerate(draft.sentences)
        for fact in sentence.relations
    ]
    for fact, place in draft.links:
        where = (index[place[0], fact.head], index[place[1], fact.tail]) if place else None
        relations.append(_relation(fact, where))
    return Document(
        id, text, tuple(sentences), tuple(mentions), entities_by_concept(mentions), tuple(relations),
        {"hospital": hospital.name, "patient": patient.id, "specialty": patient.specialty},
    )  # fmt: skip


def _relation(fact: Fact, mentions: tuple[int, int] | None) -> Relation:
    head, label, tail = fact
    if label == "PIP" and mentions and mentions[0] > mentions[1]:  # text order, as the relation is symmetric
        return Relation(label, tail, head, (mentions[1], mentions[0]))
    return Relation(label, head, tail, mentions)


def _pieces(text: str) -> Iterable[tuple[str, str, str]]:
    """(literal text, concept after it, "*" if it is referred back to); the last has no concept."""
    split = _PLACEHOLDER.split(text)
    yield from zip(split[::3], [*split[1::3], ""], [*split[2::3], ""], strict=True)


def _lead(layout: str, number: int, total: int) -> str:
    """What stands before a sentence."""
    if layout == "bullets":
        return "\n- " if number else "- "
    if layout == "sections":
        breaks = {0: 0, 1: 1, max(2, total - 1): 2}
        if number in breaks:
            return ("\n\n" if number else "") + _SECTIONS[breaks[number]] + ":\n"
    return " " if number else ""


def _name(hospital: Hospital, concept: str, anaphor: bool, rng: Random) -> str:
    if anaphor:
        return rng.choice(CONCEPTS[concept].anaphors)
    full, short = hospital.names[concept]
    return short if rng.random() < hospital.brevity else full


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
