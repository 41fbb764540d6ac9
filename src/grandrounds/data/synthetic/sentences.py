"""A small grammar of clinical sentences: a subject, what is said of it, and what else the sentence mentions.

Text holds concepts as placeholders, "{T004}", or "{T004*}" where the note refers back to one ("the drug"). A concept
occurs at most once in a sentence, so relations are written between concepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from grandrounds.data.synthetic import phrases
from grandrounds.data.synthetic.hospitals import Hospital
from grandrounds.data.synthetic.knowledge import HEAD_TYPE, Chart, Fact
from grandrounds.data.synthetic.phrases import NO_RELATION
from grandrounds.data.synthetic.vocabulary import CONCEPTS, PROBLEM, TEST, TREATMENT

LETTER = {TREATMENT: "t", TEST: "e", PROBLEM: "p"}
_TYPE = {letter: type for type, letter in LETTER.items()}

_SHAPES = {"plain": 2, "inverted": 1, "coordinated": 16, "relative": 3, "paired": 2, "listed": 1, "contrasted": 1}
"""How often a sentence has a form; most have a third mention, where counts of words don't tell whose a word is."""
_OPENER, _BACKGROUND, _WHEN, _MODIFIER = 0.3, 0.04, 0.3, 0.25
_STATES_A_FACT, _TEASES_WITH_A_FACT = 0.75, 0.6


@dataclass(frozen=True)
class Sentence:
    """Text with placeholders, and the relations that it states."""

    text: str
    relations: tuple[Fact, ...] = ()


class OutOfConceptsError(Exception):
    """The sentence needs more concepts than the chart holds; another one may not."""


