"""What reading raw text costs: the pipeline with a tagger, over its encoder alone on the same batches.

Texts are made up in the size of abstracts, or are PubMed's where GRANDROUNDS_DATA is the folder of the corpora.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median

import torch

from benchmarks.corpus import abstracts
from benchmarks.measuring import Row, Settings, ratio
from grandrounds.data.documents import Document
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.taggers import BertTagger
from grandrounds.pipeline.pipeline import BATCH, Pipeline
from grandrounds.tasks.batching import evaluation_batches
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.saved import Extractor

OVER_ENCODER = 1.15


def measure(settings: Settings) -> Iterator[Row]:
    source, texts = _texts(8 if settings.quick else 200)
    encoder = Encoder.find(str(settings.encoder))
    task = NER(NEROptions(tagger="bert", crf=False, labels=["Chemical", "Disease"]), ["Chemical", "Disease"])
    torch.manual_seed(0)
    tagger = Extractor(task, encoder, task.model(encoder).eval())
    nlp, whole, bare = Pipeline((tagger,)), list[float](), list[float]()
    for turn in range(1 if settings.quick else 3):
        settings.say(f"extraction, turn {turn + 1}")
        start = time.process_time()
        assert sum(1 for _ in nlp.pipe(texts)) == len(texts)
        whole.append(time.process_time() - start)
        bare.append(_bare(tagger, texts))
    note = (
        f"{source}, {len(texts)} texts, {len(texts) / median(whole):.1f} a CPU second; mentions, assertions, entities"
    )
    yield ratio("reading text over its encoder alone", whole, bare, OVER_ENCODER, note=note)


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
