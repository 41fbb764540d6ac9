"""What windows say, put together by document: gold relations, and those that were found.

Where relations join concepts, mentions that were found are one thing if they have one type and one name, in small and
capital letters alike: how mentions get their concepts is not what is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from grandrounds.data.documents import Document
from grandrounds.metrics.end_to_end import Annotation, Statement
from grandrounds.metrics.spans import Span as WordSpan
from grandrounds.tasks.joint_examples import JointExample, ends


@dataclass(frozen=True)
class Found:
    """What a window's answers say."""

    mentions: Sequence[tuple[WordSpan, float]]
    relations: Sequence[tuple[str, int, int, float]]
    """Type, head and tail as places in the mentions, probability."""


def gold_of(windows: Iterable[JointExample]) -> Annotation:
    """What a document's windows state; spans are by words of the document."""
    mentions, facts = set[WordSpan](), dict[int, list[tuple[str, set[WordSpan], set[WordSpan]]]]()
    for window in windows:
        mentions.update(_moved(span, window) for span in window.gold)
        for fact in window.facts:
            head, tail = ({_moved(span, window) for span in end} for end in (fact.head, fact.tail))
            facts.setdefault(fact.number, []).append((fact.type, head, tail))
    stated = [
        Statement(parts[0][0], frozenset().union(*(h for _, h, _ in parts)), frozenset().union(*(t for *_, t in parts)))
        for parts in facts.values()
    ]
    return Annotation(frozenset(mentions), stated)


def found_in(windows: Sequence[JointExample], found: Sequence[Found], concepts: bool) -> Annotation:
    """What was found in them, each relation once."""
    named: dict[tuple[str, ...], set[WordSpan]] = {}
    relations: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
    for window, said in zip(windows, found, strict=True):
        names = []
        for span, _ in said.mentions:
            moved = _moved(span, window)
            start, end = window.words[span[0]].start, window.words[span[1] - 1].end
            name = (span[2], window.text[start:end].casefold()) if concepts else (span[2], *map(str, moved[:2]))
            named.setdefault(name, set()).add(moved)
            names.append(name)
        pairs = ((type, names[head], names[tail]) for type, head, tail, _ in said.relations)
        relations += [(type, head, tail) for type, head, tail in pairs if head != tail]
    mentions = frozenset(span for spans in named.values() for span in spans)
    return Annotation(
        mentions,
        [
            Statement(type, frozenset(named[head]), frozenset(named[tail]))
            for type, head, tail in dict.fromkeys(relations)
        ],
    )


def _moved(span: WordSpan, window: JointExample) -> WordSpan:
    first, past, type = span
    return first + window.before, past + window.before, type


def annotation_of(document: Document, concepts: bool = False) -> Annotation:
    """A whole document's, by characters: of gold, or of what any models found one after the other. Where relations join
    concepts, their ends are the document's entities, also of those that name mentions."""
    spans = [(mention.start, mention.end, mention.type) for mention in document.mentions]
    relations = []
    for relation in document.relations:
        stated = replace(relation, mentions=None) if concepts else relation
        head, tail = (frozenset(spans[m] for m in members) for members in ends(document, stated))
        relations.append(Statement(relation.type, head, tail))
    return Annotation(frozenset(spans), list(dict.fromkeys(relations)))