class Writer:
    """Writes one sentence; knows which concepts it has used."""

    def __init__(self, hospital: Hospital, chart: Chart, rng: Random) -> None:
        self.hospital, self.chart, self.rng = hospital, chart, rng
        self.used: set[str] = set()
        self.relations: list[Fact] = []

    def sentence(self) -> Sentence:
        shape = self.rng.choices(list(_SHAPES), list(_SHAPES.values()))[0]
        text = self._opening() + self._clause(shape)
        if shape == "paired":
            text += self.rng.choice(phrases.LINKS) + self._clause("plain")
        return Sentence(text + self._when(), tuple(self.relations))

    def about(self, concept: str) -> Sentence:
        """A sentence that refers back to a concept of the sentence before."""
        self.used.add(concept)
        label = self._label(CONCEPTS[concept].type)
        said = self._predicate(concept, label, self._partner(concept, label))
        more = " " + self._another(concept, label) if self._chance(0.5) else ""
        return Sentence(f"{{{concept}*}} {said}{more}", tuple(self.relations))

    def fill(self, template: str, **words: object) -> str:
        """Put new concepts in place of {t}, {e}, {p}, {p2}, {p3}."""
        for slot in ("t", "e", "p", "p2", "p3"):
            if f"{{{slot}}}" in template:
                words[slot] = f"{{{self._other(_TYPE[slot[0]])}}}"
        return template.format(**words)

    def across(self) -> tuple[str, str, Fact]:
        """The text of two sentences, and the relation that only both together state."""
        key = self.rng.choice(sorted(phrases.ACROSS))
        head, tail = self._pair(key[1])
        slots = {key[0]: self._phrase(head), "p": self._phrase(tail)}
        if key[0] == "p":
            slots = {"p": self._phrase(head), "p2": self._phrase(tail)}
        template = self.rng.choice(phrases.ACROSS[key])
        first, second = template.format(**slots, when=self.rng.choice(phrases.WHEN)).split(". ")
        return first, second, Fact(head, key[1], tail)

    def _opening(self) -> str:
        if self._chance(_BACKGROUND):
            return self.fill(self.rng.choice(phrases.BACKGROUNDS)) + ", "
        return self.rng.choice(phrases.OPENERS) + ", " if self._chance(_OPENER) else ""

    def _clause(self, shape: str) -> str:
        label = self._label(*LETTER)
        head, tail = self._pair(label)
        if shape == "inverted" and CONCEPTS[head].type != PROBLEM:
            return self._inverted(label, head, tail)
        subject, object = (head, tail) if self._chance(0.6) else (tail, head)
        text = f"{self._subject(subject, shape)} {self._predicate(subject, label, object, twice=shape == 'listed')}"
        if shape == "coordinated":
            text += " " + self._another(subject, label)
        if shape == "relative":
            text += phrases.RELATIVE + self._next(object, label)
        return text

    def _inverted(self, label: str, head: str, tail: str) -> str:
        self._state(label, head, tail)
        letter = LETTER[CONCEPTS[head].type]
        template = self.rng.choice(phrases.FRAMES[letter, label, "p"])
        return template.format(**{letter: self._phrase(head), "p": self._phrase(tail)})

    def _subject(self, concept: str, shape: str) -> str:
        type = CONCEPTS[concept].type
        if shape == "contrasted" and type != PROBLEM:
            return self.rng.choice(phrases.CONTRASTS).format(self._phrase(concept), self._phrase(self._other(type)))
        return self._phrase(concept)

    def _another(self, subject: str, label: str) -> str:
        """A second thing said of the subject."""
        return self.rng.choice(phrases.JOINTS) + self._next(subject, label)

    def _next(self, subject: str, label: str) -> str:
        other = self._label(CONCEPTS[subject].type, but=label)
        return self._predicate(subject, other, self._partner(subject, other))

    def _predicate(self, subject: str, label: str, object: str, *, twice: bool = False) -> str:
        key = LETTER[CONCEPTS[subject].type], label, LETTER[CONCEPTS[object].type]
        phrase = self.rng.choice(self.hospital.phrases(key, self.rng))
        self._state(label, subject, object)
        words = self._phrase(object)
        if twice:
            second = self._partner(subject, label, CONCEPTS[object].type)
            self._state(label, subject, second)
            words += (" or " if label == NO_RELATION else " and ") + self._phrase(second)
        return phrase.format(words)

    def _state(self, label: str, one: str, other: str) -> None:
        if label != NO_RELATION:
            head_first = label == "PIP" or CONCEPTS[one].type != PROBLEM
            self.relations.append(Fact(one, label, other) if head_first else Fact(other, label, one))

    def _label(self, *subject_types: str, but: str | None = None) -> str:
        """A relation, or None, that something of such a type can be the subject of."""
        labels = [
            label
            for label in self.hospital.weights
            if label != but and (label == NO_RELATION or PROBLEM in subject_types or HEAD_TYPE[label] in subject_types)
        ]
        return self.rng.choices(labels, [self.hospital.weights[label] for label in labels])[0]

    def _pair(self, label: str) -> tuple[str, str]:
        """A head and a tail for a first clause."""
        type = self.rng.choice((TREATMENT, TREATMENT, TEST, PROBLEM)) if label == NO_RELATION else HEAD_TYPE[label]
        heads = [head for head in self.chart.heads(label) if head not in self.used]
        head = self.rng.choice(heads) if heads else self._other(type)
        self.used.add(head)
        return head, self._partner(head, label, PROBLEM)

    def _partner(self, subject: str, label: str, type: str | None = None) -> str:
        """Something for the label to hold of, or to be denied of; mostly as the facts have it."""
        type = type or self._object_type(CONCEPTS[subject].type, label)
        free = [id for id in self.chart.of_type[type] if id not in self.used]
        known = {id: self.chart.label(subject, id) for id in free}
        if label == NO_RELATION:
            chosen = [id for id in free if known[id] is not None] if self._chance(_TEASES_WITH_A_FACT) else free
        else:
            stated = [id for id in free if known[id] == label]
            # What a note states beyond the facts must not contradict them.
            chosen = stated if stated and self._chance(_STATES_A_FACT) else [id for id in free if known[id] is None]
        return self._use(chosen)

    def _object_type(self, subject_type: str, label: str) -> str:
        if subject_type != PROBLEM:
            return PROBLEM
        return self.rng.choice((TREATMENT, TEST, PROBLEM)) if label == NO_RELATION else HEAD_TYPE[label]

    def _other(self, type: str) -> str:
        return self._use([id for id in self.chart.of_type[type] if id not in self.used])

    def _use(self, choices: Sequence[str]) -> str:
        if not choices:
            raise OutOfConceptsError
        chosen = self.rng.choice(choices)
        self.used.add(chosen)
        return chosen

    def _phrase(self, concept: str) -> str:
        """The concept with words that belong to it, which part it from the words that tell its relation."""
        kind, text = CONCEPTS[concept].kind, f"{{{concept}}}"
        if self._chance(_MODIFIER):
            text = f"{self.rng.choice(phrases.BEFORE[kind])} {text}"
        if self._chance(_MODIFIER / 2):
            text = f"{text} {self.rng.choice(phrases.AFTER[kind])}"
        return text

    def _when(self) -> str:
        return " " + self.rng.choice(phrases.WHEN) if self._chance(_WHEN) else ""

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability
