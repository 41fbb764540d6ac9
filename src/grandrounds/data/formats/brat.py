"""BRAT standoff: a .txt with a .ann beside it.

    T1	Drug 0 7	aspirin                 a mention; discontinuous ones have "0 5;8 12"
    R1	TrAP Arg1:T1 Arg2:T2            a relation
    *	Equiv T1 T3                     mentions of one entity
    N1	Reference T1 MESH:D001241	Aspirin
    A1	Negation T2                     an attribute of a mention or a relation; M lines are the older form
    E1	Symptom:T2                      an event that only wraps its trigger is the trigger's mention

Entities are the Equiv groups, named after their first mention; other mentions stand alone. Normalisations
become concepts and do not group, since relations here name mentions. Events with arguments, groups of another name
than Equiv, notes (#) and what refers to them have no place in our model: they are kept as lines, written again
unchanged, and counted. The option `discontinuous` says what becomes of mentions in several pieces; see `pieces`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span, concept_parts
from grandrounds.data.formats import pieces
from grandrounds.data.formats.source import Format, Warnings, lines, load, mismatch, number, placed, save
from grandrounds.data.sentences import Breaks, split_sentences
from grandrounds.errors import DataError, GrandRoundsError, unknown

KEPT = "brat"
"""The document attribute that holds the lines of events and notes."""
_ID = "brat_id"
_ROLES = "brat_roles"
_NAMES = "concept_name"
_EVENT = "brat_event"
"""Of a mention: the id of the event that wraps it, by which other lines name it."""
_BINARY = "yes"
UNPLACED = "relations of a mention that the file does not have, left out"
OF_UNPLACED = "attributes of relations that were left out"


def read(
    path: Path, warnings: Warnings, *, breaks: str = "paragraph", discontinuous: str = pieces.KEEP
) -> Iterator[Document]:
    if not path.is_dir() and path.suffix not in (".txt", ".ann"):
        raise DataError("is not a file of BRAT's; give a folder, or a .txt or .ann file", path=path)
    root = path if path.is_dir() else path.parent
    texts = sorted(path.rglob("*.txt")) if path.is_dir() else [path.with_suffix(".txt")]
    for text in texts:
        annotations = text.with_suffix(".ann")
        if not annotations.exists():
            warnings["texts without annotations (.ann), read as having none"] += 1
        content = load(annotations) if annotations.exists() else ""
        id = text.relative_to(root).with_suffix("").as_posix()
        with placed(annotations, None, warnings):
            yield parse(load(text), content, id, annotations, warnings, breaks, discontinuous)
    if path.is_dir():
        for annotations in sorted(path.rglob("*.ann")):
            with placed(annotations, None, warnings):
                if not annotations.with_suffix(".txt").exists():
                    raise DataError("no text beside these annotations; put the .txt of the same name there")
        others = sum(1 for file in path.rglob("*") if file.is_file() and file.suffix not in (".txt", ".ann"))
        if others:
            warnings["files passed over, neither .txt nor .ann"] += others


def parse(
    text: str,
    annotations: str,
    id: str,
    path: Path,
    warnings: Warnings,
    breaks: str = "paragraph",
    discontinuous: str = pieces.KEEP,
) -> Document:
    """A document from its text and the content of its .ann; `path` is for messages."""
    pieces.check(discontinuous)
    if breaks not in get_args(Breaks):
        raise GrandRoundsError(unknown("breaks", breaks, get_args(Breaks)))
    page = _Page(text)
    # Lines may refer to later ones, so mentions come first, and what has attributes before the attributes.
    rows = [(i, line) for i, line in enumerate(lines(annotations), start=1) if line.strip()]
    for kinds, take in (("T", page.mention), ("E", page.event), ("R", page.relation), ("*NAM#", page.other)):
        for i, line in rows:
            with placed(path, i, warnings):
                if line[0] in kinds:
                    take(line, warnings)
                elif kinds == "T" and line[0] not in "TER*NAM#":
                    raise DataError("a line that starts with none of T, R, *, N, A, M, E and #, BRAT's kinds of line")
    page.settle(discontinuous, warnings)
    try:
        return page.document(id, breaks)
    except DataError as error:
        raise error.at(path) from None


@dataclass
class _Page:
    """What has been read of one .ann."""

    text: str
    mentions: dict[str, Mention] = field(default_factory=dict)
    relations: dict[str, tuple[str, str, Relation]] = field(default_factory=dict)
    events: set[str] = field(default_factory=set)
    """Those that are kept as lines."""
    wrapped: dict[str, str] = field(default_factory=dict)
    """The trigger of each event that has nothing else."""
    unplaced: set[str] = field(default_factory=set)
    """Relations that were left out."""
    groups: list[list[str]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def mention(self, line: str, warnings: Warnings) -> None:
        columns = line.split("\t")
        found = re.fullmatch(r"(\S+) (.+)", columns[1]) if len(columns) == 3 else None
        if not found:
            raise DataError("not a mention line; expected id TAB type start end TAB text")
        spans = [_span(piece) for piece in found.group(2).split(";")]
        for start, end in spans:
            if not start < end <= len(self.text):
                raise DataError(f"mention {start}-{end} is empty, inverted or outside the text (0-{len(self.text)})")
        for before, after in pairwise(spans):
            if after.start < before.end:
                raise DataError(
                    f"pieces {before.start}-{before.end} and {after.start}-{after.end} overlap or turn back"
                )
        start, end = spans[0].start, spans[-1].end
        there, stated = " ".join(self.text[s:e] for s, e in spans), columns[2]
        if re.sub(r"\s", " ", there) != re.sub(r"\s", " ", stated):
            raise mismatch(start, end, stated, there)
        self._fresh(columns[0], self.mentions)
        fragments = tuple(spans) if len(spans) > 1 else ()
        self.mentions[columns[0]] = Mention(start, end, found.group(1), columns[0], fragments=fragments)

    def event(self, line: str, warnings: Warnings) -> None:
        id, _, rest = line.partition("\t")
        if not re.fullmatch(r"\S+:T\S+(?: \S+:[TE]\S+)* *", rest):
            raise DataError("not an event line; expected id TAB type:T1 role:T2 ...")
        self._fresh(id, self.events | self.wrapped.keys())
        type, _, trigger = rest.strip().partition(":")
        mention = self.mentions.get(trigger)
        if mention is not None and mention.type == type and _EVENT not in mention.attributes:
            self.mentions[trigger] = replace(mention, attributes={_EVENT: id})
            self.wrapped[id] = trigger
            return
        self.events.add(id)
        self._keep(line, "events kept for writing, of no other use here", warnings)

    def relation(self, line: str, warnings: Warnings) -> None:
        found = re.fullmatch(r"(\S+)\t(\S+) (\S+):(\S+) (\S+):(\S+)\s*", line)
        if not found:
            raise DataError("not a relation line; expected id TAB type Arg1:T1 Arg2:T2")
        id, type, role1, head, role2, tail = found.groups()
        if {head, tail} & self.events:
            self._keep(line, "relations between events kept for writing, of no other use here", warnings)
            self.events.add(id)
            return
        head, tail = self.wrapped.get(head, head), self.wrapped.get(tail, tail)
        self._fresh(id, self.relations)
        if head not in self.mentions or tail not in self.mentions:
            warnings[UNPLACED] += 1
            self.unplaced.add(id)
            return
        attributes = {}
        if id != f"R{len(self.relations) + 1}":
            attributes[_ID] = id
        if (role1, role2) != ("Arg1", "Arg2"):
            attributes[_ROLES] = f"{role1} {role2}"
        self.relations[id] = (head, tail, Relation(type, head, tail, attributes=attributes))

    def other(self, line: str, warnings: Warnings) -> None:
        columns = line.split("\t")
        words = columns[1].split() if len(columns) > 1 else []
        if line[0] == "#":
            self._keep(line, "annotators' notes kept for writing, of no other use here", warnings)
        elif line[0] == "*":
            if len(words) < 3:
                raise DataError("not a line of a group; expected * TAB Equiv T1 T2 ...")
            if words[0] != "Equiv" or not self.events.isdisjoint(words):
                for id in words[1:]:
                    self._known(id, {**self.mentions, **self.wrapped, **dict.fromkeys(self.events)})
                self._keep(line, "groups of events or of another name than Equiv, kept for writing", warnings)
                return
            members = [self.wrapped.get(id, id) for id in words[1:]]
            for id in members:
                self._known(id, self.mentions)
            self.groups.append(members)
        elif len(words) > 1 and words[1] in self.unplaced:
            warnings[OF_UNPLACED] += 1
        elif len(words) > 1 and words[1] in self.events:
            self._keep(line, "attributes of events kept for writing, of no other use here", warnings)
        elif line[0] == "N":
            self._normalise(columns, words)
        else:
            self._attribute(words, warnings)

    def _normalise(self, columns: Sequence[str], words: Sequence[str]) -> None:
        if len(words) != 3 or len(columns) > 3 or words[0] != "Reference":
            raise DataError("not a normalisation line; expected id TAB Reference T1 base:concept TAB name")
        target = self.wrapped.get(words[1], words[1])
        self._known(target, self.mentions)
        mention = self.mentions[target]
        name = columns[2] if len(columns) == 3 else ""
        first = mention.concept is None
        concept = words[2] if first else f"{mention.concept}|{words[2]}"
        names = name if first else f"{mention.attributes.get(_NAMES, '')}|{name}"
        attributes = {**mention.attributes, _NAMES: names} if names.strip("|") else mention.attributes
        self.mentions[target] = replace(mention, concept=concept, attributes=attributes)

    def _attribute(self, words: Sequence[str], warnings: Warnings) -> None:
        if len(words) < 2:
            raise DataError("not an attribute line; expected id TAB name T1 value")
        name, target, value = words[0], self.wrapped.get(words[1], words[1]), " ".join(words[2:]) or _BINARY
        if target in self.mentions:
            mention = self.mentions[target]
            added = _with(mention.attributes, name, value, warnings)
            self.mentions[target] = replace(mention, attributes=added)
        else:
            self._known(target, self.relations)
            head, tail, relation = self.relations[target]
            added = _with(relation.attributes, name, value, warnings)
            self.relations[target] = (head, tail, replace(relation, attributes=added))

    def _keep(self, line: str, note: str, warnings: Warnings) -> None:
        self.kept.append(line)
        warnings[note] += 1

    def _fresh(self, id: str, taken: Mapping[str, object] | set[str]) -> None:
        if id in taken:
            raise DataError("an id that an earlier line has; ids must be unique in a file")

    def _known(self, id: str, known: Mapping[str, object]) -> None:
        if id not in known:
            raise DataError("a line that refers to an id which the file does not have; add its line or remove this one")

    def settle(self, discontinuous: str, warnings: Warnings) -> None:
        """Do with mentions in pieces as was chosen; what refers to one left out goes with it, and is counted."""
        settled = {id: pieces.settle(m, self.text, discontinuous, warnings) for id, m in self.mentions.items()}
        self.mentions = {id: mention for id, mention in settled.items() if mention}
        gone = settled.keys() - self.mentions.keys()
        gone |= {event for event, trigger in self.wrapped.items() if trigger in gone}
        ended = {id for id, (head, tail, _) in self.relations.items() if {head, tail} & gone}
        self.relations = {id: relation for id, relation in self.relations.items() if id not in ended}
        groups = ([id for id in group if id not in gone] for group in self.groups)
        self.groups = [group for group in groups if group]
        if ended:
            warnings["relations of mentions left out, left out too"] += len(ended)
        gone |= ended
        while dangling := [line for line in self.kept if _names(line) & gone]:
            warnings["lines kept for writing that refer to what was left out, left out too"] += len(dangling)
            gone |= {line.partition("\t")[0] for line in dangling}
            self.kept = [line for line in self.kept if line not in dangling]

    def document(self, id: str, breaks: str) -> Document:
        order = {name: index for index, name in enumerate(self.mentions)}
        owner = _owners(list(self.mentions), self.groups)
        members: dict[str, list[int]] = {}
        for name, first in owner.items():
            members.setdefault(first, []).append(order[name])
        entities = tuple(Entity(first, self.mentions[first].type, tuple(indices)) for first, indices in members.items())
        relations = tuple(
            replace(relation, head=owner[head], tail=owner[tail], mentions=(order[head], order[tail]))
            for head, tail, relation in self.relations.values()
        )
        spans = [Span(mention.start, mention.end) for mention in self.mentions.values()]
        chosen: Breaks = "line" if breaks == "line" else "none" if breaks == "none" else "paragraph"
        sentences = split_sentences(self.text, spans, breaks=chosen)
        attributes = {KEPT: "\n".join(self.kept)} if self.kept else {}
        return Document(id, self.text, sentences, tuple(self.mentions.values()), entities, relations, attributes)


def _names(line: str) -> set[str]:
    """The ids that a line's second column refers to."""
    columns = line.split("\t")
    return {word.rpartition(":")[2] for word in columns[1].split()} if len(columns) > 1 else set()


