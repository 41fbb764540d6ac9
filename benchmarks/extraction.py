"""What reading raw text costs: the pipeline with a tagger, over its encoder alone on the same batches, and beside flair
and spaCy; and the memory that many documents, or one of 100,000 words, take.

Texts are made up in the size of abstracts, or are PubMed's where GRANDROUNDS_DATA is the folder of the corpora. Weights
are random, with a bias that makes every twentieth word a mention, about as in annotated abstracts.

    python -m benchmarks.extraction many ENCODER COUNT      the peak memory of a process of its own
    python -m benchmarks.extraction long ENCODER WORDS
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.corpus import abstracts
from benchmarks.extraction_peers import LABELS, PEERS
from benchmarks.measuring import Row, Settings, ratio
from benchmarks.memory import peak_mb
from benchmarks.ner_peers import Peer
from grandrounds.data.documents import Document
from grandrounds.models.crf import words_inside
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.taggers import BertTagger
from grandrounds.pipeline.pipeline import BATCH, Pipeline
from grandrounds.pipeline.windows import TOO_FAR
from grandrounds.tasks.batching import evaluation_batches
from grandrounds.tasks.document_features import MARKER
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.saved import Extractor

OVER_ENCODER, FLAT, MEGABYTES = 1.15, 1.1, 2048.0
TURN = 100
"""Texts that each reads in turn."""
MENTIONED = 0.05
"""The share of words that are mentions."""


def measure(settings: Settings) -> Iterator[Row]:
    yield from _speed(settings)
    few, many = (100, 200) if settings.quick else (100, 10_000)
    peaks = {}
    for count in (few, many):
        settings.say(f"memory of {count} documents")
        peaks[count] = _child("many", "tiny", count)
    yield Row(
        f"peak memory, {many:,} documents over {few}, tiny",
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


def _speed(settings: Settings) -> Iterator[Row]:
    """Each reads the same hundred texts in turn, until all are read."""
    source, texts = _texts(16 if settings.quick else 1000)
    tagger = _tagger(Encoder.find(str(settings.encoder)), texts[:16])
    held = settings.folder / "texts.json"
    held.write_text(json.dumps({"texts": texts, "encoder": str(settings.encoder)}))
    started = {name: Peer(name, held, "benchmarks.extraction_peers") for name in PEERS}
    peers = {name: peer for name, peer in started.items() if not peer.missing}
    nlp, whole, bare = Pipeline((tagger,)), list[float](), list[float]()
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    for first in range(0, len(texts), TURN):
        settings.say(f"texts {first} to {first + TURN} of {len(texts)}")
        some = texts[first : first + TURN]
        start = time.process_time()
        assert sum(1 for _ in nlp.pipe(some)) == len(some)
        whole.append(time.process_time() - start)
        bare.append(_bare(tagger, some))
        for name, peer in peers.items():
            theirs[name].append(peer.asked(f"{first} {first + TURN}"))
    per_second = len(texts) / sum(whole)
    yield ratio(
        "reading text over its encoder alone",
        whole,
        bare,
        OVER_ENCODER,
        note=f"{source}, {len(texts)} texts, {per_second:.1f} a CPU second; mentions, assertions, entities",
        detail={"texts": len(texts), "source": source, "cpu_seconds": sum(whole), "encoder_cpu_seconds": sum(bare)},
    )
    for name, peer in peers.items():
        took = sum(theirs[name])
        yield ratio(
            f"{name} over ours",
            theirs[name],
            whole,
            None,
            note=f"{peer.about['about']}, {peer.about['parameters'] / 1e6:.1f} million weights, "
            f"{len(texts) / took:.1f} texts a CPU second",
            detail={"cpu_seconds": took, **peer.about},
        )
        peer.end()
    for name, peer in started.items():
        if peer.missing:
            settings.say(f"{name} is not there ({peer.missing}): benchmarks/requirements.txt says how to get it")


def _tagger(encoder: Encoder, sample: Sequence[str]) -> Extractor:
    task = NER(NEROptions(tagger="bert", crf=False, labels=list(LABELS)), LABELS)
    torch.manual_seed(0)
    made = Extractor(task, encoder, task.model(encoder).eval())
    examples, _ = made.extraction.candidates([Document("text", text) for text in sample])
    features = task.features(examples, encoder)
    batch, outside = features.batch(np.arange(len(examples))), list(task.tags).index("O")
    with torch.no_grad():
        scores = made.model(batch)
        scores = scores[words_inside(batch.lengths, scores.shape[1])]  # type: ignore[attr-defined]
        others = [place for place in range(len(task.tags)) if place != outside]
        margin = scores[:, others].amax(dim=1) - scores[:, outside]
        made.model.get_parameter("output.emit.bias")[outside] += margin.quantile(1 - MENTIONED)
    return made


def _bare(tagger: Extractor, texts: Sequence[str]) -> float:
    """CPU seconds of the encoder on the pipeline's own batches, which are made before."""
    assert isinstance(tagger.model, BertTagger)
    batches, rest = [], iter(texts)
    while chunk := list(islice(rest, BATCH)):
        examples, _ = tagger.extraction.candidates([Document("text", text) for text in chunk])
        features = tagger.task.features(examples, tagger.encoder)
        batches += [features.batch(rows) for rows in evaluation_batches(features.lengths)]
    start = time.process_time()
    with torch.inference_mode():
        for batch in batches:
            last_hidden(tagger.model.encoder, batch.input_ids, batch.attention_mask)  # type: ignore[attr-defined]
    return time.process_time() - start


def _texts(count: int) -> tuple[str, list[str]]:
    data = os.environ.get("GRANDROUNDS_DATA")
    if data and (pubmed := Path(data, "text", "pubmed.jsonl")).exists():
        with pubmed.open(encoding="utf-8") as file:
            return "PubMed", [json.loads(line)["text"] for line in islice(file, count)]
    return "made up", [document.text for document in abstracts(count, "extraction")]


def _child(what: str, encoder: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.extraction", what, encoder, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _many(encoder: str, count: int) -> dict[str, Any]:
    _, texts = _texts(100)
    nlp = Pipeline((_tagger(Encoder.find(encoder, public=texts), texts[:16]),))
    mentions = sum(len(document.mentions) for document in nlp.pipe(islice(cycle(texts), count)))
    return {"megabytes": peak_mb(), "mentions": mentions}


def _long(encoder: str, words: int) -> dict[str, Any]:
    _, texts = _texts(words // 100)
    text = " ".join(" ".join(texts).split()[:words])
    assert len(text.split()) == words
    tagger = _tagger(Encoder.find(encoder), texts[:16])
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
