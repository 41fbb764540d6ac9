"""Means over replies, one reply at a time: memory does not grow with the number of sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from torch import Tensor

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.contract import Reply, Sent
from grandrounds.federation.payloads import Gradients, Parameters, Payload, Predictions, Tensors
from grandrounds.federation.rows import Rows

Averaged = Parameters | Gradients | Predictions | Tensors
M = TypeVar("M", bound=Sent)


def mean(replies: Iterable[Reply[M]]) -> M:
    """The weighted mean of the replies' values: with one reply it is that reply, bit for bit. Of replies with several
    payloads, the mean of each."""
    running: list[_Running] = []
    several, total = False, 0.0
    for reply in replies:
        several = isinstance(reply.payload, tuple)
        parts = cast("tuple[Averaged, ...]", reply.payload if several else (reply.payload,))
        running = running or [_Running() for _ in parts]
        total += reply.weight
        for one, part in zip(running, parts, strict=True):
            if not isinstance(part, Averaged):
                raise TypeError(f"mean can't average a payload of kind '{part.kind}'; read reply.payload yourself")
            one.add(part, reply.weight, total)
    if not running:
        raise GrandRoundsError("a mean needs at least one reply")
    means: tuple[Payload, ...] = tuple(one.payload() for one in running)
    return cast("M", means if several else means[0])


class _Running:
    """m <- m + w/W (x - m). Of rows that a reply does not have it has zeros."""

    def __init__(self) -> None:
        self._last: Averaged | None = None
        self._values: dict[str, Tensor] = {}
        self._rows: dict[str, Rows] = {}

    def add(self, payload: Averaged, weight: float, total: float) -> None:
        values: Mapping[str, Tensor] = (
            {"values": payload.values} if isinstance(payload, Predictions) else payload.values
        )
        rows: Mapping[str, Rows] = payload.rows if isinstance(payload, Gradients) else {}
        if self._last is None:
            self._values, self._rows = {name: value.clone() for name, value in values.items()}, dict(rows)
        elif weight:
            self._rows = {name: some.lerp(rows[name], weight / total) for name, some in self._rows.items()}
            for name, value in values.items():
                if value.is_floating_point():
                    self._values[name].lerp_(value, weight / total)
        self._last = payload

    def payload(self) -> Averaged:
        last: Any = self._last
        if isinstance(last, Predictions):
            return replace(last, values=self._values["values"])
        changes = {"rows": self._rows} if isinstance(last, Gradients) else {}
        return cast("Averaged", replace(last, values=self._values, **changes))
