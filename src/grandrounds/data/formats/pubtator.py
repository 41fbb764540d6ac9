"""PubTator: a title line, an abstract line, then a line a mention and a relation; as in BioCreative V CDR.

    227508|t|Naloxone reverses the antihypertensive effect of clonidine.
    227508|a|In unanesthetized, spontaneously hypertensive rats ...
    227508	0	8	Naloxone	Chemical	D009270
    227508	CID	D008750	D007022

The text is title, one newline, abstract, which is what the offsets count. A mention of several concepts
has them joined by '|' (CDR) or ';' (PubTator Central) and may have a seventh column with the part of
each. Mentions with the same concept are one entity; '-1', '-' and an empty id are no concept. A fifth
column of a relation is BioRED's novelty.

CHR (Sahu et al., ACL 2019) joins by '|' the ids that databases give to one chemical, in relations too
(HMDB:HMDB01429|CHEBI:18367): the option joined = "same". Entities are then known by any of their ids.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grandrounds.data.documents import (
    Document,
    Entity,
    Mention,
    Relation,
    Span,
    entities_by_concept,
    entities_by_synonyms,
)
from grandrounds.data.formats.pair_lists import leave_out
from grandrounds.data.formats.pubtator_lines import render
from grandrounds.data.formats.source import Format, Warnings, lines, load, mismatch, number, save
from grandrounds.data.sentences import split_sentences
from grandrounds.errors import DataError, GrandRoundsError, unknown

_TEXT_LINE = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)

JOINED = ("several", "same")
"""Whether ids joined by '|' are several concepts or the same one."""


def read(path: Path, warnings: Warnings, *, joined: str = "several", not_include: str = "") -> Iterator[Document]:
    """The file's documents, without the pairs of the list `not_include` (a path, from the file's folder)."""
    if joined not in JOINED:
        raise GrandRoundsError(unknown("way of joining", joined, JOINED))
    documents = parse(load(path), path, warnings, joined=joined)
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
    number_of_line = 0
    try:
        for number_of_line, line in enumerate(lines(content), start=1):
            found = _TEXT_LINE.fullmatch(line)
            if found and found.group(2) == "t":
                if block:
                    yield block.document(path, joined, warnings)
                block = _Block(found.group(1), number_of_line, found.group(3))
            elif line.strip():
                if block is None:
                    raise DataError("a line before the first title; a document starts with 'id|t|title'")
                if found:
                    block.add_abstract(found.group(1), found.group(3))
                else:
                    block.add_row(line.split("\t"), number_of_line)
    except DataError as error:
        raise error if error.path else error.at(path, number_of_line) from None
    if block:
        yield block.document(path, joined, warnings)


@dataclass
class _Block:
    """The lines of one document, so far."""

    id: str
    line: int
    text: str
    has_abstract: bool = False
    mentions: list[Mention] = field(default_factory=list)
    relations: list[tuple[Relation, int]] = field(default_factory=list)

    def add_abstract(self, id: str, abstract: str) -> None:
        self._check_id(id)
        if self.has_abstract or self.mentions or self.relations:
            raise DataError("an abstract that is the second one, or comes after mentions; it follows its title")
        self.text, self.has_abstract = f"{self.text}\n{abstract}", True

    def add_row(self, columns: Sequence[str], line: int) -> None:
        self._check_id(columns[0])
        start = number(columns[1]) if len(columns) > 1 else None
        if start is not None and 5 <= len(columns) <= 7:
            self.mentions.append(self._mention(start, columns))
        elif start is None and 4 <= len(columns) <= 5:
            novelty = {"novelty": columns[4]} if len(columns) == 5 else {}
            self.relations.append((Relation(columns[1], columns[2], columns[3], attributes=novelty), line))
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
        if concept and ";" in concept and "|" not in concept:
            concept, attributes["separator"] = concept.replace(";", "|"), ";"
        if len(columns) == 7:
            attributes["parts"] = columns[6]
        return Mention(start, end, columns[4], f"T{len(self.mentions) + 1}", concept, attributes=attributes)

    def document(self, path: Path, joined: str, warnings: Warnings) -> Document:
        if joined == "same":
            entities, relations = self._by_synonyms(warnings)
        else:
            entities, relations = self._by_concept(path)
        # A title ends a sentence whether it has a full stop or not.
        spans = [Span(mention.start, mention.end) for mention in self.mentions]
        sentences = split_sentences(self.text, spans, breaks="line")
        try:
            return Document(self.id, self.text, sentences, tuple(self.mentions), entities, relations)
        except DataError as error:
            raise error.at(path, self.line) from None

    def _by_concept(self, path: Path) -> tuple[tuple[Entity, ...], tuple[Relation, ...]]:
        entities = entities_by_concept(self.mentions)
        known = {entity.id for entity in entities}
        for relation, line in self.relations:
            for end in {relation.head, relation.tail} - known:
                problem = "a relation with a concept that no mention has; add the mention or remove the line"
                if "|" in end:
                    problem += "; if ids joined by '|' are of the same concept, set the option joined = \"same\""
                raise DataError(problem, path=path, line=line)
        return entities, tuple(relation for relation, _ in self.relations)

    def _by_synonyms(self, warnings: Warnings) -> tuple[tuple[Entity, ...], tuple[Relation, ...]]:
        """What can't be placed is counted: no one can mend a corpus that was made from databases."""
        ends = [end.split("|") for relation, _ in self.relations for end in (relation.head, relation.tail)]
        entities = entities_by_synonyms(self.mentions, ends)
        owners = {id: entity.id for entity in entities for id in entity.id.split("|")}
        found: dict[tuple[str, str, str], Relation] = {}
        for relation, _ in self.relations:
            head, tail = (
                next((owners[id] for id in end.split("|") if id in owners), None)
                for end in (relation.head, relation.tail)
            )
            if head is None or tail is None:
                warnings["relations with a concept that no mention has, left out"] += 1
            elif head == tail:
                warnings["relations of a concept with itself, left out"] += 1
            elif (relation.type, head, tail) in found:
                warnings["relations given twice, of which the first was kept"] += 1
            else:
                found[relation.type, head, tail] = replace(relation, head=head, tail=tail)
        return entities, tuple(found.values())


FORMAT = Format(
    "pubtator",
    "title and abstract lines, then a line a mention and a relation",
    read,
    write,
    suffixes=(".txt", ".pubtator"),
)
