"""Clinical notes as sections and sentences, before a language model reads them (FedBERT's preprocessing).

A heading begins a section and is a sentence of its own; so does an item of a list. `[**...**]`, which stands where a
name or a date was taken out, is never cut. Sentences are spans of the note: every character but white space is in
exactly one of them, and `one_a_line` changes nothing but white space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from grandrounds.data.documents import Span
from grandrounds.data.sentences import split_sentences

MARK = re.compile(r"\[\*\*(?:(?!\[\*\*).)*?\*\*\]", re.S)
"""What stands for something that was taken out."""

_CAPITALS = r"[A-Z][A-Z0-9 /&',()#+-]{1,60}[A-Z0-9)]"
# A slash can be read in but one way, and what a word has taken it keeps (*+): a row of slashes would else be tried in
# millions of ways.
_MORE = r"[A-Z(#&](?:[A-Za-z()&'-]|/(?!#))*+"
_TITLE = (
    rf"[A-Z](?:[A-Za-z&'-]|/(?![A-Z(#&]))*+(?:/{_MORE})?+"
    rf"(?:[ /](?:{_MORE}|of|on|and|the|or|to|for|in|at|with|by)){{0,7}}"
)
# In capitals a heading may stand behind a stop; otherwise only at the start of a line.
_HEADING = re.compile(rf"(?:(?:^|(?<=[.!?] ))[ \t]*({_CAPITALS}):(?=\s|$))|(?:^[ \t]*({_TITLE}):(?=\s|$))", re.M)
_ITEM = re.compile(r"^[ \t]*(?:\d{1,2}[.)]|[-*•])[ \t]+(?=\S)", re.M)


@dataclass(frozen=True)
class Section:
    """A heading, with its colon, and all up to the next one; what comes before the first has none."""

    heading: Span | None
    body: Span


def sections(text: str) -> tuple[Section, ...]:
    """All of the text, in order."""
    found = [Span(match.start(match.lastindex or 0), match.end()) for match in _HEADING.finditer(_covered(text))]
    ends = [heading.start for heading in found[1:]] + [len(text)]
    titled = tuple(Section(heading, Span(heading.end, end)) for heading, end in zip(found, ends, strict=False))
    first = found[0].start if found else len(text)
    return (Section(None, Span(0, first)), *titled) if text[:first].strip() else titled


def clinical_sentences(text: str) -> tuple[Span, ...]:
    """The headings of a note, and the sentences and list items between them."""
    covered = _covered(text)
    found: list[Span] = []
    for section in sections(text):
        if section.heading is not None:
            found.append(section.heading)
        start, end = section.body
        cuts = [start, *(item.start() for item in _ITEM.finditer(covered, start, end)), end]
        for first, last in pairwise(cuts):
            pieces = split_sentences(covered[first:last])
            found += [Span(first + piece.start, first + piece.end) for piece in pieces]
    return tuple(found)


def one_a_line(text: str, sentences: Sequence[Span]) -> str:
    """A sentence a line; white space within one, line ends too, is one space."""
    words = (text[start:end].split() for start, end in sentences)
    return "".join(" ".join(sentence) + "\n" for sentence in words if sentence)


def _covered(text: str) -> str:
    """The text with what marks hold made a name of the same length: nothing in it can end a sentence."""
    return MARK.sub(lambda mark: f"[**{'X' * (len(mark.group()) - 6)}**]", text)
