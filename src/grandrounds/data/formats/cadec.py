"""CADEC (Karimi et al., JBI 2015): forum posts on drugs, annotated in BRAT's format, in folders of their own.

    text/LIPITOR.1.txt      original/LIPITOR.1.ann      T1	ADR 9 19;27 32	bit drowsy blurred

Types are ADR, Drug, Disease, Symptom and Finding. What a file's name says before its number is the attribute "drug". A
file of the release is known to have a wrong offset, so a mention is looked for where its text is not, which the
reader of `brat` does not do. The option `discontinuous` says what becomes of mentions in several pieces; see
`pieces`. The concepts (folders `meddra` and `sct`) are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.data.formats import align, pieces
from grandrounds.data.formats.source import Format, Warnings, lines, load, number, placed
from grandrounds.data.sentences import split_sentences
from grandrounds.errors import DataError

TWICE = "mentions given twice, kept once"
_TEXTS, _ANNOTATIONS, _CONCEPTS = "text", "original", ("meddra", "sct")
_LINE = re.compile(r"(T\S+)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)", re.ASCII | re.DOTALL)


def read(path: Path, warnings: Warnings, *, discontinuous: str = pieces.KEEP) -> Iterator[Document]:
    pieces.check(discontinuous)
    texts = [path.with_suffix(".txt")]
    if path.is_dir():
        every = sorted(path.rglob("*.txt"))
        texts = [text for text in every if text.parent.name == _TEXTS] or every
    used = set()
    for text in texts:
        content = load(text)
        places = (text.with_suffix(".ann"), text.parent.parent / _ANNOTATIONS / f"{text.stem}.ann")
        annotations = next((place for place in places if place.is_file()), None)
        if annotations is None:
            warnings["texts without annotations (.ann), read as having none"] += 1
        else:
            used.add(annotations)
        if content.strip():
            stated = load(annotations) if annotations else ""
            yield parse(content, stated, text.stem, annotations or text, warnings, discontinuous)
        else:
            warnings["empty texts, left out"] += 1
    if path.is_dir():
        for file in sorted(path.rglob("*.ann")):
            if file.parent.name in _CONCEPTS:
                warnings["files of concepts (meddra, sct) left unread"] += 1
            elif file not in used:
                raise DataError(f"no text for these annotations; put its .txt into a folder '{_TEXTS}'", path=file)


def parse(
    text: str, annotations: str, id: str, path: Path, warnings: Warnings, discontinuous: str = pieces.KEEP
) -> Document:
    """A document from its text and the content of its .ann; `path` is for messages."""
    mentions: dict[str, Mention] = {}
    for i, line in enumerate(lines(annotations), start=1):
        if line.startswith("#"):
            warnings["annotators' notes left out"] += 1
        elif line.strip():
            with placed(path, i, warnings):
                mention = _mention(line, text, warnings)
                settled = pieces.settle(mention, text, discontinuous, warnings) if mention else None
                if settled and settled.id in mentions:
                    raise DataError("an id that an earlier line has; ids must be unique in a file")
                if settled:
                    mentions[settled.id] = settled
    distinct = list({(m.start, m.end, m.fragments, m.type): m for m in reversed(mentions.values())}.values())[::-1]
    if len(distinct) < len(mentions):
        warnings[TWICE] += len(mentions) - len(distinct)
    drug = id.rpartition(".")[0]
    return Document(
        id,
        text,
        split_sentences(text, [Span(m.start, m.end) for m in distinct], breaks="line"),
        tuple(distinct),
        tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(distinct)),
        attributes={"drug": drug} if drug else {},
    )


def _mention(line: str, text: str, warnings: Warnings) -> Mention | None:
    found = _LINE.fullmatch(line)
    if not found:
        raise DataError("not a mention line; expected T1 TAB type start end TAB text, pieces parted by ';'")
    id, type, where, stated = found.groups()
    spans = tuple(_span(piece) for piece in where.split(";"))
    if align.fits(text, spans, stated):
        whole = _in_order(spans)
        return Mention(whole[0].start, whole[-1].end, type, id, fragments=whole if len(whole) > 1 else ())
    if len(spans) > 1:
        warnings[align.LOST] += 1
        return None
    span = align.place(text, *spans[0], stated, warnings)
    return Mention(*span, type, id) if span else None


def _span(piece: str) -> Span:
    start, end = (number(digits) for digits in piece.split(" "))
    if start is None or end is None:
        raise DataError("offsets of more than nine digits; check them")
    return Span(start, end)


def _in_order(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The same characters in pieces that neither overlap nor turn back."""
    ordered: list[Span] = []
    for span in sorted(spans):
        if ordered and span.start <= ordered[-1].end:
            ordered[-1] = Span(ordered[-1].start, max(ordered[-1].end, span.end))
        else:
            ordered.append(span)
    return tuple(ordered)


FORMAT = Format("cadec", "CADEC: folders 'text' and 'original'", read, source="folder")
