"""PubAnnotation's JSON (Kim and Wang, 2012): one document, or a list of them.

    text, sourcedb, sourceid   the text; sourceid is the document's id
    denotations                mentions: {"id": "T1", "span": {"begin": 0, "end": 7}, "obj": type}; in several pieces,
                               a list of spans
    relations                  {"id": "R1", "subj": "T1", "pred": type, "obj": "T2"}
    attributes                 of denotations or relations: {"subj": "T1", "pred": name, "obj": value}; that of the name
                               `concept` is a mention's concept, several of them are joined by '|'

Relations join mentions. One between entities is written between their first mentions and has the attributes `head` and
`tail`, the entities' ids. What else we know of a document is in the object `metadata`. Namespaces and tracks of several
projects are left out, and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.formats.exchange import (
    ENTITIES,
    SENTENCES,
    Stated,
    assemble,
    first_owners,
    free,
    listed_owners,
    listed_sentences,
    read_owners,
    read_sentences,
    spanned,
)
from grandrounds.data.formats.json_values import integer, items, numbered, record, string, strings
from grandrounds.data.formats.json_values import load as load_json
from grandrounds.data.formats.source import Format, Warnings, load, placed, save
from grandrounds.errors import DataError

CONCEPT, HEAD, TAIL, BETWEEN = "concept", "head", "tail", "between"
PASSED_OVER = "keys of documents that are not read (tracks, namespaces ...)"
NO_SUBJECT = "attributes of what is no denotation or relation, left out"
TWICE = "attributes given twice, of which the first was kept"
_OWN = ("text", "sourcedb", "sourceid", "denotations", "relations", "attributes", "metadata")
_CURE = "the file is one document of PubAnnotation, or a list of them"


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    yield from parse(load(path), path, warnings)


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save("".join(render(documents, warnings)), path)


def parse(content: str, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content; `path` is for ids and messages."""
    content = content.removeprefix("\ufeff")
    with placed(path, None, warnings):
        many = content.lstrip(" \t\r\n").startswith("[")
        found = numbered(content, _CURE) if many else iter([(1, load_json(content, _CURE))])
        for i, (line, value) in enumerate(found):
            with placed(path, line, warnings):
                where = f"documents[{i}]" if many else "document"
                yield _document(value, where, f"{path.name}:{i + 1}", (path, line), warnings)


def _document(value: object, where: str, id: str, place: tuple[Path, int], warnings: Warnings) -> Document:
    found = record(value, where, "text")
    text = string(found["text"], f"{where}.text")
    if further := found.keys() - set(_OWN):
        warnings[PASSED_OVER] += len(further)
    named: dict[str, dict[str, str]] = {}
    for subject, name, item in _each(found, "attributes", where, place, warnings, _attribute):
        own = named.setdefault(subject, {})
        if name not in own:
            own[name] = item
        elif name == CONCEPT:
            own[name] += f"|{item}"
        else:
            warnings[TWICE] += 1
    mentions: dict[str, Mention] = {}
    owners: dict[str, Sequence[str]] = {}
    for mention in _each(found, "denotations", where, place, warnings, lambda v, w: _denotation(v, w, text)):
        with placed(*place, warnings):
            if mention.id in mentions:
                raise DataError(f"{where}.denotations: two have the same id; ids must be unique in a document")
            own = named.pop(mention.id, {})
            if (listed := own.pop(ENTITIES, None)) is not None:
                owners[mention.id] = read_owners(listed)
            mentions[mention.id] = _described(mention, own)
    stated = []
    for key, one in _each(found, "relations", where, place, warnings, _relation):
        own = named.pop(key, {}) if key else {}
        ends = (own.pop(HEAD), own.pop(TAIL)) if HEAD in own and TAIL in own else None
        between = one.mentions if own.pop(BETWEEN, None) is None or ends is None else None
        stated.append(Stated(one.type, between, ends, own))
    if named:
        warnings[NO_SUBJECT] += sum(len(own) for own in named.values())
    attributes = strings(found.get("metadata", {}), f"{where}.metadata")
    if "sourcedb" in found:
        attributes["sourcedb"] = string(found["sourcedb"], f"{where}.sourcedb")
    sentences = attributes.pop(SENTENCES, None)
    return assemble(
        _id(found.get("sourceid", id), f"{where}.sourceid"),
        text,
        tuple(mentions.values()),
        owners,
        stated,
        None if sentences is None else read_sentences(sentences),
        attributes,
        warnings,
    )


def _each(
    found: Mapping[str, object], key: str, where: str, place: tuple[Path, int], warnings: Warnings, take: Any
) -> Any:
    """The good parts of a list."""
    for value, name in items(found.get(key, []), f"{where}.{key}", lambda part, name: (part, name)):
        with placed(*place, warnings):
            yield take(value, name)


