"""Predictions in a byte for each class but the first, and less where they can be deflated."""

from __future__ import annotations

import zlib
from typing import Literal

import torch
from torch import Tensor

Form = Literal["probabilities", "log_probabilities"]


LEAST, MOST = -16.0, 15.875
"""Of a log-ratio to the first class, in a byte with steps of 1/8."""


def bounded(values: Tensor) -> Tensor:
    """Log-probabilities that 8 bits can say, whatever they came in: else one site that sends -1e6 would outweigh any
    number of others in a mean. Rows within the bounds keep their bits."""
    ratio = values[:, 1:] - values[:, :1]
    beyond = ((ratio < LEAST) | (ratio > MOST)).any(dim=1, keepdim=True)
    return torch.where(beyond, _of_ratios(ratio.clamp(LEAST, MOST)), values) if bool(beyond.any()) else values


def packed(values: Tensor, form: Form) -> Tensor:
    """Most predictions are near nothing or all."""
    return deflated(_bytes_of(values, form))


def deflated(coded: Tensor) -> Tensor:
    """To one dimension, where that is shorter."""
    short = zlib.compress(coded.numpy().tobytes(), 9)
    return torch.frombuffer(bytearray(short), dtype=torch.uint8) if len(short) < coded.numel() else coded


def inflated(coded: Tensor, shape: tuple[int, int]) -> Tensor:
    """ValueError says what is wrong with it."""
    if coded.ndim != 1:
        return coded
    try:
        whole = zlib.decompressobj().decompress(coded.numpy().tobytes(), shape[0] * shape[1] + 1)  # and never a flood
    except zlib.error as error:
        raise ValueError("can't be inflated: they are cut short or not ours") from error
    if len(whole) != shape[0] * shape[1]:
        raise ValueError(f"inflate to another size than {shape[0]} x {shape[1]}")
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8).reshape(shape)


def _bytes_of(values: Tensor, form: Form) -> Tensor:
    """Probabilities, of which the first is what is missing to one, or log-ratios to the first class, in steps of 1/8 up
    to 16: a small probability is what a softened teacher has to say."""
    if form == "probabilities":
        return (values[:, 1:] * 255).round().to(torch.uint8)
    ratio = (values[:, 1:] - values[:, :1]).clamp(LEAST, MOST)
    return ((ratio - LEAST) * 8).round().to(torch.uint8)


def _of_ratios(ratio: Tensor) -> Tensor:
    return torch.cat([torch.zeros(len(ratio), 1), ratio], dim=1).log_softmax(dim=1)


def values_of(coded: Tensor, form: Form) -> Tensor:
    """[rows, classes] on the simplex."""
    if form == "log_probabilities":
        return _of_ratios(coded.float() / 8 + LEAST)
    rest = coded.float() / 255
    whole = torch.cat([(1 - rest.sum(dim=1, keepdim=True)).clamp(min=0), rest], dim=1)
    return whole / whole.sum(dim=1, keepdim=True)  # rounding may have left more than one
