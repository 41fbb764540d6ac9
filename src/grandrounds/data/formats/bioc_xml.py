"""BioC as XML: a collection with its documents; read with lxml, written with the `bioc` package (`grandrounds[bioc]`).

`bioc_documents` says what a document holds. Documents are read one at a time. A file is a stranger's: entities are
not expanded, nothing is fetched, and lxml's limits on depth (256) and length (10 MB of text) stay.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from grandrounds.data.documents import Document
from grandrounds.data.formats.bioc_documents import OF_PASSAGES, from_bioc, to_bioc
from grandrounds.data.formats.source import Format, Warnings, not_utf8, opened, placed, save_bytes
from grandrounds.errors import DataError, GrandRoundsError

UNKNOWN = "elements that BioC does not have, left out"
TWICE = "infons given twice, of which the first was kept"
NOT_XML = "characters that XML can't hold, written as spaces"
_LISTS = {
    "document": {"passage": "passages", "annotation": "annotations", "relation": "relations"},
    "passage": {"sentence": "sentences", "annotation": "annotations", "relation": "relations"},
    "sentence": {"annotation": "annotations", "relation": "relations"},
    "annotation": {"location": "locations"},
    "relation": {"node": "nodes"},
}
_TEXTS = {"document": ("id",), "passage": ("offset", "text"), "sentence": ("offset", "text"), "annotation": ("text",)}
_NUMBERS = ("offset", "length")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    with opened(path) as file:
        yield from parse(file, path, warnings)


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save_bytes(render(documents, warnings), path)


def parse(file: Readable, path: Path, warnings: Warnings) -> Iterator[Document]:
    """The documents of an open file; `path` is for messages."""
    etree = _etree()
    with placed(path, None, warnings):
        events = etree.iterparse(
            _Checked(file, path),
            tag="document",
            encoding="utf-8",
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        try:
            for i, (_, element) in enumerate(events, start=1):
                root, line = element.getparent(), element.sourceline
                if root is None or root.tag != "collection" or root.getparent() is not None:
                    raise DataError(
                        "a document that is not in a collection; the file is one BioC collection", line=line
                    )
                _drop_before(element, root, warnings)
                with placed(path, line, warnings):
                    yield from_bioc(_plain(element, warnings), f"document {i}", path, line, warnings)
                element.clear(keep_tail=True)
            root = events.root
            if root.tag != "collection":
                raise DataError("the outermost element is not a collection; the file is one BioC collection")
            _drop_before(None, root, warnings)
        except etree.XMLSyntaxError as error:
            line, column = error.position
            raise DataError(f"not XML at column {column}; the file is one BioC collection", line=line or None) from None


def _drop_before(element: Any, root: Any, warnings: Warnings) -> None:
    """What has been read is dropped, so that a file is never held as a whole; what has no place is counted."""
    _no_text(root.text, root)
    while len(root) and root[0] is not element:
        first = root[0]
        if first.tag not in ("source", "date", "key", "infon", "document"):
            warnings[UNKNOWN] += 1
        _no_text(first.tail, first)
        del root[0]


def _etree() -> Any:
    try:
        from lxml import etree
    except ImportError:
        raise GrandRoundsError("BioC's XML is read with lxml; pip install 'grandrounds[bioc]'") from None
    return etree


class _Checked:
    """A file that is read as UTF-8, whatever it says of itself, and declares no entities; or it is refused."""

    def __init__(self, file: Readable, path: Path) -> None:
        self._file, self._path = file, path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._bytes, self._line, self._last = 0, 1, b""

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        pending = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            at = max(error.start - pending, 0)
            place = self._bytes - pending + error.start
            raise not_utf8(place, self._path, self._line + data.count(b"\n", 0, at)) from None
        # Text that is expanded is never text of a document, and may be gigabytes.
        if b"<!ENTITY" in self._last + data:
            raise DataError("entities of its own, which are not expanded; write the characters themselves")
        self._last = data[-7:]
        self._bytes, self._line = self._bytes + len(data), self._line + data.count(b"\n")
        return data


def _plain(element: Any, warnings: Warnings) -> dict[str, object]:
    """An element as BioC's JSON has it."""
    found: dict[str, object] = dict(element.attrib) | {"infons": {}}
    infons: dict[str, str] = {}
    lists, texts = _LISTS.get(element.tag, {}), _TEXTS.get(element.tag, ())
    _no_text(element.text, element)
    for child in element:
        if not isinstance(child.tag, str):
            raise DataError("an entity that is not expanded; write the characters themselves", line=child.sourceline)
        _no_text(child.tail, child)
        if child.tag == "infon":
            key = child.get("key")
            if key is None:
                raise DataError("an infon without a key", line=child.sourceline)
            if key in infons:
                warnings[TWICE] += 1
            infons.setdefault(key, _content(child))
        elif child.tag in texts:
            if child.tag in found:
                raise DataError(f"a second '{child.tag}'; remove one", line=child.sourceline)
            found[child.tag] = _content(child)
        elif child.tag in lists:
            parts = found.setdefault(lists[child.tag], [])
            assert isinstance(parts, list)
            parts.append(_plain(child, warnings))
        else:
            warnings[UNKNOWN] += 1
    if element.tag in ("passage", "sentence"):
        if infons:
            warnings[OF_PASSAGES] += len(infons)
    else:
        found["infons"] = infons
    for name in _NUMBERS:
        value = found.get(name)
        if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value.strip()):
            found[name] = int(value)
    return found


def _content(element: Any) -> str:
    if len(element):
        raise DataError(f"elements within '{element.tag}', which holds text alone", line=element.sourceline)
    return element.text or ""


def _no_text(text: str | None, element: Any) -> None:
    if text and text.strip():
        raise DataError("text outside of the elements that hold it", line=element.sourceline)


def render(documents: Sequence[Document], warnings: Warnings) -> bytes:
    """The content of a file."""
    try:
        from bioc import biocjson, biocxml
        from bioc.datastructure import BioCCollection
    except ImportError:
        raise GrandRoundsError("BioC's XML is written with bioc; pip install 'grandrounds[bioc]'") from None
    file = BytesIO()
    writer = biocxml.BioCXMLDocumentWriter(file, encoding="UTF-8")  # not every parser knows the package's own "utf8"
    collection = BioCCollection()
    collection.date = ""  # the same documents give the same bytes on any day
    writer.write_collection_info(collection)
    for document in documents:
        writer.write_document(biocjson.fromJSON(_clean(to_bioc(document, warnings), warnings), "BioCDocument"))
    writer.close()
    return file.getvalue()


def _clean(value: Any, warnings: Warnings) -> Any:
    """The same with a space for each character that XML can't hold, so that offsets stay."""
    match value:
        case str():
            clean, count = _FORBIDDEN.subn(" ", value)
            if count:
                warnings[NOT_XML] += count
            return clean
        case dict():
            return {_clean(key, warnings): _clean(item, warnings) for key, item in value.items()}
        case list():
            return [_clean(item, warnings) for item in value]
    return value


FORMAT = Format("bioc", "BioC's XML: a collection of documents with passages", read, write, suffixes=(".xml",))
