"""The ADE corpus, version 2 (Gurulingappa et al., JBI 2012): drugs with their adverse effects and their doses.

    DRUG-AE.rel      10030778|Intravenous azithromycin-induced ototoxicity.|ototoxicity|43|54|azithromycin|22|34
    DRUG-DOSE.rel    the same, with a dose in the place of the effect
    ADE-NEG.txt      6460590 NEG a sentence without any drug-related adverse effect

Each line of a .rel is a relation from the drug to the other; a sentence is one document, with the mentions of all its
lines in all the files that are read. Offsets count from the start of an abstract that the corpus does not hold. But
those of a sentence are all too great by the same number, the one with which most of its names are where they should
be; so each is placed, also where the sentence has the same word twice. What this does not place is looked for as the
names of `pair_sentence` are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats.pair_sentence import folded, places
from grandrounds.data.formats.source import Format, Warnings, lines, load, placed
from grandrounds.errors import DataError

DRUG = "Drug"
KINDS = {"DOSE": ("DRUG-DOSE", "Dose"), "AE": ("DRUG-AE", "AdverseEffect")}
"""What in a file's name says what it holds: the type of its relations, and of what drugs are related to."""
PMID = "pmid"
"""The document attribute with the number of the abstract; several are joined by '|'."""

LOST = "mentions not found in their sentence, left out"
UNRELATED = "relations of mentions not found, left out"
GUESSED = "mentions that their sentence has several times and that no offset tells apart, put at the likeliest"
TWICE = "relations given twice, kept once"
AGAIN = "sentences given again, joined with the first"

_SPACE = " \t\n\r\f\v"
_OFFSET = re.compile(r"\d{1,9}", re.ASCII)
_NEGATIVE = re.compile(r"(\d+) NEG\s+(\S.*)", re.ASCII | re.DOTALL)


class _Name(NamedTuple):
    """What is mentioned, and where in the abstract it starts."""

    type: str
    name: str
    start: int


@dataclass
class _Sentence:
    abstract: str
    text: str
    line: int
    pairs: list[tuple[str, _Name, _Name]] = field(default_factory=list)
    """Type of relation, drug, and what it is related to."""


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(load(path), path, warnings)


