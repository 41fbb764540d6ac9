"""The 2012 i2b2 challenge: discharge summaries in XML, with events, times and the relations between these.

    <TEXT><![CDATA[...]]></TEXT>
    <EVENT id="E0" start="1" end="10" text="Admission" modality="FACTUAL" polarity="POS" type="OCCURRENCE" />
    <TIMEX3 id="T0" start="18" end="28" text="09/29/1993" type="DATE" val="1993-09-29" mod="NA" />
    <TLINK id="TL0" fromID="E0" fromText="Admission" toID="T0" toText="09/29/1993" type="OVERLAP" />

Events and times are mentions of their type, with their other attributes; a line of the text is a sentence. Offsets
count from the line end after CDATA[, or from 1 where a file is without it: whichever fits more mentions. Those that do
not fit all the same are looked for nearby. Some files of the release have signs in attributes that XML would have
escaped; this is mended. Times of sections (SECTIME) repeat others and are not read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import align
from grandrounds.data.formats.source import Format, Warnings, load, number, placed
from grandrounds.data.sentences import join_sentences
from grandrounds.errors import DataError

MENTIONS = ("EVENT", "TIMEX3")
_FRAME = ("ClinicalNarrativeTemporalAnnotation", "TEXT", "TAGS")
MENDED = "files with signs in attributes that XML has escaped, mended"
FROM_ONE = "documents whose offsets count from 1"
NO_TYPE = "events, times and relations without a type, left out"
NO_END = "relations with an end that is no mention, left out"
SECTIONS = "times of sections (SECTIME) left unread"
OTHERS = "tags of other names left unread"
TWICE = "relations given twice, kept once"

_ATTRIBUTE = re.compile(r'(?<!\w)(\w+)="')
_VALUE_END = re.compile(r'"(?=\s+\w+="|\s*/?>)')
_TAG = re.compile(r"<\w+\s+id=")


class _Tag(NamedTuple):
    line: int
    name: str
    attributes: Mapping[str, str]


class _Stated(NamedTuple):
    """A mention as the file has it."""

    id: str
    start: int
    end: int
    text: str
    type: str
    others: Mapping[str, str]


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield parse(load(path), path, warnings)


def parse(content: str, path: Path, warnings: Warnings) -> Document:
    """The document of a file's content; `path` is for its id and messages."""
    text, tags = _parsed(content.removeprefix("\ufeff"), path, warnings)
    stated: dict[str, _Stated] = {}
    for tag in tags:
        if tag.name in MENTIONS:
            with placed(path, tag.line, warnings):
                one = _stated(tag)
                if one.id in stated:
                    raise DataError("an id that an earlier tag has; ids must be unique in a file")
                stated[one.id] = one
    mentions = _mentions(text, list(stated.values()), warnings)
    sentences = [Span(*match.span()) for match in re.finditer(r"\S(?:.*\S)?", text)]
    try:
        return Document(
            path.name.removesuffix(".gz").removesuffix(".xml"),
            text,
            join_sentences(sentences, [Span(mention.start, mention.end) for mention in mentions]),
            mentions,
            tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions)),
            _relations(tags, mentions, warnings),
        )
    except DataError as error:
        raise error.at(path) from None


def _parsed(content: str, path: Path, warnings: Warnings) -> tuple[str, list[_Tag]]:
    """The text and the tags, with what XML would have had escaped in attributes mended if need be."""
    try:
        return _xml(content, path)
    except expat.ExpatError:
        before, end, tags = content.rpartition("]]>")
    try:
        mended = _xml(before + end + _mended(tags), path)
    except expat.ExpatError as error:
        problem = f"not XML ({expat.ErrorString(error.code)}); compare with the file as released"
        raise DataError(problem, path=path, line=error.lineno) from None
    warnings[MENDED] += 1
    return mended


