"""What reading raw text takes in memory: many short notes over few, and one document of 100,000 words with its
relations.

Each in a process of its own:

    python -m benchmarks.extraction_memory many ENCODER DOCUMENTS
    python -m benchmarks.extraction_memory long ENCODER WORDS
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import torch

from benchmarks.extraction import abstract_texts, random_tagger
from benchmarks.extraction_peers import LABELS
from benchmarks.measuring import Row, Settings
from benchmarks.memory import peak_mb
from grandrounds.data.synthetic import synthesize
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.pipeline.windows import TOO_FAR
from grandrounds.tasks.document_features import MARKER
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from grandrounds.tasks.saved import Extractor

FLAT, MEGABYTES = 1.1, 2048.0


def measure(settings: Settings) -> Iterator[Row]:
    few, many = (100, 200) if settings.quick else (100, 10_000)
    peaks = {}
    for count in (few, many):
        settings.say(f"memory of {count} documents")
        peaks[count] = _child("many", "tiny", count)
    yield Row(
        f"peak memory, {many:,} notes over {few}, tiny",
        peaks[many]["megabytes"] / peaks[few]["megabytes"],
        FLAT,
        note=f"{peaks[many]['megabytes']:.0f} MB over {peaks[few]['megabytes']:.0f} MB",
        detail={str(count): peak for count, peak in peaks.items()},
    )
    words = 2_000 if settings.quick else 100_000
    settings.say(f"a document of {words} words")
    found = _child("long", settings.encoder, words)
    yield Row(
        f"peak memory, a document of {words:,} words",
        found["megabytes"],
        MEGABYTES,
        unit="MB",
        note=f"{found['mentions']} mentions up to {found['last']:.1%} of the text, {found['relations']} relations in "
        f"windows of 40 sentences, {found['outside']} pairs outside, {found['cpu']:.0f} CPU seconds",
        detail=found,
    )


def _child(what: str, encoder: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.extraction_memory", what, encoder, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _many(encoder: str, count: int) -> dict[str, Any]:
    """Of synthetic hospitals: short, so that thousands are read in a minute."""
    texts = [document.text for document in synthesize(hospitals=1, notes=100).train]
    nlp = Pipeline((random_tagger(Encoder.find(encoder, public=texts), texts[:16]),))
    mentions = sum(len(document.mentions) for document in nlp.pipe(islice(cycle(texts), count)))
    return {"megabytes": peak_mb(), "mentions": mentions}


def _long(encoder: str, words: int) -> dict[str, Any]:
    _, texts = abstract_texts(words // 100)
    text = " ".join(" ".join(texts).split()[:words])
    assert len(text.split()) == words
    tagger = random_tagger(Encoder.find(encoder), texts[:16])
    task = DocumentRE(DocumentREOptions(), ["causes"], [(LABELS[0], LABELS[1])])
    reader = Encoder.find(encoder, (MARKER,))
    nlp = Pipeline((tagger,), (Extractor(task, reader, task.model(reader).eval()),))
    start = time.process_time()
    found = nlp(text)
    assert found.text == text
    return {
        "megabytes": peak_mb(),
        "cpu": time.process_time() - start,
        "sentences": len(found.sentences),
        "mentions": len(found.mentions),
        "last": max(mention.end for mention in found.mentions) / len(text),
        "relations": len(found.relations),
        "outside": nlp.warnings[TOO_FAR],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"many": _many, "long": _long}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
