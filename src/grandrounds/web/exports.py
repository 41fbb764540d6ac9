"""What a page shows, written by the project's own writers: BRAT, BioC and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from grandrounds.data.documents import Document
from grandrounds.data.formats import bioc_json, brat, documents_json
from grandrounds.errors import DataError

_BEGINNING_OF_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Export:
    """A file to keep."""

    name: str
    media: str
    content: bytes


def export(documents: Sequence[Document], format: str) -> Export:
    write = FORMATS.get(format)
    if write is None:
        raise DataError(f"there is no such export; choose one of {', '.join(FORMATS)}")
    return write(documents)


def parsed(line: str) -> Document:
    """A document as the page got it, in our JSON."""
    found = list(documents_json.parse(line, Path("document")))
    if len(found) != 1:
        raise DataError("each document is one line of JSON, as /read gave it")
    return found[0]


def narrowed(document: Document, mentions: Collection[str], relations: Collection[int]) -> Document:
    """The document with these mentions, by id, and these relations, by number; and the entities that are left."""
    kept = [i for i, mention in enumerate(document.mentions) if mention.id in mentions]
    place = {old: new for new, old in enumerate(kept)}
    entities = tuple(
        replace(entity, mentions=tuple(place[m] for m in entity.mentions if m in place))
        for entity in document.entities
        if any(m in place for m in entity.mentions)
    )
    known = {entity.id for entity in entities}
    chosen = (document.relations[i] for i in sorted(set(relations)) if 0 <= i < len(document.relations))
    left = []
    for relation in chosen:
        ends = relation.mentions
        if {relation.head, relation.tail} <= known and (ends is None or set(ends) <= set(place)):
            left.append(replace(relation, mentions=ends and (place[ends[0]], place[ends[1]])))
    shown = tuple(document.mentions[i] for i in kept)
    return replace(document, mentions=shown, entities=entities, relations=tuple(left))


def _brat(documents: Sequence[Document]) -> Export:
    packed = BytesIO()
    with ZipFile(packed, "w") as file:
        for name, document in zip(_names(documents), documents, strict=True):
            file.writestr(ZipInfo(f"{name}.txt", _BEGINNING_OF_TIME), document.text.encode("utf-8"))
            annotations = brat.render(document, Counter())
            file.writestr(ZipInfo(f"{name}.ann", _BEGINNING_OF_TIME), annotations.encode("utf-8"))
    return Export("found-brat.zip", "application/zip", packed.getvalue())


def _bioc(documents: Sequence[Document]) -> Export:
    return Export("found.bioc.json", "application/json", "".join(bioc_json.render(documents, Counter())).encode())


def _json(documents: Sequence[Document]) -> Export:
    return Export("found.jsonl", "application/json", documents_json.render(documents).encode())


def _names(documents: Sequence[Document]) -> list[str]:
    """Of files: one each, and nothing in them that leads to a folder."""
    seen: Counter[str] = Counter()
    names = []
    for document in documents:
        name = re.sub(r"[^\w.+ -]", "_", document.id.removesuffix(".txt")).strip(". ")[:80] or "note"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


FORMATS: Mapping[str, Callable[[Sequence[Document]], Export]] = {"brat": _brat, "bioc": _bioc, "json": _json}
