"""Sentences with chemicals and diseases: BC5CDR's own where GRANDROUNDS_DATA is the folder of the corpora, else made up
in their size: a median of 22 words with a long tail, drawn as Zipf has it, and a mention in every 13.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.distant_corpus import word
from grandrounds.data.documents import Document
from grandrounds.data.formats import read

WORDS = 20_000
SHORTEST, LONGEST = 4, 120
MENTIONS = 1 / 13  # of the words
ENDINGS = {"Chemical": ("ine", "ol", "amide"), "Disease": ("itis", "emia", "pathy")}


def ner_documents(folder: Path, train: int, test: int) -> tuple[str, Document, Document]:
    """Where they are from, and two documents of so many sentences."""
    data = os.environ.get("GRANDROUNDS_DATA")
    if data and (corpus := Path(data, "bc5cdr-ner")).exists():
        files, source = [corpus / "train.tsv", corpus / "test.tsv"], "BC5CDR"
    else:
        files, source = [folder / "train.tsv", folder / "test.tsv"], "made up"
        for seed, (file, count) in enumerate(zip(files, (train, test), strict=True)):
            file.write_text("".join(_lines(count, seed)))
    both = [
        read(file, "conll", sentences_per_document=count).documents[0]
        for file, count in zip(files, (train, test), strict=True)
    ]
    return source, both[0], both[1]


def _lines(count: int, seed: int) -> Iterator[str]:
    """A word and its tag a line, an empty one after each sentence."""
    rng = np.random.default_rng(seed)
    common = (1 / np.arange(1, WORDS + 1)).cumsum()
    for length in np.exp(rng.normal(np.log(22), 0.5, count)).astype(int).clip(SHORTEST, LONGEST).tolist():
        drawn = np.searchsorted(common, rng.random(length) * common[-1]).tolist()
        for rank in drawn:
            yield from _mention(rng, word(rank)) if rng.random() < MENTIONS else [f"{word(rank)}\tO\n"]
        yield ".\tO\n\n"


def _mention(rng: np.random.Generator, stem: str) -> Iterator[str]:
    """A name of one or two words; its type shows in its ending."""
    type = str(rng.choice(list(ENDINGS)))
    if rng.random() < 0.4:
        yield f"{word(int(rng.integers(50)))}\tB-{type}\n"
        yield f"{stem}{rng.choice(ENDINGS[type])}\tI-{type}\n"
    else:
        yield f"{stem}{rng.choice(ENDINGS[type])}\tB-{type}\n"
