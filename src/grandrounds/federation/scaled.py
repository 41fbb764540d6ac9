"""Numbers in a byte each: whole multiples of a scale, which each row has for itself, rounded up or down at random, so
that they are right on average.

s = max |x| / 127        q = floor(x / s + u), u uniform on [0, 1)        x ~ s q
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

MOST = 127
SCALES = " scales"
"""The name under which the scales of all tensors travel, in the order of the names."""


def scales_of(values: Tensor) -> Tensor:
    """[rows]"""
    return _by_row(values).abs().amax(dim=1) / MOST


def rounded(values: Tensor, scales: Tensor, rng: np.random.Generator) -> Tensor:
    """int8; the random bits are the same on every machine."""
    drawn = np.frombuffer(rng.bytes(2 * values.numel()), dtype="<u2").astype(np.float32)
    up = torch.from_numpy(drawn).add_(0.5).div_(1 << 16).reshape(values.shape)
    steps = torch.where(scales >= torch.finfo(scales.dtype).tiny, 1 / scales, 0)
    times = _by_row(values) * steps[:, None]
    return times.reshape(values.shape).add_(up).floor_().clamp_(-MOST, MOST).to(torch.int8)


def grown(coded: Tensor, scales: Tensor) -> Tensor:
    return (_by_row(coded).float() * scales[:, None]).reshape(coded.shape)


def all_grown(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a payload, of which those in bytes come with scales; ValueError says what is wrong with them."""
    found = dict(tensors)
    scales, coded = found.pop(SCALES), sorted(name for name in found if found[name].dtype == torch.int8)
    lengths = [len(_by_row(found[name])) for name in coded]
    if scales.dtype != torch.float32 or tuple(scales.shape) != (sum(lengths),):
        raise ValueError("the scales of numbers in bytes are one for each row")
    if not bool(((scales >= 0) & (scales * MOST).isfinite()).all()):
        raise ValueError("a scale is negative or not finite, or larger than any number")
    for name, some in zip(coded, scales.split(lengths), strict=True):
        found[name] = grown(found[name], some)
    return found


def _by_row(values: Tensor) -> Tensor:
    return values.flatten(1) if values.ndim > 1 else values.reshape(1, -1)
