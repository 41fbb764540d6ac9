"""What attention heads look at, and how alike the heads of two models are.

After Clark et al. (2019), sections 3 and 6, and Liu and Miller (2020), section 4.3. A head's entropy, in nats, tells
whether it looks at few tokens or at many; the Jensen-Shannon divergence of two heads, not its square root, how
differently they look from the same token. Both are averaged over the tokens of a document, then over documents, which
come one at a time and are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
KEPT = 0.9999
"""Of a head's attention, in its entropy; the rest is spread evenly, as Clark et al. do."""
BLOCK = 2**18
"""Numbers worked on at once: what a processor holds near."""


@dataclass(frozen=True)
class Heads:
    """A model's heads over a corpus; of all its heads the first layer's come first."""

    entropy: Array
    """[layers, heads]"""
    divergence: Array
    """[all heads, all heads]: a token's, on average."""
    divergence_sum: Array
    """The same summed over every token of every document, as the paper prints it: it grows with the corpus."""
    documents: int
    tokens: int

    @property
    def entropy_by_layer(self) -> Array:
        mean: Array = self.entropy.mean(axis=1)
        return mean


class HeadSums:
    """Takes in one document after another; what it holds does not grow with their number."""

    def __init__(self) -> None:
        self.documents = self.tokens = 0
        self._entropy = self._divergence = self._divergence_sum = np.zeros(())

    def add(self, attention: Tensor) -> None:
        """A document's, [layers, heads, tokens, tokens]: each row is where a token looks, and sums to one. One without
        tokens is passed over."""
        layers, heads, tokens, _ = attention.shape
        if not tokens:
            return
        between = divergences(attention.reshape(layers * heads, tokens, tokens))
        self._entropy = self._entropy + entropies(attention)
        self._divergence = self._divergence + between
        self._divergence_sum = self._divergence_sum + between * tokens
        self.documents += 1
        self.tokens += tokens

    def result(self) -> Heads:
        seen = max(self.documents, 1)
        return Heads(self._entropy / seen, self._divergence / seen, self._divergence_sum, self.documents, self.tokens)


def entropies(attention: Tensor) -> Array:
    """Of each head, the mean over its tokens: [..., tokens, tokens] -> [...]."""
    smooth = KEPT * attention + (1 - KEPT) / attention.shape[-1]
    values: Array = -(smooth * smooth.log()).sum(dim=-1).mean(dim=-1).double().numpy()
    return values


def divergences(attention: Tensor) -> Array:
    """Between every two heads, the mean over tokens: [heads, tokens, tokens] -> [heads, heads].

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2; some tokens at a time, since each pair of heads has a mixture."""
    heads, tokens, width = attention.shape
    total = torch.zeros(heads, heads, dtype=torch.float64)
    rows = max(1, BLOCK // (heads * width))
    for part in torch.split(attention, rows, dim=1):
        own = _entropy_sum(part.clone())
        for i in range(heads - 1):
            mixed = _entropy_sum((part[i] + part[i + 1 :]).mul_(0.5))
            total[i, i + 1 :] += mixed - (own[i] + own[i + 1 :]) / 2
    mean: Array = (total + total.T).div_(tokens).clamp_(min=0).numpy()  # rounding may leave a hair below nothing
    return mean


def _entropy_sum(p: Tensor) -> Tensor:
    """Of each head, summed over its tokens; 0 log 0 is 0."""
    return -p.clamp_min(torch.finfo(p.dtype).tiny).log_().mul_(p).sum(dim=2).double().sum(dim=1)


def distance(first: Array, second: Array) -> float:
    """Of two models, by their heads' divergences: the mean absolute difference, element by element."""
    return float(np.abs(first - second).mean())


def spearman(first: Array, second: Array) -> float:
    """The correlation of ranks, where equal values share the mean of theirs; nan for values that are all equal."""
    ranks = [_ranks(values.ravel()) for values in (first, second)]
    a, b = (rank - rank.mean() for rank in ranks)
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else float("nan")


def _ranks(values: Array) -> Array:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    mean: Array = (last - (count - 1) / 2)[place]
    return mean


def in_the_plane(distances: Array, steps: int = 1000, least: float = 1e-9) -> Array:
    """Points whose distances are near those given, [points, 2], by multidimensional scaling: SMACOF (de Leeuw, 1977)
    from Torgerson's classical solution, so that the same distances give the same picture."""
    points = _classical(distances)
    stress = np.inf
    for _ in range(steps):
        shown = _between(points)
        before, stress = stress, float(((shown - distances) ** 2).sum())
        if before - stress <= least * before < np.inf:
            break
        ratio = np.divide(distances, shown, out=np.zeros_like(shown), where=shown > 0)
        # Guttman's transform.
        points = (ratio.sum(axis=1, keepdims=True) * points - ratio @ points) / len(points)
    return points


def _classical(distances: Array) -> Array:
    centre = np.eye(len(distances)) - 1 / len(distances)
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
    axes = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0))
    largest = np.abs(axes).argmax(axis=0)
    points: Array = axes * np.where(axes[largest, range(axes.shape[1])] < 0, -1, 1)  # an axis may point either way
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def _between(points: Array) -> Array:
    apart: Array = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=-1))
    return apart


def turned_onto(points: Array, others: Array) -> Array:
    """The same picture, turned or mirrored to lie as near as it can on another one of as many points (Procrustes)."""
    points, others = points - points.mean(axis=0), others - others.mean(axis=0)
    left, _, right = np.linalg.svd(points.T @ others)
    turned: Array = points @ left @ right
    return turned