def _span(piece: str) -> Span:
    numbers = [number(digits) for digits in piece.split(" ")]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        raise DataError("the span of a mention is not two numbers (pieces are parted by ';')")
    return Span(numbers[0], numbers[1])


def _with(attributes: Mapping[str, str], name: str, value: str, warnings: Warnings) -> Mapping[str, str]:
    if name in attributes:
        warnings["attributes given twice, of which the first was kept"] += 1
        return attributes
    return {**attributes, name: value}


def _owners(ids: Sequence[str], groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """The first mention of each mention's entity, where groups that share a mention are one."""
    place = {id: i for i, id in enumerate(ids)}
    parent = {id: id for id in ids}

    def root(id: str) -> str:
        while parent[id] != id:
            id = parent[id]
        return id

    for first, *others in groups:
        for other in others:
            early, late = sorted((root(first), root(other)), key=place.__getitem__)
            parent[late] = early
    return {id: root(id) for id in ids}


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    """A .txt and a .ann a document in the folder `path`; a note that was read from a.txt is a.txt again."""
    ids = [document.id.removesuffix(".txt") for document in documents]
    names = [_file_name(id) for id in ids]
    if len(set(names)) < len(names):
        raise DataError("two documents would be written to the same file; give them different ids", path=path)
    changed = sum(name != id for name, id in zip(names, ids, strict=True))
    if changed:
        warnings["document ids changed to be file names"] += changed
    for name, document in zip(names, documents, strict=True):
        save(document.text, path / f"{name}.txt")
        save(render(document, warnings), path / f"{name}.ann")


def _file_name(id: str) -> str:
    parts = [re.sub(r"[^\w.+ -]", "_", part) for part in id.split("/")]
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)


