"""ChemDisGene (Zhang et al., LREC 2022): abstracts in PubTator's format, their relations in a file of their own.

    dev_abstracts.txt.gz        dev_relationships.tsv.gz
    30|t|Aspirin and ...        30	chem_disease:marker/mechanism	MESH:D009395	MESH:D001241

The relations of `X_abstracts.txt` are looked for in `X_relationships.tsv` beside it, either of them gzipped or not. The
curated part has others: the option `relations` names them, '*' standing for any characters ("approved_relns_*.tsv.gz").

The two parts write the same relation otherwise: the one derived from CTD as chem_gene:increases^expression with the
gene first, the curated one as chem^gene:increases-expression with the chemical first. Both are read as
chem_gene:increases^expression with the chemical as head, so that a model of one can be scored on the other. The option
`only` ("gene_disease") keeps the relations between two types of entities, as one relation of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grandrounds.data.documents import Document, Relation
from grandrounds.data.formats import pubtator
from grandrounds.data.formats.pair_lists import rows
from grandrounds.data.formats.source import Format, Warnings, load, placed
from grandrounds.errors import DataError, GrandRoundsError, unknown

TYPES = {"chem": "Chemical", "gene": "Gene", "disease": "Disease"}
_TYPE = re.compile(rf"({'|'.join(TYPES)})[_^]({'|'.join(TYPES)}):(?:(affects|decreases|increases)[-^])?(.+)")
KINDS = ("chem_disease", "chem_gene", "gene_disease")

UNKNOWN_DOCUMENT = "relations of documents that this corpus file does not have"
NO_MENTION = "relations with a concept that no mention of its type has, left out"
TURNED = "relations whose ends were put in the order that their type names"
TWICE = "relations given twice, kept once"


@dataclass(frozen=True)
class _Stated:
    """What a line says of its document."""

    type: str
    types: tuple[str, str]
    """Of head and tail."""
    ends: tuple[str, str]
    """The two concepts, in either order."""


def read(path: Path, warnings: Warnings, *, relations: str = "", only: str = "") -> Iterator[Document]:
    if only and only not in KINDS:
        raise GrandRoundsError(unknown("kind of relation", only, KINDS))
    abstracts = load(path)  # first, so that what is no corpus at all is not asked for its relations
    documents = parse(abstracts, path, {file: load(file) for file in _files(path, relations)}, warnings)
    yield from (_of_one_kind(document, only) for document in documents) if only else documents


def parse(abstracts: str, path: Path, relations: Mapping[Path, str], warnings: Warnings) -> Iterator[Document]:
    """The documents of a file's content, with the relations of other files' contents; paths are for messages."""
    stated: dict[str, list[_Stated]] = {}
    for file, content in relations.items():
        for line, (id, *columns) in rows(content, "document, type, concept, concept", file):
            with placed(file, line, warnings):
                stated.setdefault(id, []).append(_stated(*columns))
    unknown = set(stated)
    for document in pubtator.parse(abstracts, path, warnings):
        unknown.discard(document.id)
        found = _relations(document, stated.get(document.id, ()), warnings)
        yield replace(document, relations=(*document.relations, *(Relation(*one) for one in found)))
    if unknown:
        warnings[UNKNOWN_DOCUMENT] += sum(len(stated[id]) for id in unknown)


def _stated(type: str, first: str, second: str) -> _Stated:
    found = _TYPE.fullmatch(type)
    if not found:
        raise DataError("a type of relation that is not like chem_gene:increases^expression; see ChemDisGene's own")
    head, tail, change, what = found.groups()
    name = f"{head}_{tail}:{change}^{what}" if change else f"{head}_{tail}:{what}"
    return _Stated(name, (TYPES[head], TYPES[tail]), (first, second))


def _relations(document: Document, stated: Iterable[_Stated], warnings: Warnings) -> Iterator[tuple[str, str, str]]:
    """Type, head and tail of each that can be placed."""
    types = {entity.id: entity.type for entity in document.entities}
    seen: set[tuple[str, str, str]] = set()
    for one in stated:
        head, tail = one.ends
        if (types.get(tail), types.get(head)) == one.types:
            head, tail = tail, head
            warnings[TURNED] += 1
        # A gene's number may be that of a species (10090 is the mouse), whose mentions do not count for the gene.
        if (types.get(head), types.get(tail)) != one.types:
            warnings[NO_MENTION] += 1
        elif (one.type, head, tail) in seen:
            warnings[TWICE] += 1
        else:
            seen.add((one.type, head, tail))
            yield one.type, head, tail


def _of_one_kind(document: Document, kind: str) -> Document:
    ends = ((one.head, one.tail) for one in document.relations if one.type.partition(":")[0] == kind)
    return replace(document, relations=tuple(Relation(kind, *pair) for pair in dict.fromkeys(ends)))


def _files(path: Path, pattern: str) -> Sequence[Path]:
    """Where the relations are: what the pattern matches beside the abstracts, else the file named after theirs."""
    if pattern:
        wished = path.parent / pattern
        found = sorted(wished.parent.glob(wished.name)) if wished.name else []
        wanted = "the option 'relations' names no file beside it; check the pattern"
    else:
        name = path.name.removesuffix(".gz").removesuffix("abstracts.txt") + "relationships.tsv"
        found = [file for file in (path.with_name(name), path.with_name(f"{name}.gz")) if file.is_file()][:1]
        wanted = f"no {name} beside it, gzipped or not; the option 'relations' can name another file"
    if not found:
        raise DataError(wanted, path=path)
    return found


FORMAT = Format(
    "chemdisgene",
    "ChemDisGene: PubTator abstracts, relations in a file beside them",
    read,
    suffixes=("abstracts.txt",),
)
