"""What the task joint sees in a document: windows of sentences, their mentions, and what relates these.

A relation joins two mentions where its source names them, else two concepts, each by all of its mentions. A window has
those of its mentions that lie within it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from grandrounds.data.documents import Document, Mention, Relation, Span
from grandrounds.errors import DataError
from grandrounds.metrics.spans import Span as WordSpan
from grandrounds.tasks.joint_decoding import MOST
from grandrounds.tasks.ner import SentenceExample
from grandrounds.tasks.ner_words import WordSentence
from grandrounds.tasks.task import NONE

Triple = tuple[str, str, str]
"""Head type, relation, tail type."""


@dataclass(frozen=True)
class Fact:
    """What a window has of a relation that its document states. Another window may have the rest."""

    number: int
    """Of the relation in its document."""
    type: str
    head: tuple[WordSpan, ...]
    tail: tuple[WordSpan, ...]


@dataclass(frozen=True)
class JointExample(SentenceExample):
    """A window of sentences, in the form of a sentence."""

    before: int
    """Words of the document that come before it."""
    facts: tuple[Fact, ...]
    entities: bool
    """Whether all mentions are annotated. If not, those that are given are taken as given."""
    relations: bool
    """Whether all relations between the mentions are annotated."""
    marked: tuple[tuple[int, int], ...]
    """Where its mentions are, in order and without their types: sites are asked how those of the public text are
    related, as sentence_re asks them."""

    @property
    def within(self) -> list[WordSpan]:
        """The mentions that lie within it."""
        return [span for span in self.gold if span[1] <= len(self.words)]

    def named(self) -> list[str]:
        """The type of each mention and of each relation."""
        return [type for *_, type in self.gold] + [fact.type for fact in self.facts]


class Stated(NamedTuple):
    """A relation of a document, with the mentions of its ends as places among those that the task knows."""

    type: str
    head: tuple[int, ...]
    tail: tuple[int, ...]


def stated_in(document: Document, known: Sequence[Mention], relations: Collection[str]) -> tuple[list[Stated], int]:
    """The document's relations of these types between known mentions, each once; and how many others there are."""
    place, others = {mention.id: i for i, mention in enumerate(known)}, 0
    found: dict[Stated, None] = {}
    for relation in document.relations:
        head, tail = (
            tuple(place[document.mentions[m].id] for m in members if document.mentions[m].id in place)
            for members in ends(document, relation)
        )
        if head and tail and relation.type in relations:
            found[Stated(relation.type, head, tail)] = None
        else:
            others += 1
    return list(found), others


def window_example(
    place: int, document: Document, window: WordSentence, before: int, stated: Sequence[Stated], parts: Collection[str]
) -> JointExample:
    """`place` is the document's; `parts` of its annotation are there: entities, relations."""
    (start, end), facts = window.span, list[Fact]()
    for number, one in enumerate(stated):
        head, tail = (spans_of(window, members) for members in (one.head, one.tail))
        if head or tail:
            facts.append(Fact(number, one.type, head, tail))
    counted = Counter(type for *_, type in window.gold)
    return JointExample(
        document=place,
        sentence=window.number,
        label=max(sorted(counted), key=counted.__getitem__, default=NONE),
        text=document.text[start:end],
        start=start,
        words=tuple(Span(word.start - start, word.end - start) for word in window.words),
        gold=window.gold,
        before=before,
        facts=tuple(facts),
        entities="entities" in parts,
        relations="relations" in parts,
        marked=tuple(sorted({(first, past) for first, past, _ in window.gold if past <= len(window.words)}))[:MOST],
    )


def marked_of_question(question: Mapping[str, Any], words: int) -> tuple[tuple[int, int], ...]:
    """Where an example of the public set has its mentions."""
    try:
        marked = tuple((int(first), int(past)) for first, past in question["mentions"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("an example of the public set is not one of joint; has the server another task?") from error
    if len(marked) > MOST or list(marked) != sorted(set(marked)):
        raise DataError(f"an example of the public set has at most {MOST} mentions, in order, each once")
    if not all(0 <= first < past <= words for first, past in marked):
        raise DataError("an example of the public set has mentions outside of its words")
    return marked


def pairs_of(windows: Sequence[WordSentence], one: Stated) -> Iterator[tuple[WordSpan, WordSpan]]:
    """Head and tail of a relation wherever a window holds both."""
    for window in windows:
        for head in spans_of(window, one.head):
            for tail in spans_of(window, one.tail):
                if head != tail and max(head[1], tail[1]) <= len(window.words):
                    yield head, tail


def spans_of(window: WordSentence, mentions: Sequence[int]) -> tuple[WordSpan, ...]:
    """Where these mentions are in a window, those that begin in it."""
    return tuple(dict.fromkeys(window.where[mention] for mention in mentions if mention in window.where))


def ends(document: Document, relation: Relation) -> Iterator[tuple[int, ...]]:
    """The mentions of a relation's head, then those of its tail."""
    if relation.mentions is not None:
        yield from ((mention,) for mention in relation.mentions)
    else:
        yield from (document.entity(end).mentions for end in (relation.head, relation.tail))


def triples_of(document: Document) -> Iterator[Triple]:
    """Which types the document's relations join."""
    for relation in document.relations:
        head, tail = ({document.mentions[m].type for m in members} for members in ends(document, relation))
        yield from ((first, relation.type, second) for first in head for second in tail)
