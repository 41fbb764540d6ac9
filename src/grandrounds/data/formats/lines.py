"""A sentence a line and an empty line between documents: what BERT's own tools are pre-trained from.

Nothing but white space is lost of a text that is written so; what is marked in it has no place here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

from grandrounds.data.clinical import clinical_sentences, one_a_line
from grandrounds.data.documents import Document, Span
from grandrounds.data.formats.source import Format, Warnings, save, stream


def read(path: Path, warnings: Warnings) -> Iterator[Document]:
    blocks = (list(block) for written, block in groupby(stream(path), key=lambda line: bool(line.strip())) if written)
    for i, block in enumerate(blocks, start=1):
        ends = accumulate(len(line) + 1 for line in block)
        sentences = tuple(Span(end - 1 - len(line), end - 1) for line, end in zip(block, ends, strict=True))
        yield Document(f"{path.name.partition('.')[0]}-{i}", "\n".join(block), sentences)


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save(render(documents, warnings), path)


def render(documents: Sequence[Document], warnings: Warnings) -> str:
    """The content of a file; where a document has no sentences, it is cut as a note."""
    blocks = []
    for document in documents:
        block = one_a_line(document.text, document.sentences or clinical_sentences(document.text))
        if block:
            blocks.append(block)
        else:
            warnings["documents without text, left out"] += 1
        if "".join(block.split()) != "".join(document.text.split()):
            warnings["documents with text outside of their sentences, which was left out"] += 1
        for what in ("mentions", "relations"):
            if getattr(document, what):
                warnings[f"{what} left out, which lines of text have no place for"] += len(getattr(document, what))
        if "patient" in document.attributes:
            warnings["documents that no longer say whose they are: lines of text have no place for a patient"] += 1
    return "\n".join(blocks)


FORMAT = Format("lines", "a sentence a line, an empty line between documents", read, write, suffixes=(".txt",))