def parse(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content, one a distinct sentence; `path` is for ids, messages and what it holds."""
    positive: dict[tuple[str, str], _Sentence] = {}
    negative: list[_Sentence] = []
    for i, line in enumerate(lines(content), start=1):
        if found := _NEGATIVE.fullmatch(line):
            negative.append(_Sentence(found[1], found[2].rstrip(), i))
        elif line.strip():
            with placed(path, i, warnings):
                abstract, text, pair = _pair(line, path.name)
                positive.setdefault((abstract, text), _Sentence(abstract, text, i)).pairs.append(pair)
    sentences = sorted((*positive.values(), *negative), key=lambda sentence: sentence.line)
    yield from join((_document(sentence, path, warnings) for sentence in sentences), warnings)


def _pair(line: str, file: str) -> tuple[str, str, tuple[str, _Name, _Name]]:
    found = _fields(line)
    if found is None:
        raise DataError(
            "not a line of the ADE corpus; expected abstract|sentence|effect|start|end|drug|start|end, "
            "or for a sentence without: abstract NEG sentence"
        )
    kind = next((kind for mark, kind in KINDS.items() if mark in file.upper()), None)
    if kind is None:
        raise DataError("effects or doses? the file's name must have AE or DOSE in it, as DRUG-AE.rel; rename it")
    abstract, text, other, other_start, drug, start = found
    relation, type = kind
    return abstract, text.rstrip(), (relation, _name(DRUG, drug, start), _name(type, other, other_start))


def _fields(line: str) -> tuple[str, str, str, str, str, str] | None:
    """Abstract, sentence (which may have bars of its own), and two names with where they start; read from the end: a
    pattern for all of it takes quadratic time on a line that does not fit."""
    head, *last = line.rstrip(_SPACE).rsplit("|", 6)
    abstract, _, text = head.partition("|")
    text = text.lstrip(_SPACE)
    if len(last) != 6 or not text or not re.fullmatch(r"\d+", abstract, re.ASCII):
        return None
    other, other_start, other_end, drug, start, end = last
    if not all(map(_OFFSET.fullmatch, (other_start, other_end, start, end))):
        return None
    return (abstract, text, other, other_start, drug, start) if other.strip(_SPACE) and drug.strip(_SPACE) else None


def _name(type: str, name: str, start: str) -> _Name:
    return _Name(type, name.strip(), int(start) + len(name) - len(name.lstrip()))  # two of the corpus have a space


def _document(sentence: _Sentence, path: Path, warnings: Warnings) -> Document:
    names = list(dict.fromkeys(name for _, *ends in sentence.pairs for name in ends))
    spans = _locate(sentence.text, names, warnings)
    keys = {name: (*span, name.type) for name, span in spans.items()}
    order = {key: i for i, key in enumerate(sorted(set(keys.values())))}
    stated: list[tuple[str, int, int]] = []
    for type, drug, other in sentence.pairs:
        if drug in spans and other in spans:
            stated.append((type, order[keys[drug]], order[keys[other]]))
        else:
            warnings[UNRELATED] += 1
    return _build(f"{path.name}:{sentence.line}", sentence.text, order, stated, sentence.abstract, warnings)


def _locate(text: str, names: Iterable[_Name], warnings: Warnings) -> Mapping[_Name, Span]:
    """Where each name is, if anywhere: where most names agree that the sentence starts, else at its likeliest place."""
    lowered = folded(text)
    where = {name: [found.start() for found in _all(folded(name.name), lowered)] for name in names}
    votes: dict[int, tuple[int, int]] = {}  # names that agree, and those of them in the same case
    for name, found in where.items():
        for at in found:
            agree, alike = votes.get(name.start - at, (0, 0))
            votes[name.start - at] = agree + 1, alike + text.startswith(name.name, at)
    most = max(votes.values(), default=(0, 0))
    starts = [start for start, count in votes.items() if count == most and count[0] > 1]
    spans = {}
    for name, found in where.items():
        agreed = [name.start - start for start in starts if name.start - start in found]
        if not found:
            warnings[LOST] += 1
            continue
        if len(found) > 1 and len(agreed) != 1:
            warnings[GUESSED] += 1
        at = agreed[0] if len(agreed) == 1 else min(places(text, name.name))[1].start
        spans[name] = Span(at, at + len(name.name))
    return spans


def _all(name: str, text: str) -> Iterator[re.Match[str]]:
    return re.finditer(f"(?={re.escape(name)})", text)  # looking ahead, so that matches may overlap


def join(documents: Iterable[Document], warnings: Warnings) -> Iterator[Document]:
    """The documents, with those of the same text made one."""
    first: dict[str, Document] = {}
    for document in documents:
        if document.text in first:
            warnings[AGAIN] += 1
            first[document.text] = _union(first[document.text], document, warnings)
        else:
            first[document.text] = document
    yield from first.values()


def _union(one: Document, other: Document, warnings: Warnings) -> Document:
    keys = sorted({(m.start, m.end, m.type) for document in (one, other) for m in document.mentions})
    stated = []
    for document in (one, other):
        order = [keys.index((m.start, m.end, m.type)) for m in document.mentions]
        ends = [relation.mentions for relation in document.relations if relation.mentions]
        types = [relation.type for relation in document.relations]
        stated += [(type, order[head], order[tail]) for type, (head, tail) in zip(types, ends, strict=True)]
    abstracts = "|".join(dict.fromkeys((*one.attributes[PMID].split("|"), *other.attributes[PMID].split("|"))))
    return _build(one.id, one.text, keys, stated, abstracts, warnings)


def _build(
    id: str,
    text: str,
    keys: Iterable[tuple[int, int, str]],
    stated: Iterable[tuple[str, int, int]],
    abstracts: str,
    warnings: Warnings,
) -> Document:
    mentions = tuple(Mention(*key, f"T{i}") for i, key in enumerate(keys, start=1))
    relations: dict[tuple[str, int, int], Relation] = {}
    for type, head, tail in stated:
        if (type, head, tail) in relations:
            warnings[TWICE] += 1
        else:
            relations[type, head, tail] = Relation(type, mentions[head].id, mentions[tail].id, (head, tail))
    return Document(
        id,
        text,
        (Span(0, len(text)),),
        mentions,
        tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions)),
        tuple(relations.values()),
        {PMID: abstracts},
    )


FORMAT = Format(
    "ade",
    "the ADE corpus: DRUG-AE.rel, DRUG-DOSE.rel, ADE-NEG.txt",
    read,
    suffixes=(".rel", "NEG.txt"),
    join=join,
)
