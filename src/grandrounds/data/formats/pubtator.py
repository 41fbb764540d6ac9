"""PubTator: a title line, an abstract line, then a line a mention and a relation; as in BioCreative V CDR.

    227508|t|Naloxone reverses the antihypertensive effect of clonidine.
    227508|a|In unanesthetized, spontaneously hypertensive rats ...
    227508	0	8	Naloxone	Chemical	D009270
    227508	CID	D008750	D007022

The text is title, one newline, abstract, which is what the offsets count. A mention of several concepts
has them joined by '|' (CDR) or ';' (PubTator Central) and may have a seventh column with the part of
each. Mentions with the same concept are one entity; '-1', '-' and an empty id are no concept. A fifth
column of a relation is BioRED's novelty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grandrounds.data.documents import Document, Mention, Relation, Span, entities_by_concept
from grandrounds.data.formats.source import Format, Notes, lines, load, mismatch, number, save
from grandrounds.data.sentences import split_sentences
from grandrounds.errors import DataError

_TEXT_LINE = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)


def read(path: Path, notes: Notes) -> Iterator[Document]:
    yield from parse(load(path), path)


def write(documents: Sequence[Document], path: Path, notes: Notes) -> None:
    save(render(documents, notes), path)


def parse(content: str, path: Path) -> Iterator[Document]:
    """The documents of a file's content; `path` is for messages."""
    block: _Block | None = None
    number_of_line = 0
    try:
        for number_of_line, line in enumerate(lines(content), start=1):
            found = _TEXT_LINE.fullmatch(line)
            if found and found.group(2) == "t":
                if block:
                    yield block.document(path)
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
        yield block.document(path)


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

    def document(self, path: Path) -> Document:
        entities = entities_by_concept(self.mentions)
        known = {entity.id for entity in entities}
        for relation, line in self.relations:
            if relation.head not in known or relation.tail not in known:
                problem = "a relation with a concept that no mention has; add the mention or remove the line"
                raise DataError(problem, path=path, line=line)
        # A title ends a sentence whether it has a full stop or not.
        spans = [Span(mention.start, mention.end) for mention in self.mentions]
        sentences = split_sentences(self.text, spans, breaks="line")
        relations = tuple(relation for relation, _ in self.relations)
        try:
            return Document(self.id, self.text, sentences, tuple(self.mentions), entities, relations)
        except DataError as error:
            raise error.at(path, self.line) from None


def render(documents: Iterable[Document], notes: Notes) -> str:
    """The content of a PubTator file."""
    return "".join("".join(f"{line}\n" for line in _lines(document, notes)) + "\n" for document in documents)


def _lines(document: Document, notes: Notes) -> Iterator[str]:
    id = re.sub(r"[|\t\n\r]", "_", document.id) or "_"
    if id != document.id:
        notes["document ids changed, which PubTator could not hold"] += 1
    title, newline, abstract = document.text.partition("\n")
    text = _flat(title, notes) + newline + _flat(abstract, notes)
    title, newline, abstract = text.partition("\n")
    yield f"{id}|t|{title}"
    if newline:
        yield f"{id}|a|{abstract}"
    concepts = _concepts(document, notes)
    for index, mention in enumerate(document.mentions):
        if mention.fragments:
            notes["discontinuous mentions, written with all between their pieces"] += 1
        surface = text[mention.start : mention.end].replace("\n", " ")
        columns = [id, str(mention.start), str(mention.end), surface, _flat(mention.type, notes)]
        if concepts[index] is not None:
            columns.append(_flat(concepts[index] or "", notes))
            if "parts" in mention.attributes:
                columns.append(_flat(mention.attributes["parts"], notes))
        _count_left_out(mention.attributes, {"parts", "separator"}, notes)
        yield "\t".join(columns)
    for relation in document.relations:
        if relation.mentions:
            notes["relations between mentions, written between their entities"] += 1
        _count_left_out(relation.attributes, {"novelty"}, notes)
        columns = [relation.type, relation.head, relation.tail]
        if "novelty" in relation.attributes:
            columns.append(relation.attributes["novelty"])
        yield "\t".join([id, *(_flat(column, notes) for column in columns)])


def _concepts(document: Document, notes: Notes) -> list[str | None]:
    """The concept column of each mention: as read if that gives the same entities again, else entity ids."""
    named = {c for mention in document.mentions for c in (mention.concept or "").split("|")}
    ends = {end for relation in document.relations for end in (relation.head, relation.tail)}
    if ends <= named and document.entities in ((), entities_by_concept(document.mentions)):
        return [_joined(mention) for mention in document.mentions]
    owners: list[list[str]] = [[] for _ in document.mentions]
    for entity in document.entities:
        for index in entity.mentions:
            owners[index].append(entity.id)
    lost = sum(1 for mention in document.mentions if mention.concept)
    if lost:
        notes["concepts replaced by the ids of entities, which relations refer to"] += lost
    return ["|".join(ids) or "-1" for ids in owners]


def _joined(mention: Mention) -> str | None:
    separator = mention.attributes.get("separator", "|")
    return None if mention.concept is None else mention.concept.replace("|", separator)


def _flat(text: str, notes: Notes) -> str:
    """The text with each tab and line end as a space, so that columns and offsets hold."""
    flat, count = re.subn(r"[\t\n\r]", " ", text)
    if count:
        notes["line ends and tabs, written as spaces"] += count
    return flat


def _count_left_out(attributes: Mapping[str, str], carried: set[str], notes: Notes) -> None:
    left_out = len(attributes.keys() - carried)
    if left_out:
        notes["attributes of mentions or relations left out"] += left_out


FORMAT = Format(
    "pubtator",
    "title and abstract lines, then a line a mention and a relation",
    read,
    write,
    suffixes=(".txt", ".pubtator"),
)
