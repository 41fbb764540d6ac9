"""A payload as one row of numbers, in an order that site and coordinator know without a word: names sorted.

Rows of embeddings become whole tables, since which rows there are tells a batch's words. Counters are not averaged and
stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds.federation.payloads import Expected, Gradients, Parameters, Payload, PayloadError, Predictions, Tensors
from grandrounds.federation.quantize import Form

VALUES = "values"


def shapes_of(kind: type[Payload], expected: Expected) -> dict[str, tuple[int, ...]]:
    """What is averaged of a payload of this kind, in order."""
    if kind is Predictions:
        return {VALUES: (expected.public[0], expected.classes)}
    names: Collection[str]
    if kind is Tensors:
        names, shapes = expected.tensors.keys(), expected.tensors
    else:
        names = expected.trained if kind is Gradients else expected.manifest.keys() - expected.integers
        shapes = expected.manifest
    return {name: shapes[name] for name in sorted(names)}


def length_of(kind: type[Payload], expected: Expected) -> int:
    return sum(prod(shape) for shape in shapes_of(kind, expected).values())


def to_row(payload: Payload, expected: Expected) -> NDArray[np.float32]:
    """PayloadError where it has not got the declared shapes."""
    found = _tensors(payload, expected)
    row = np.empty(length_of(type(payload), expected), dtype=np.float32)
    place = 0
    for name, shape in shapes_of(type(payload), expected).items():
        if name not in found or tuple(found[name].shape) != shape:
            raise PayloadError(f"{name!r} has not got the declared shape {shape}")
        numbers = found[name].detach().to("cpu", torch.float32).reshape(-1).numpy()
        row[place : place + len(numbers)] = numbers
        place += len(numbers)
    if not np.isfinite(row.sum(dtype=np.float64)):
        raise PayloadError("values that are not finite can't be masked")
    return row


def from_row(kind: type[Payload], row: NDArray[np.float32], expected: Expected, form: str) -> Payload:
    values, place = dict[str, Tensor](), 0
    for name, shape in shapes_of(kind, expected).items():
        values[name] = torch.from_numpy(row[place : place + prod(shape)].reshape(shape))
        place += prod(shape)
    if kind is Predictions:
        return Predictions(values[VALUES], cast("Form", form), expected.public[1])
    return cast("type[Parameters]", kind)(values)


def _tensors(payload: Payload, expected: Expected) -> Mapping[str, Tensor]:
    match payload:
        case Predictions():
            return {VALUES: payload.values}
        case Gradients():
            whole = {
                name: rows.whole(rows.values.new_empty(expected.manifest[name]))
                for name, rows in payload.rows.items()
                if name in expected.trained
            }
            return {**payload.values, **whole}
        case Parameters() | Tensors():
            return payload.values
    raise PayloadError(f"a payload of kind '{payload.kind}' is not averaged, so it can't be masked")
