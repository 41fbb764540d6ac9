"""What a training step of each tagger on a transformer costs, in CPU seconds a sentence, the two in turn:

    python -m experiments.tagger_seconds --data DIR --encoder MINILM > tagger-seconds.json

Sentences and labels are those of maccrobat.toml and bc5cdr-spans.toml, batches and encoder too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from grandrounds.models.encoder import Encoder
from grandrounds.runs.provenance import provenance
from grandrounds.tasks.ner import NER, NEROptions

TAGGERS = ("bert", "spans")
CORPORA = {"MACCROBAT": ("brat", "maccrobat"), "BC5CDR": ("conll", "bc5cdr-ner/train.tsv")}
BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True, help="a folder with all-MiniLM-L6-v2")
    parser.add_argument("--batches", type=int, default=20, help="of each tagger and corpus")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    encoder = Encoder.find(wanted.encoder).first_layers(2)
    rows = []
    for name, (format, path) in CORPORA.items():
        documents = list(islice(read(wanted.data / path, format), 200))
        running = {tagger: steps(tagger, documents, encoder) for tagger in TAGGERS}
        spent: dict[str, list[float]] = {tagger: [] for tagger in TAGGERS}
        for _ in range(wanted.batches):
            for tagger, seconds in spent.items():
                seconds.append(next(running[tagger]))
        rows += [
            {"corpus": name, "tagger": tagger, "milliseconds": 1e3 * median(seconds[2:]) / BATCH}
            for tagger, seconds in spent.items()
        ]
    print(json.dumps({**provenance(), "rows": rows}, indent=1))


def steps(tagger: Any, documents: list[Document], encoder: Encoder) -> Iterator[float]:
    """Train, and give the CPU seconds of each step."""
    task = NER.of(NEROptions(tagger=tagger), documents)
    examples, _ = task.examples(documents)
    features, model = task.features(examples, encoder), task.model(encoder).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("embeddings" not in name)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, draw = torch.optim.AdamW(trained, lr=5e-4), np.random.default_rng(1)
    while True:
        rows = draw.choice(len(examples), BATCH, replace=False)
        began = time.process_time()
        optimizer.zero_grad()
        task.loss(model, features.batch(rows)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        yield time.process_time() - began


if __name__ == "__main__":
    main()
