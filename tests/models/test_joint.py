"""The pair head against loops in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grandrounds.models.joint import APART, PairClassifier

WIDTH, CLASSES, HIDDEN = 4, 3, 5


def test_a_pair_is_its_mentions_sums_and_the_mean_between() -> None:
    torch.manual_seed(0)
    head = PairClassifier(WIDTH, CLASSES, HIDDEN, dropout=0.4).eval()
    with torch.no_grad():
        head.distance.normal_()
    states = torch.randn(2, 90, WIDTH, dtype=torch.float64)
    head = head.double()
    pairs = [
        (0, 0, 1, 2, 4),  # one word between
        (1, 5, 7, 1, 3),  # the tail comes first
        (0, 1, 3, 3, 4),  # neighbours
        (1, 2, 6, 3, 4),  # the tail lies within the head
        (0, 2, 4, 88, 90),  # far apart
        (0, 40, 41, 3, 4),
    ]
    found = head(head.represent(states, torch.tensor(pairs))).detach().numpy()
    weights = {name: value.detach().numpy() for name, value in head.state_dict().items()}
    for (row, a, b, c, d), logits in zip(pairs, found, strict=True):
        x = states[row].numpy()
        gap = range(min(b, d), max(a, c))
        between = x[list(gap)].mean(axis=0) if len(gap) else np.zeros(WIDTH)
        distance = sum(len(gap) >= edge for edge in APART) + (len(APART) + 1 if c < a else 0)
        joined = np.concatenate([x[a:b].sum(axis=0), x[c:d].sum(axis=0), between])
        h = np.maximum(weights["mix.weight"] @ joined + weights["mix.bias"] + weights["distance"][distance], 0)
        assert logits == pytest.approx(weights["output.weight"] @ h + weights["output.bias"])
    assert head.represent(states, torch.zeros(0, 5, dtype=torch.long)).shape == (0, HIDDEN)
