"""Corpus readers, each on files of its own format."""

from __future__ import annotations

import gzip
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from grandrounds.data.documents import Document
from grandrounds.data.formats import FORMATS, read, write
from grandrounds.data.synthetic import synthesize
from grandrounds.errors import DataError, GrandRoundsError
from tests.data.formats import samples
from tests.data.formats.samples import CHANGES
from tests.fuzz.scratch import scratch

BETWEEN = b"\n\x1d\n"
"""Between the files of a corpus that has several."""
NOTE = "HISTORY:\nXenomab was given b.i.d. for grumpitis.\n\n1. Quuxoline 5.5 mg\n2. none\n"
MIMIC = (
    "ROW_ID,SUBJECT_ID,HADM_ID,CHARTDATE,CATEGORY,ISERROR,TEXT\n"
    '1,7,9,2101-01-01,Discharge summary,,"Xenomab for\ngrumpitis, ""late""."\n'
    '2,8,,2101-01-01,Nursing,1,"Quuxoline"\n'
)
NOTES = '{"id": 1, "text": "Xenomab for grumpitis.", "patient": "p1", "tags": [1]}\n{"text": " "}\n'
RELATIONS = {"relations": "b.tsv"}


@dataclass(frozen=True)
class Reader:
    """A format, the files that its reader gets, and what may stand in them."""

    format: str
    files: tuple[str, ...]
    contents: tuple[tuple[str, ...], ...]
    options: Mapping[str, str] = field(default_factory=dict)

    def seeds(self) -> list[bytes]:
        return [self.joined([part.encode() for part in content]) for content in self.contents] + self._written()

    def run(self, data: bytes) -> None:
        """Read it as it is, and again leaving out what can't be read."""
        folder = _scratch(self.format)
        for name, content in zip(self.files, self.parted(data), strict=True):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        source = folder if FORMATS[self.format].source == "folder" else folder / self.files[0]
        for lenient in (False, True):
            with suppress(GrandRoundsError):
                read(source, self.format, lenient=lenient, **self.options)

    def mutate(self, data: bytes, draw: random.Random) -> bytes:
        """As the tests break files: lines lost, repeated and swapped, columns lost, numbers changed."""
        parts = self.parted(data)
        for _ in range(draw.randint(1, 3)):
            i = draw.randrange(len(parts))
            if parts[i]:
                parts[i] = draw.choice(CHANGES)(parts[i], draw.randrange(2**16), draw.randrange(2**16))
        return self.joined(parts)

    def parted(self, data: bytes) -> list[bytes]:
        parts = data.split(BETWEEN, len(self.files) - 1)
        return parts + [b""] * (len(self.files) - len(parts))

    def joined(self, parts: Sequence[bytes]) -> bytes:
        return BETWEEN.join(parts)

    def _written(self) -> list[bytes]:
        """Synthetic notes in the format, where it can be written."""
        if FORMATS[self.format].writer is None or self.options:
            return []
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch) / ("corpus" if len(self.files) > 1 else self.files[0])
            with suppress(DataError):  # a format may not hold such notes
                write(self.format, _notes(), place)
            if len(self.files) == 1:
                return [place.read_bytes()] if place.exists() else []
            ends = [Path(name).suffix for name in self.files]
            found = sorted(place.glob(f"*{ends[0]}"))[:2]
            return [self.joined([text.with_suffix(end).read_bytes() for end in ends]) for text in found]


class Gzipped(Reader):
    """The same in a gzip file, whose bytes are mutated."""

    def joined(self, parts: Sequence[bytes]) -> bytes:
        return gzip.compress(parts[0], mtime=0)

    def parted(self, data: bytes) -> list[bytes]:
        return [data]

    def mutate(self, data: bytes, draw: random.Random) -> bytes:
        with suppress(OSError, EOFError, gzip.zlib.error):  # type: ignore[attr-defined]
            if draw.random() < 0.5:
                return super().mutate(gzip.decompress(data), draw)
        return draw.choice(CHANGES)(data, draw.randrange(2**16), draw.randrange(2**16)) if data else data


@cache
def _scratch(format: str) -> Path:
    return scratch()


@cache
def _notes() -> tuple[Document, ...]:
    return synthesize(hospitals=1, notes=2, seed=1).train[:2]


def _one(format: str, name: str, *contents: str, **options: str) -> Reader:
    return Reader(format, (name,), tuple((content,) for content in contents), options)


READERS = {
    "pubtator": _one("pubtator", "a.txt", samples.PUBTATOR, samples.CHR),
    "pubtator, joined": _one("pubtator", "a.txt", samples.CHR, joined="same"),
    "chemdisgene": Reader(
        "chemdisgene", ("a.txt", "b.tsv"), ((samples.PUBTATOR, samples.CTD),), {"relations": "b.tsv"}
    ),
    "brat": Reader("brat", ("a.txt", "a.ann"), ((samples.TEXT, samples.ANN),)),
    "conll": _one("conll", "a.tsv", samples.CONLL),
    "biobert-tsv": _one("biobert-tsv", "a.tsv", samples.TSV),
    "i2b2-2010": Reader("i2b2-2010", ("a.txt", "a.con", "a.rel"), ((samples.I2B2, samples.CON, samples.REL),)),
    "docred": _one("docred", "a.json", samples.DOCRED),
    "eog": _one("eog", "a.data", samples.EOG),
    "opennre": _one("opennre", "a.txt", samples.OPENNRE),
    "nre": _one("nre", "a.txt", samples.NRE),
    "bere": _one("bere", "a.json", samples.BERE),
    "chemprot": _one("chemprot", "a.txt", samples.CHEMPROT),
    "bioc": _one("bioc", "a.xml", samples.BIOC_XML),
    "bioc-json": _one("bioc-json", "a.json", samples.BIOC_JSON),
    "pubannotation": _one("pubannotation", "a.json", samples.PUBANNOTATION),
    "json": _one("json", "a.jsonl", samples.JSON),
    "text": _one("text", "a.txt", NOTE, samples.TEXT),
    "text, clinical": _one("text", "a.txt", NOTE, breaks="clinical"),
    "text, gzipped": Gzipped("text", ("a.txt.gz",), ((NOTE,),)),
    "lines": _one("lines", "a.txt", NOTE),
    "ade": _one("ade", "DRUG-AE.rel", samples.ADE),
    "cadec": Reader("cadec", ("text/a.txt", "original/a.ann"), ((samples.TEXT, samples.CADEC),)),
    "smm4h": _one("smm4h", "a.tsv", samples.SMM4H),
    "i2b2-2012": _one("i2b2-2012", "a.xml", samples.XML),
    "mimic-notes": _one("mimic-notes", "NOTEEVENTS.csv", MIMIC),
    "notes-json": _one("notes-json", "a.jsonl", NOTES),
}
