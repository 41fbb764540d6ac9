"""What an encoder is worth as it is: the average precision on CDR's dev part of a head over its frozen states.

    python experiments/frozen_probe.py --data DIR ENCODER...         (folders or hub names; DIR holds cdr/eog)

The head is the one of `document_re`. With the encoder frozen, the two entities' vectors and the localized context of a
pair never change, so documents are read once and the head trains on these in seconds: every encoder takes about a
minute on one core, whatever the number of `--seeds`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grandrounds.data.formats import read
from grandrounds.models.encoder import Encoder
from grandrounds.models.localized_context import localized_context, log_sum_exp, mean_of
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions, binary_cross_entropy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=500, help="of train, the first so many")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    parts = {part: read(wanted.data / f"cdr/eog/{part}_filter.data", "eog").documents for part in ("train", "dev")}
    task = DocumentRE.of(DocumentREOptions(), parts["train"])
    for name in wanted.encoders:
        encoder = Encoder.find(name, task.markers)
        train, dev = (pairs_of(task, encoder, some) for some in (parts["train"][: wanted.documents], parts["dev"]))
        found = [
            precision_of_head(task, encoder, train, dev, seed, wanted.epochs) for seed in range(1, wanted.seeds + 1)
        ]
        reported = " ".join(f"{value:.4f}" for value in found)
        print(f"{name}: AP {np.mean(found):.4f} +- {np.std(found):.4f} ({reported})", flush=True)


@torch.no_grad()
def pairs_of(task: DocumentRE, encoder: Encoder, documents: Any) -> tuple[Tensor, Tensor]:
    """Of all pairs the vectors of both entities and of their context, [P, 3, width], and the answers."""
    model: Any = task.model(encoder).eval()
    features = task.features(task.examples(documents)[0], encoder)
    vectors, labels = [], []
    for row in range(len(features.rows)):
        batch = features.batch([row])
        states, marker_states, marker_attention = model.encode(batch)
        entity = log_sum_exp(mean_of(marker_states, batch.mentions), batch.entities)
        looks = mean_of(mean_of(marker_attention, batch.mentions), batch.entities)
        document, s, o = batch.pairs.unbind(dim=1)
        context = localized_context(states, looks)[document, s, o]
        vectors.append(torch.stack([entity[document, s], entity[document, o], context], dim=1))
        labels.append(batch.labels)
    return torch.cat(vectors), torch.cat(labels)


def precision_of_head(
    task: DocumentRE,
    encoder: Encoder,
    train: tuple[Tensor, Tensor],
    dev: tuple[Tensor, Tensor],
    seed: int,
    epochs: int,
) -> float:
    torch.manual_seed(seed)
    model: Any = task.model(encoder)
    head = [model.subject, model.object, model.bilinear]
    optimizer = torch.optim.AdamW([p for part in head for p in part.parameters()], lr=1e-3)
    vectors, labels = train
    steps = epochs * -(-len(vectors) // 32)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(vectors)).split(32):
            optimizer.zero_grad()
            binary_cross_entropy(scores(model, vectors[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        ranked = scores(model, dev[0])[:, 0].argsort(descending=True, stable=True)
    right = dev[1][ranked, 0].double()
    precision = right.cumsum(0) / torch.arange(1, len(right) + 1)
    return float((precision * right).sum() / right.sum())


def scores(model: Any, vectors: Tensor) -> Tensor:
    """Eqs. 6 to 10 of FedLCC, from the vectors of pairs."""
    s, o, context = vectors.unbind(dim=1)
    z_s = torch.tanh(model.subject(torch.cat([s, context], dim=1)))
    z_o = torch.tanh(model.object(torch.cat([o, context], dim=1)))
    logits: Tensor = model.bilinear(z_s, z_o)
    return logits


if __name__ == "__main__":
    main()