def render(document: Document, warnings: Warnings) -> str:
    """The content of a document's .ann."""
    return "".join(f"{line}\n" for line in _lines(document, warnings))


def _lines(document: Document, warnings: Warnings) -> Iterator[str]:
    ids = [mention.id for mention in document.mentions]
    if not all(re.fullmatch(r"T\d+", id) for id in ids):
        ids = [f"T{i}" for i in range(1, len(ids) + 1)]
        warnings["mentions given new ids"] += len(ids)
    for id, mention in zip(ids, document.mentions, strict=True):
        spans = mention.fragments or (Span(mention.start, mention.end),)
        where = ";".join(f"{start} {end}" for start, end in spans)
        surface = re.sub(r"\s", " ", " ".join(document.text[start:end] for start, end in spans))
        yield f"{id}\t{_word(mention.type, warnings)} {where}\t{surface}"
    # Whatever names a mention that an event wraps names the event.
    names = [mention.attributes.get(_EVENT, id) for id, mention in zip(ids, document.mentions, strict=True)]
    for id, name, mention in zip(ids, names, document.mentions, strict=True):
        if name != id:
            yield f"{name}\t{_word(mention.type, warnings)}:{id}"
    targets = [(name, mention.attributes) for name, mention in zip(names, document.mentions, strict=True)]
    for i, relation in enumerate(document.relations, start=1):
        id = relation.attributes.get(_ID, f"R{i}")
        pair = relation.mentions
        if pair is None:
            pair = document.entity(relation.head).mentions[0], document.entity(relation.tail).mentions[0]
            warnings["relations between entities, written between their first mentions"] += 1
        first, second = relation.attributes.get(_ROLES, "Arg1 Arg2").split()
        yield f"{id}\t{_word(relation.type, warnings)} {first}:{names[pair[0]]} {second}:{names[pair[1]]}"
        targets.append((id, relation.attributes))
    yield from _equivalences(document, ids, warnings)
    yield from _normalisations(document, ids)
    count = 0
    for target, attributes in targets:
        for name, value in attributes.items():
            if name not in (_ID, _ROLES, _NAMES, _EVENT):
                count += 1
                suffix = "" if value == _BINARY else f" {' '.join(value.split())}"
                yield f"A{count}\t{_word(name, warnings)} {target}{suffix}"
    if KEPT in document.attributes:
        yield from document.attributes[KEPT].split("\n")


