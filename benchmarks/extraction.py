"""What reading raw text costs: the pipeline with a tagger, over its encoder alone on the same batches, and beside flair
and spaCy.

Texts are made up in the size of abstracts, or are PubMed's where GRANDROUNDS_DATA is the folder of the corpora. Weights
are random, with a bias that makes every twentieth word a mention, about as in annotated abstracts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from benchmarks.corpus import abstracts
from benchmarks.extraction_peers import LABELS, PEERS
from benchmarks.measuring import Row, Settings, ratio
from benchmarks.ner_peers import Peer
from grandrounds.data.documents import Document
from grandrounds.models.crf import words_inside
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.taggers import BertTagger
from grandrounds.pipeline.pipeline import BATCH, Pipeline
from grandrounds.tasks.batching import evaluation_batches
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.saved import Extractor

OVER_ENCODER = 1.15
TURN = 100
"""Texts that each reads in turn."""
PEERS_READ = 100
"""Of the texts, that flair and spaCy read."""
MINUTES = 60
"""On a busy machine it stops then, and says how many texts were read."""
MENTIONED = 0.05
"""The share of words that are mentions."""


def measure(settings: Settings) -> Iterator[Row]:
    """Each reads the same hundred texts in turn, until all are read."""
    source, texts = abstract_texts(16 if settings.quick else 1000)
    tagger = random_tagger(Encoder.find(str(settings.encoder)), texts[:16])
    held = settings.folder / "texts.json"
    held.write_text(json.dumps({"texts": texts, "encoder": str(settings.encoder)}))
    started = {name: Peer(name, held, "benchmarks.extraction_peers") for name in PEERS}
    peers = {name: peer for name, peer in started.items() if not peer.missing}
    nlp, whole, bare = Pipeline((tagger,)), list[float](), list[float]()
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    began = time.monotonic()
    for first in range(0, len(texts), TURN):
        if time.monotonic() - began > 60 * MINUTES:
            texts = texts[:first]
            break
        settings.say(f"texts {first} to {first + TURN} of {len(texts)}")
        some = texts[first : first + TURN]
        start = time.process_time()
        assert sum(1 for _ in nlp.pipe(some)) == len(some)
        whole.append(time.process_time() - start)
        bare.append(_bare(tagger, some))
        for name, peer in peers.items() if first < PEERS_READ else ():
            theirs[name].append(peer.asked(f"{first} {first + TURN}"))
        settings.say(f"{whole[-1]:.1f} CPU seconds, the encoder alone {bare[-1]:.1f}")
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
        took, read = sum(theirs[name]), min(PEERS_READ, len(texts))
        yield ratio(
            f"{name} over ours",
            theirs[name],
            whole[: len(theirs[name])],
            None,
            note=f"{peer.about['about']}, {peer.about['parameters'] / 1e6:.1f} million weights, "
            f"{read / took:.1f} texts a CPU second ({read} texts)",
            detail={"cpu_seconds": took, **peer.about},
        )
        peer.end()
    for name, peer in started.items():
        if peer.missing:
            settings.say(f"{name} is not there ({peer.missing}): benchmarks/requirements.txt says how to get it")


def random_tagger(encoder: Encoder, sample: Sequence[str]) -> Extractor:
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


def abstract_texts(count: int) -> tuple[str, list[str]]:
    data = os.environ.get("GRANDROUNDS_DATA")
    if data and (pubmed := Path(data, "text", "pubmed.jsonl")).exists():
        with pubmed.open(encoding="utf-8") as file:
            return "PubMed", [json.loads(line)["text"] for line in islice(file, count)]
    return "made up", [document.text for document in abstracts(count, "extraction")]
