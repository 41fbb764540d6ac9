"""Documents as the lines of a PubTator file; `grandrounds.data.formats.pubtator` says what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from grandrounds.data.documents import Document, entities_by_ids
from grandrounds.data.formats.pubtator_ids import as_written, named_whole, split_ids
from grandrounds.data.formats.source import Warnings


def render(documents: Iterable[Document], warnings: Warnings) -> str:
    """The content of a PubTator file."""
    return "".join("".join(f"{line}\n" for line in _lines(document, warnings)) + "\n" for document in documents)


def _lines(document: Document, warnings: Warnings) -> Iterator[str]:
    id = re.sub(r"[|\t\n\r]", "_", document.id) or "_"
    if id != document.id:
        warnings["document ids changed, which PubTator could not hold"] += 1
    title, newline, abstract = document.text.partition("\n")
    text = _flat(title, warnings) + newline + _flat(abstract, warnings)
    title, newline, abstract = text.partition("\n")
    yield f"{id}|t|{title}"
    if newline:
        yield f"{id}|a|{abstract}"
    concepts = _concepts(document, warnings)
    for index, mention in enumerate(document.mentions):
        if mention.fragments:
            warnings["discontinuous mentions, written with all between their pieces"] += 1
        surface = text[mention.start : mention.end].replace("\n", " ")
        columns = [id, str(mention.start), str(mention.end), surface, _flat(mention.type, warnings)]
        if concepts[index] is not None:
            columns.append(_flat(concepts[index] or "", warnings))
            if "parts" in mention.attributes:
                columns.append(_flat(mention.attributes["parts"], warnings))
        _count_left_out(mention.attributes, {"parts", "separator"}, warnings)
        yield "\t".join(columns)
    for relation in document.relations:
        if relation.mentions:
            warnings["relations between mentions, written between their entities"] += 1
        _count_left_out(relation.attributes, {"novelty"}, warnings)
        columns = [relation.type, relation.head, relation.tail]
        if "novelty" in relation.attributes:
            columns.append(relation.attributes["novelty"])
        yield "\t".join([id, *(_flat(column, warnings) for column in columns)])


def _concepts(document: Document, warnings: Warnings) -> list[str | None]:
    """The concept column of each mention: as read if that gives the same entities again, else entity ids."""
    written, whole = [as_written(mention) for mention in document.mentions], named_whole(document.relations)
    again = entities_by_ids(document.mentions, [split_ids(concept, whole) for concept in written])
    named = {entity.id for entity in again}
    ends = {end for relation in document.relations for end in (relation.head, relation.tail)}
    if ends <= named and document.entities in ((), again):
        return written
    owners: list[list[str]] = [[] for _ in document.mentions]
    for entity in document.entities:
        for index in entity.mentions:
            owners[index].append(entity.id)
    lost = sum(1 for mention in document.mentions if mention.concept)
    if lost:
        warnings["concepts replaced by the ids of entities, which relations refer to"] += lost
    return ["|".join(ids) or "-1" for ids in owners]


def _flat(text: str, warnings: Warnings) -> str:
    """The text with each tab and line end as a space, so that columns and offsets hold."""
    flat, count = re.subn(r"[\t\n\r]", " ", text)
    if count:
        warnings["line ends and tabs, written as spaces"] += count
    return flat


def _count_left_out(attributes: Mapping[str, str], carried: set[str], warnings: Warnings) -> None:
    left_out = len(attributes.keys() - carried)
    if left_out:
        warnings["attributes of mentions or relations left out"] += left_out