def _mended(tags: str) -> str:
    """A value may hold a bracket that should have been escaped, but never the next tag. Ends are found once: a pattern
    for name and value would look for the same end again from every name."""
    ends, starts = ([found.start() for found in one.finditer(tags)] for one in (_VALUE_END, _TAG))
    out, done = [], 0
    for attribute in _ATTRIBUTE.finditer(tags):
        first = attribute.end()
        place, following = bisect_left(ends, first), bisect_left(starts, first)
        end = ends[place] if place < len(ends) else len(tags)
        if attribute.start() < done or end >= (starts[following] if following < len(starts) else len(tags)):
            continue
        value = quoteattr(align.unescaped(tags[first:end]))
        out += [tags[done : attribute.start()], f"{attribute[1]}={value}"]
        done = end + 1
    return "".join([*out, tags[done:]])


def _xml(content: str, path: Path) -> tuple[str, list[_Tag]]:
    # Of the standard library's parsers the one that tells lines; it fetches nothing.
    texts: list[str] = []
    tags: list[_Tag] = []
    inside: list[str] = []
    parser = expat.ParserCreate("utf-8")

    def start(name: str, attributes: dict[str, str]) -> None:
        inside.append(name)
        tags.append(_Tag(parser.CurrentLineNumber, name, attributes))

    def end(name: str) -> None:
        inside.pop()

    def characters(data: str) -> None:
        if inside[-1] == "TEXT":
            texts.append(data)

    def declared(*entity: object) -> None:
        problem = "an entity of the file's own, which is not read; remove its declaration"
        raise DataError(problem, path=path, line=parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = characters, declared
    parser.Parse(content.encode("utf-8"), True)
    count = sum(tag.name == "TEXT" for tag in tags)
    if count != 1:
        raise DataError(f"{count} TEXT where there should be one, with TAGS in a {_FRAME[0]}", path=path)
    return "".join(texts), tags


def _stated(tag: _Tag) -> _Stated:
    given = dict(tag.attributes)
    id, start, end, text, type = (given.pop(name, "") for name in ("id", "start", "end", "text", "type"))
    first, last = number(start), number(end)
    if first is None or last is None or not id or not text.strip():
        raise DataError(f"{tag.name} needs an id, a text, and start and end in digits; compare with the release")
    return _Stated(id, first, last, text, type, {**given, "tag": tag.name})


def _mentions(text: str, stated: Sequence[_Stated], warnings: Warnings) -> tuple[Mention, ...]:
    fitting = [sum(align.fits(text, (Span(s.start - f, s.end - f),), s.text) for s in stated) for f in (0, 1)]
    first = 1 if fitting[1] > fitting[0] else 0
    if first:
        warnings[FROM_ONE] += 1
    mentions = []
    for one in stated:
        if not one.type:
            warnings[NO_TYPE] += 1
        elif span := align.place(text, one.start - first, one.end - first, one.text, warnings):
            mentions.append(Mention(*span, one.type, one.id, attributes=one.others))
    return tuple(mentions)


def _relations(tags: Iterable[_Tag], mentions: Sequence[Mention], warnings: Warnings) -> tuple[Relation, ...]:
    order = {mention.id: i for i, mention in enumerate(mentions)}
    found: dict[tuple[str, str, str], Relation] = {}
    for tag in tags:
        if tag.name != "TLINK":
            if tag.name not in (*_FRAME, *MENTIONS):
                warnings[SECTIONS if tag.name == "SECTIME" else OTHERS] += 1
            continue
        head, tail, type = (tag.attributes.get(name, "") for name in ("fromID", "toID", "type"))
        if not type:
            warnings[NO_TYPE] += 1
        elif head not in order or tail not in order:
            warnings[NO_END] += 1
        elif (type, head, tail) in found:
            warnings[TWICE] += 1
        else:
            found[type, head, tail] = Relation(type, head, tail, (order[head], order[tail]))
    return tuple(found.values())


FORMAT = Format("i2b2-2012", "an XML file a summary: events, times, their relations", read, suffixes=(".xml",))