def _attribute(value: object, where: str) -> tuple[str, str, str]:
    found = record(value, where, "subj", "pred", "obj")
    item = found["obj"]
    if isinstance(item, bool | int | float):
        item = str(item).lower()
    name = string(found["pred"], f"{where}.pred")
    return _id(found["subj"], f"{where}.subj"), name, string(item, f"{where}.obj")


def _denotation(value: object, where: str, text: str) -> Mention:
    found = record(value, where, "id", "span", "obj")
    given = found["span"] if isinstance(found["span"], list) else [found["span"]]
    pieces = items(given, f"{where}.span", _span)
    if not pieces:
        raise DataError(f"{where}.span is empty; a mention has a span")
    type = string(found["obj"], f"{where}.obj")
    try:
        return spanned(text, sorted(pieces), None, _id(found["id"], f"{where}.id"), type, None, {})
    except DataError as error:
        raise DataError(f"{where}: {error.problem}") from None


def _described(mention: Mention, named: dict[str, str]) -> Mention:
    concept = named.pop(CONCEPT, None)
    return Mention(mention.start, mention.end, mention.type, mention.id, concept, mention.fragments, named)


def _span(value: object, where: str) -> Span:
    found = record(value, where, "begin", "end")
    return Span(integer(found["begin"], f"{where}.begin"), integer(found["end"], f"{where}.end"))


def _relation(value: object, where: str) -> tuple[str, Stated]:
    found = record(value, where, "subj", "pred", "obj")
    ends = _id(found["subj"], f"{where}.subj"), _id(found["obj"], f"{where}.obj")
    id = _id(found["id"], f"{where}.id") if "id" in found else ""
    return id, Stated(string(found["pred"], f"{where}.pred"), ends)


def _id(value: object, where: str) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else string(value, where)


def render(documents: Iterable[Document], warnings: Warnings) -> Iterator[str]:
    """The content of a file, in pieces: a list, a document a line."""
    yield "["
    for i, document in enumerate(documents):
        yield (",\n" if i else "\n") + json.dumps(_plain(document, warnings), ensure_ascii=False)
    yield "\n]\n"


def _plain(document: Document, warnings: Warnings) -> dict[str, Any]:
    attributes: list[dict[str, str]] = []

    def say(subject: str, values: Mapping[str, str]) -> None:
        for name, item in values.items():
            attributes.append({"id": f"A{len(attributes) + 1}", "subj": subject, "pred": name, "obj": item})

    owners, first = listed_owners(document, warnings), first_owners(document.entities)
    for index, mention in enumerate(document.mentions):
        say(mention.id, {} if mention.concept is None else {CONCEPT: mention.concept})
        say(mention.id, {} if owners is None else {ENTITIES: owners[index]})
        say(mention.id, free(mention.attributes, (CONCEPT, ENTITIES), warnings))
    ids, relations = _relation_ids(document), []
    for id, relation in zip(ids, document.relations, strict=True):
        pair = relation.mentions
        if pair is None:
            pair = document.entity(relation.head).mentions[0], document.entity(relation.tail).mentions[0]
        subject, object = (document.mentions[m].id for m in pair)
        relations.append({"id": id, "subj": subject, "pred": relation.type, "obj": object})
        if relation.mentions is None or [first.get(m) for m in pair] != [relation.head, relation.tail]:
            say(id, {HEAD: relation.head, TAIL: relation.tail})
        say(id, {} if relation.mentions else {BETWEEN: "entities"})
        say(id, free(relation.attributes, (HEAD, TAIL, BETWEEN), warnings))
    metadata = free(document.attributes, (SENTENCES,), warnings)
    source = {"sourcedb": metadata.pop("sourcedb")} if "sourcedb" in metadata else {}
    if (sentences := listed_sentences(document)) is not None:
        metadata[SENTENCES] = sentences
    return {
        **source,
        "sourceid": document.id,
        "text": document.text,
        "denotations": [
            {"id": mention.id, "span": _written(mention), "obj": mention.type} for mention in document.mentions
        ],
        "relations": relations,
        "attributes": attributes,
        "metadata": metadata,
    }


def _relation_ids(document: Document) -> list[str]:
    """R1 and so on, or others where a mention is called so: attributes name both by their ids."""
    taken = {mention.id for mention in document.mentions}
    prefix = "R"
    while any(f"{prefix}{i}" in taken for i in range(1, len(document.relations) + 1)):
        prefix += "R"
    return [f"{prefix}{i}" for i in range(1, len(document.relations) + 1)]


def _written(mention: Mention) -> object:
    spans = [{"begin": start, "end": end} for start, end in mention.fragments]
    return spans or {"begin": mention.start, "end": mention.end}


FORMAT = Format(
    "pubannotation", "PubAnnotation's JSON: text, denotations, relations, attributes", read, write, suffixes=(".json",)
)
