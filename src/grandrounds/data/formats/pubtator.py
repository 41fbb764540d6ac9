"""PubTator: a title line, an abstract line, then a line a mention and a relation; as in BioCreative V CDR.

    227508|t|Naloxone reverses the antihypertensive effect of clonidine.
    227508|a|In unanesthetized, spontaneously hypertensive rats ...
    227508	0	8	Naloxone	Chemical	D009270
    227508	CID	D008750	D007022

The text is title, one newline, abstract, which is what the offsets count. A mention of several concepts
has them joined by '|' (CDR), ';' (PubTator Central) or ',' (BioRED) and may have a seventh column with
the part of each; `pubtator_ids` says what joins. Mentions with the same concept are one entity; '-1',
'-' and an empty id are no concept. A fifth column of a relation is BioRED's novelty. A relation with a
concept that no mention has is counted and left out.

CHR (Sahu et al., ACL 2019) joins by '|' the ids that databases give to one chemical, in relations too
(HMDB:HMDB01429|CHEBI:18367). With the option joined = "same" an entity is known by any of its ids. The
papers on CHR take the joined ids for one: joined = "exact". With pairs = "stated" the documents list the
pairs that these papers count (`grandrounds.data.pairs.stated_pairs`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grandrounds.data.documents import (
    NO_CONCEPT,
    Document,
    Entity,
    Mention,
    Relation,
    Span,
    entities_by_ids,
    entities_by_synonyms,
)
from grandrounds.data.formats.pair_lists import leave_out
from grandrounds.data.formats.pubtator_ids import named_whole, separated, split_ids
from grandrounds.data.formats.pubtator_lines import render
from grandrounds.data.formats.source import Format, Warnings, lines, load, mismatch, number, placed, save
from grandrounds.data.pairs import list_stated_pairs
from grandrounds.data.sentences import split_sentences
from grandrounds.errors import DataError, GrandRoundsError, unknown

_TEXT_LINE = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)

JOINED = ("several", "same", "exact")
"""Whether ids that are joined are several concepts, names of the same one, or one id."""
PAIRS = ("all", "stated")
NO_MENTION = "relations with a concept that no mention has, left out"
BY_SYNONYM = (
    "relations with joined ids that no mention has as a whole, left out; where '|' joins names of one thing, as in "
    'CHR, the option joined = "same" would place them'
)
WITH_ITSELF = "relations of a concept with itself, left out"
TWICE = "relations given twice, of which the first was kept"


def read(
    path: Path, warnings: Warnings, *, joined: str = "several", pairs: str = "all", not_include: str = ""
) -> Iterator[Document]:
    """The file's documents, without the pairs of the list `not_include` (a path, from the file's folder)."""
    for what, chosen, known in (("way of joining", joined, JOINED), ("choice of pairs", pairs, PAIRS)):
        if chosen not in known:
            raise GrandRoundsError(unknown(what, chosen, known))
    documents = parse(load(path), path, warnings, joined=joined)
    if pairs == "stated":
        documents = (list_stated_pairs(document) for document in documents)
    if not_include:
        listed = path.parent / not_include
        documents = leave_out(documents, load(listed), listed, warnings)
    yield from documents


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save(render(documents, warnings), path)


def parse(content: str, path: Path, warnings: Warnings | None = None, *, joined: str = "several") -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    warnings = Counter() if warnings is None else warnings
    block: _Block | None = None
    for i, line in enumerate(lines(content), start=1):
        found = _TEXT_LINE.fullmatch(line)
        if found and found.group(2) == "t":
            if block:
                with placed(path, block.line, warnings):
                    yield block.document(joined, warnings)
            block = _Block(found.group(1), i, found.group(3))
        elif line.strip():
            with placed(path, i, warnings):
                if block is None:
                    raise DataError("a line before the first title; a document starts with 'id|t|title'")
                if found:
                    block.add_abstract(found.group(1), found.group(3))
                else:
                    block.add_row(line.split("\t"))
    if block:
        with placed(path, block.line, warnings):
            yield block.document(joined, warnings)


@dataclass
class _Block:
    """The lines of one document, so far."""

    id: str
    line: int
    text: str
    has_abstract: bool = False
    mentions: list[Mention] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)

    def add_abstract(self, id: str, abstract: str) -> None:
        self._check_id(id)
        if self.has_abstract or self.mentions or self.relations:
            raise DataError("an abstract that is the second one, or comes after mentions; it follows its title")
        self.text, self.has_abstract = f"{self.text}\n{abstract}", True

    def add_row(self, columns: Sequence[str]) -> None:
        self._check_id(columns[0])
        start = number(columns[1]) if len(columns) > 1 else None
        if start is not None and 5 <= len(columns) <= 7:
            self.mentions.append(self._mention(start, columns))
        elif start is None and 4 <= len(columns) <= 5:
            novelty = {"novelty": columns[4]} if len(columns) == 5 else {}
            self.relations.append(Relation(columns[1], columns[2], columns[3], attributes=novelty))
        else:
            raise DataError(
                f"a line of {len(columns)} tab-separated columns that is neither a mention (id, start, end, "
                "text, type, concept, parts) nor a relation (id, type, head, tail)"
            )

    def _check_id(self, id: str) -> None:
        if id != self.id:
            raise DataError("a line with another id than the title above it; each document needs its title line")

    def _mention(self, start: int, columns: Sequence[str]) -> Mention:
        end = number(columns[2])
        if end is None:
            raise DataError("the end of a mention is not a number; columns are id, start, end, text, type, concept")
        if not start < end <= len(self.text):
            raise DataError(f"mention {start}-{end} is empty, inverted or outside the text (0-{len(self.text)})")
        there = self.text[start:end].replace("\n", " ")  # a mention may run on from title to abstract
        if there != columns[3]:
            raise mismatch(start, end, columns[3], there)
        attributes: dict[str, str] = {}
        concept = columns[5] if len(columns) > 5 else None
        if len(columns) == 7:
            attributes["parts"] = columns[6]
        return Mention(start, end, columns[4], f"T{len(self.mentions) + 1}", concept, attributes=attributes)

    def document(self, joined: str, warnings: Warnings) -> Document:
        if joined == "same":
            entities, relations = self._by_synonyms(warnings)
        elif joined == "exact":
            entities, relations = self._by_exact_id(warnings)
        else:
            entities, relations = self._by_concept(warnings)
        # A title ends a sentence whether it has a full stop or not.
        spans = [Span(mention.start, mention.end) for mention in self.mentions]
        sentences = split_sentences(self.text, spans, breaks="line")
        return Document(self.id, self.text, sentences, tuple(self.mentions), entities, relations)

    def _by_concept(self, warnings: Warnings) -> tuple[tuple[Entity, ...], tuple[Relation, ...]]:
        whole = named_whole(self.relations)
        entities = entities_by_ids(self.mentions, [split_ids(mention.concept, whole) for mention in self.mentions])
        self.mentions = [separated(mention, whole) for mention in self.mentions]
        known = {entity.id for entity in entities}
        placed = []
        for relation in self.relations:
            missing = {relation.head, relation.tail} - known
            if not missing:
                placed.append(relation)
            elif all(not known.isdisjoint(end.split("|")) for end in missing):
                warnings[BY_SYNONYM] += 1
            else:
                warnings[NO_MENTION] += 1
        return entities, tuple(placed)

    def _by_exact_id(self, warnings: Warnings) -> tuple[tuple[Entity, ...], tuple[Relation, ...]]:
        ids = [[] if mention.concept in (None, *NO_CONCEPT) else [mention.concept] for mention in self.mentions]
        entities = entities_by_ids(self.mentions, ids)
        known = {entity.id: entity.id for entity in entities}
        return entities, self._distinct({end: known.get(end) for end in self._ends()}, warnings)

    def _by_synonyms(self, warnings: Warnings) -> tuple[tuple[Entity, ...], tuple[Relation, ...]]:
        """What can't be placed is counted: no one can mend a corpus that was made from databases."""
        ends = {end: end.split("|") for end in self._ends()}
        entities = entities_by_synonyms(self.mentions, ends.values())
        owners = {id: entity.id for entity in entities for id in entity.id.split("|")}
        owner = {end: next((owners[id] for id in ids if id in owners), None) for end, ids in ends.items()}
        return entities, self._distinct(owner, warnings)

    def _ends(self) -> list[str]:
        return [end for relation in self.relations for end in (relation.head, relation.tail)]

    def _distinct(self, owner: Mapping[str, str | None], warnings: Warnings) -> tuple[Relation, ...]:
        """The relations between two entities, each once; `owner` is the entity of an end."""
        found: dict[tuple[str, str, str], Relation] = {}
        for relation in self.relations:
            head, tail = owner[relation.head], owner[relation.tail]
            if head is None or tail is None:
                warnings[NO_MENTION] += 1
            elif head == tail:
                warnings[WITH_ITSELF] += 1
            elif (relation.type, head, tail) in found:
                warnings[TWICE] += 1
            else:
                found[relation.type, head, tail] = replace(relation, head=head, tail=tail)
        return tuple(found.values())


FORMAT = Format(
    "pubtator",
    "title and abstract lines, then a line a mention and a relation",
    read,
    write,
    suffixes=(".txt", ".pubtator"),
    cures={BY_SYNONYM: {"joined": "same"}},
)
