"""Means over replies, one reply at a time: memory does not grow with the number of sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.contract import Reply
from grandrounds.federation.payloads import Gradients, Parameters, Predictions
from grandrounds.federation.rows import Rows

M = TypeVar("M", Parameters, Gradients, Predictions)


def mean(replies: Iterable[Reply[M]]) -> M:
    """The weighted mean of the replies' values, m <- m + w/W (x - m): with one reply it is that reply, bit for bit. Of
    rows that a reply does not have it has zeros."""
    total, running, rows, last = 0.0, dict[str, Tensor](), dict[str, Rows](), None
    for reply in replies:
        last, total = reply.payload, total + reply.weight
        values = _tensors(reply.payload)
        others: Mapping[str, Rows] = reply.payload.rows if isinstance(reply.payload, Gradients) else {}
        if not running and not rows:
            running = {name: value.clone() for name, value in values.items()}
            rows = dict(others)
        elif reply.weight:
            rows = {name: some.lerp(others[name], reply.weight / total) for name, some in rows.items()}
            for name, value in values.items():
                if value.is_floating_point():
                    running[name].lerp_(value, reply.weight / total)
    if last is None:
        raise GrandRoundsError("a mean needs at least one reply")
    if isinstance(last, Gradients):
        return replace(last, values=running, rows=rows)
    return replace(last, values=running if isinstance(last, Parameters) else running["values"])


def _tensors(payload: Parameters | Gradients | Predictions) -> dict[str, Tensor]:
    return dict(payload.values) if isinstance(payload, Parameters | Gradients) else {"values": payload.values}