def _equivalences(document: Document, ids: Sequence[str], warnings: Warnings) -> Iterator[str]:
    owners = [0] * len(ids)
    for entity in document.entities:
        for index in entity.mentions:
            owners[index] += 1
    shared = sum(count > 1 for count in owners)
    if shared:
        warnings["mentions of several entities, which Equiv can't express and would join"] += shared
    for entity in document.entities:
        own = [ids[index] for index in entity.mentions if owners[index] == 1]
        if len(own) > 1:
            yield f"*\tEquiv {' '.join(own)}"


def _normalisations(document: Document, ids: Sequence[str]) -> Iterator[str]:
    count = 0
    for id, mention in zip(ids, document.mentions, strict=True):
        if mention.concept:
            concepts = concept_parts(mention.concept)
            names = mention.attributes.get(_NAMES, "").split("|")
            for i, concept in enumerate(concepts):
                count += 1
                name = names[i] if i < len(names) else ""
                yield f"N{count}\tReference {id} {concept.replace(' ', '_')}" + (f"\t{name}" if name else "")


def _word(text: str, warnings: Warnings) -> str:
    """A type or a name without white space, which would end it."""
    word = re.sub(r"\s", "_", text)
    if word != text:
        warnings["types and names with white space, written with '_'"] += 1
    return word or "_"


FORMAT = Format("brat", "a folder of .txt and .ann files", read, write, source="folder")
