"""Files of any size, for readers whose time is measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from grandrounds.data.documents import Document, Mention, Relation, entities_by_concept
from grandrounds.data.formats import write

EXCHANGE = ("bioc", "bioc-json", "pubannotation", "chemprot")


def one_long_document(size: int) -> list[Document]:
    """A drug, a problem and a relation between them a sentence."""
    mentions = tuple(
        mention
        for i in range(size)
        for mention in (
            Mention(20 * i, 20 * i + 7, "Drug", f"T{2 * i}"),
            Mention(20 * i + 14, 20 * i + 18, "Problem", f"T{2 * i + 1}"),
        )
    )
    relations = tuple(Relation("eases", f"T{2 * i}", f"T{2 * i + 1}", (2 * i, 2 * i + 1)) for i in range(size))
    text = "Aspirin eased pain. " * size
    return [Document("long", text, (), mentions, entities_by_concept(mentions), relations)]


def many_documents(size: int) -> list[Document]:
    (short,) = one_long_document(1)
    return [replace(short, id=f"d{i}") for i in range(size)]


def store(format: str, documents: Sequence[Document], path: Path) -> None:
    """ChemProt has no writer: of each document the first drug and problem."""
    if format != "chemprot":
        write(format, documents, path)
        return
    with path.open("w") as file:
        for document in documents:
            text = document.text.replace("Aspirin", "<< Aspirin >>", 1).replace("pain", "[[ pain ]]", 1)
            file.write(json.dumps({"text": text, "label": "EASES", "metadata": []}) + "\n")
