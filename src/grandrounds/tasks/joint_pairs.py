"""Which pairs of spans the network is asked about: when it learns, and when it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.models.joint import JointModel
from grandrounds.models.spans import spans_inside
from grandrounds.tasks.joint_decoding import FLOOR, Constraints, Numbers, Words, candidates, decode, to_rows
from grandrounds.tasks.joint_features import JointRows
from grandrounds.tasks.ner_coding import Overlaps


def pairs_to_learn(scores: Tensor, batch: JointRows, constraints: Constraints) -> tuple[Tensor, Tensor]:
    """[pairs, 5] and [pairs]: pairs as PairClassifier reads them, and how they are related. They are of the mentions
    and, where all of these are annotated, of other spans that the model takes for mentions: so it learns not to relate
    what is none."""
    likely, mentions, facts = _probabilities(scores, batch.lengths), _array(batch.mentions), _array(batch.facts)
    pairs, labels = [np.zeros((0, 5), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    kinds = np.eye(likely.shape[3], dtype=bool)
    for row in torch.nonzero(batch.relations).flatten().tolist():
        own = mentions[mentions[:, 0] == row]
        words, types = own[:, 1:3], own[:, 3]
        if batch.entities[row]:
            found = candidates(likely[row], int(batch.lengths[row]))
            others = found[~(found[:, None] == words).all(axis=2).any(axis=1)]
            words = np.concatenate([words, others])
            types = np.concatenate([types, _of(likely[row], others)[:, 1:].argmax(axis=1) + 1])
        asked = constraints.pairs(words, kinds[types])
        related = np.zeros((len(words), len(words)), dtype=np.int64)
        _, head, tail, relation = facts[facts[:, 0] == row].T
        related[head, tail] = relation
        pairs.append(_placed(row, words, asked))
        labels.append(related[asked[:, 0], asked[:, 1]])
    learnt = torch.from_numpy(np.concatenate(pairs)), torch.from_numpy(np.concatenate(labels))
    return learnt[0].to(scores.device), learnt[1].to(scores.device)


def answers(model: JointModel, batch: JointRows, constraints: Constraints, overlaps: Overlaps) -> Tensor:
    """[words, 12]: what is found in each window, as joint_decoding.py writes it."""
    states = model.states(batch)
    every, lengths = _probabilities(model.spans(states), batch.lengths), batch.lengths.tolist()
    words = [candidates(some, length) for some, length in zip(every, lengths, strict=True)]
    likely = [_of(some, spans) for some, spans in zip(every, words, strict=True)]
    asked = [constraints.pairs(spans, some >= FLOOR) for spans, some in zip(words, likely, strict=True)]
    pairs = np.concatenate([_placed(row, *both) for row, both in enumerate(zip(words, asked, strict=True))])
    h = model.relations.represent(states, torch.from_numpy(pairs).to(states.device))
    scored = _array(model.relations(h).double().softmax(dim=1))
    rows = []
    for row, part in enumerate(np.split(scored, np.cumsum([len(some) for some in asked])[:-1])):
        related = np.zeros((len(words[row]), len(words[row]), scored.shape[1]))
        related[asked[row][:, 0], asked[row][:, 1]] = part
        decoded = decode(words[row], likely[row], related, constraints, overlaps)
        rows.append(to_rows(words[row], likely[row], related, decoded, lengths[row]))
    return torch.from_numpy(np.concatenate(rows)).to(states.device)


def _probabilities(scores: Tensor, lengths: Tensor) -> Numbers:
    """[windows, words, lengths, types], 0 where there is no span."""
    outside = ~spans_inside(lengths, scores)[..., None]
    return _array(scores.detach().double().softmax(dim=-1).masked_fill(outside, 0))


def _array(values: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = values.detach().cpu().numpy()
    return array


def _of(likely: Numbers, words: Words) -> Numbers:
    """[spans, types]: what a window's spans may be."""
    found: Numbers = likely[words[:, 0], words[:, 1] - words[:, 0] - 1]
    return found


def _placed(row: int, words: Words, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """[pairs, 5]: pairs of a window's spans as PairClassifier reads them."""
    return np.insert(words[pairs].reshape(-1, 4), 0, row, axis=1)
