"""Distantly supervised relation extraction as one writes it down from the paper (Zeng et al., 2015; FedDS, 2020,
section 3.2), the rival of models/pcnn.py: every sentence filled up to 128 words, its positions and pieces made anew
each time it is read, a loop over the bags of a batch, and a test that goes bag by bag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

LENGTH, FARTHEST = 128, 100


@dataclass(frozen=True)
class PlainSentence:
    words: list[int]
    head: int
    tail: int
    """Where their first words stand."""


@dataclass(frozen=True)
class PlainBag:
    sentences: list[PlainSentence]
    relations: list[int]
    """Of a training bag, one; of a test bag, all of its pair."""


Rows = tuple[Tensor, Tensor, Tensor, Tensor]
"""Words, distances from head and from tail, and pieces (0 where there is no word): each [sentences, 128]."""
Batch = tuple[Rows, list[tuple[int, int]], list[list[int]]]
"""Sentences, from where to where each bag's go, and the relations of each bag."""


class PlainBags(Dataset[tuple[Rows, list[int]]]):
    def __init__(self, bags: Sequence[PlainBag]) -> None:
        self.bags = bags

    def __len__(self) -> int:
        return len(self.bags)

    def __getitem__(self, i: int) -> tuple[Rows, list[int]]:
        read = [self._sentence(sentence) for sentence in self.bags[i].sentences]
        words, heads, tails, pieces = (torch.stack(column) for column in zip(*read, strict=True))
        return (words, heads, tails, pieces), self.bags[i].relations

    @staticmethod
    def _sentence(sentence: PlainSentence) -> Rows:
        first, second = sorted((sentence.head, sentence.tail))
        words, heads, tails, pieces = [], [], [], []
        for place in range(LENGTH):
            heads.append(min(max(place - sentence.head, -FARTHEST), FARTHEST) + FARTHEST)
            tails.append(min(max(place - sentence.tail, -FARTHEST), FARTHEST) + FARTHEST)
            if place < len(sentence.words):
                words.append(sentence.words[place])
                pieces.append(1 if place <= first else 2 if place <= second else 3)
            else:
                words.append(0)
                pieces.append(0)
        return torch.tensor(words), torch.tensor(heads), torch.tensor(tails), torch.tensor(pieces)


def together(bags: Sequence[tuple[Rows, list[int]]]) -> Batch:
    words, heads, tails, pieces = (torch.cat(column) for column in zip(*(rows for rows, _ in bags), strict=True))
    scope, start = [], 0
    for rows, _ in bags:
        scope.append((start, start + len(rows[0])))
        start += len(rows[0])
    return (words, heads, tails, pieces), scope, [relations for _, relations in bags]


def bag_loader(bags: Sequence[PlainBag], batch_size: int, shuffle: bool) -> DataLoader[tuple[Rows, list[int]]]:
    return DataLoader(PlainBags(bags), batch_size, shuffle, collate_fn=together)


class PlainEncoder(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(words, width, padding_idx=0)


class PlainPCNN(nn.Module):
    """Parameters are named as in PCNN, so that both can have the same."""

    def __init__(self, words: int, width: int, relations: int, dropout: float, filters: int = 230) -> None:
        super().__init__()
        self.encoder = PlainEncoder(words, width)
        self.position = nn.ModuleList([nn.Embedding(2 * FARTHEST + 1, 5), nn.Embedding(2 * FARTHEST + 1, 5)])
        self.convolution = nn.Conv1d(width + 10, filters, 3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(3 * filters, relations)

    def forward(self, rows: Rows) -> Tensor:
        """[sentences, relations]"""
        words, heads, tails, pieces = rows
        x = torch.cat([self.encoder.embeddings(words), self.position[0](heads), self.position[1](tails)], dim=2)
        x = x * (pieces > 0)[:, :, None]
        convolved = self.convolution(x.transpose(1, 2))
        pooled = []
        for piece in (1, 2, 3):
            inside = (pieces == piece)[:, None, :]
            best = convolved.masked_fill(~inside, -torch.inf).max(dim=2).values
            pooled.append(torch.where(inside.any(dim=2), best, 0.0))
        logits: Tensor = self.head(self.dropout(torch.tanh(torch.cat(pooled, dim=1))))
        return logits

    def loss(self, batch: Batch) -> Tensor:
        """ONE: of each bag the sentence that is surest of its relation."""
        rows, scope, relations = batch
        logits = self(rows)
        chosen = []
        for (start, end), (relation,) in zip(scope, relations, strict=True):
            most_confident = logits[start:end].softmax(dim=1)[:, relation].argmax()
            chosen.append(logits[start + most_confident])
        return F.cross_entropy(torch.stack(chosen), torch.tensor(relations)[:, 0])


def train_epoch(
    model: PlainPCNN, loader: DataLoader[tuple[Rows, list[int]]], optimizer: torch.optim.Optimizer, clip_norm: float
) -> None:
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        model.loss(batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()


def evaluate(
    model: PlainPCNN,
    loader: DataLoader[tuple[Rows, list[int]]],
    reported: Callable[[list[float]], object] = lambda scores: None,
) -> float:
    """The area under the curve of all answers, surest first, of bags one at a time; each one's scores are told."""
    answers: list[tuple[float, bool]] = []
    facts = 0
    model.eval()
    with torch.no_grad():
        for rows, _, (relations,) in loader:
            scores = model(rows).softmax(dim=1).max(dim=0).values.tolist()
            reported(scores)
            for relation in range(1, len(scores)):
                answers.append((scores[relation], relation in relations))
            facts += len({relation for relation in relations if relation})
    answers.sort(key=lambda answer: answer[0], reverse=True)
    right, precision, recall = 0, [], []
    for number, (_, correct) in enumerate(answers, start=1):
        right += correct
        precision.append(right / number)
        recall.append(right / facts)
    return float(np.trapezoid(precision, recall))
