"""One value of many replies: their weighted mean, one reply at a time, so that memory does not grow with the number of
sites; or what the federation's rule makes of them (federation.aggregate).

An algorithm calls `mean`. The rule comes with the replies, so no algorithm knows of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.collected import Collected
from grandrounds.federation.contract import Reply, Sent
from grandrounds.federation.payloads import Gradients, Parameters, Payload, Predictions, Tensors
from grandrounds.federation.robust import (
    Rule,
    byzantine,
    krum_chosen,
    norm_of,
    shrink,
    squared_distances,
    trimmed_mean,
)
from grandrounds.federation.rows import Rows

Averaged = Parameters | Gradients | Predictions | Tensors
M = TypeVar("M", bound=Sent)


def mean(replies: Iterable[Reply[M]]) -> M:
    """The weighted mean of the replies' values: with one reply it is that reply, bit for bit. Of replies with several
    payloads, the mean of each. With federation.aggregate, what that rule makes of them instead."""
    running: list[_Running] = []
    several, total, most = False, 0.0, 0.0
    for reply in replies:
        several = isinstance(reply.payload, tuple)
        parts = cast("tuple[Averaged, ...]", reply.payload if several else (reply.payload,))
        running = running or [_start(reply.aggregation.rule) for _ in parts]
        total += reply.weight
        most = max(most, reply.weight)
        for one, part in zip(running, parts, strict=True):
            if not isinstance(part, Averaged):
                raise TypeError(f"mean can't average a payload of kind '{part.kind}'; read reply.payload yourself")
            one.add(part, reply, total)
    if not running:
        raise GrandRoundsError("a mean needs at least one reply")
    means: tuple[Payload, ...] = tuple(
        reply.aggregation.noised(one.payload(), most / total if total else 1.0) for one in running
    )
    for one in running:
        reply.aggregation.report(one.norms)
    return cast("M", means if several else means[0])


class _Running(Protocol):
    norms: dict[str, float]
    """Of each site's update, where the rule asks for it."""

    def add(self, payload: Averaged, reply: Reply[Any], total: float) -> None: ...
    def payload(self) -> Averaged: ...


def _start(rule: Rule) -> _Running:
    return _Mean() if rule.aggregate == "mean" else _Robust(rule)


class _Mean:
    """m <- m + w/W (x - m). Of rows that a reply does not have it has zeros."""

    def __init__(self) -> None:
        self._last: Averaged | None = None
        self._values: dict[str, Tensor] = {}
        self._rows: dict[str, Rows] = {}
        self.norms: dict[str, float] = {}

    def add(self, payload: Averaged, reply: Reply[Any], total: float) -> None:
        self.put(payload, reply.weight, total)

    def put(self, payload: Averaged, weight: float, total: float) -> None:
        values, rows = _content(payload)
        if self._last is None:
            self._values, self._rows = {name: value.clone() for name, value in values.items()}, dict(rows)
        elif weight:
            self._rows = {name: some.lerp(rows[name], weight / total) for name, some in self._rows.items()}
            for name, value in values.items():
                if value.is_floating_point():
                    self._values[name].lerp_(value, weight / total)
        self._last = payload

    def payload(self) -> Averaged:
        assert self._last is not None  # by mean
        return _like(self._last, self._values, self._rows)


class _Robust:
    """Replies that are kept, on disk if they are large, until the rule has seen all of them. Rows of gradients stay in
    memory: a mini-batch has few."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._kept = Collected()
        self._first: Averaged | None = None
        self._rest: dict[str, Tensor] = {}
        self._rows: list[Mapping[str, Rows]] = []
        self._replies: list[tuple[str, float, Parameters | None]] = []
        self.norms: dict[str, float] = {}

    def add(self, payload: Averaged, reply: Reply[Any], total: float) -> None:
        values, rows = _content(payload)
        floats = {name: value for name, value in values.items() if value.is_floating_point()}
        if self._first is None:
            self._first = payload
            self._rest = {name: value.clone() for name, value in values.items() if name not in floats}
        sent = reply.sent if isinstance(payload, Parameters) else None
        if (update := self._update(payload, floats, rows, sent)) is not None:
            self.norms[reply.site.site] = norm_of(update)
        self._kept.add(floats)
        self._rows.append(rows)
        self._replies.append((reply.site.site, reply.weight, sent))

    def payload(self) -> Averaged:
        if self._rule.aggregate == "norm_bound":
            return self._bounded()
        if self._rule.aggregate == "krum":
            return self._nearest()
        share = 0.5 if self._rule.aggregate == "median" else self._rule.byzantine
        slices = ((name, some, trimmed_mean(stacked, share)) for name, some, stacked in self._kept.slices())
        tables = {name: Rows(index, trimmed_mean(stacked, share)) for name, (index, stacked) in self._stacked().items()}
        return self._made(self._kept.filled(slices), tables)

    def _bounded(self) -> Averaged:
        running, total, bound = _Mean(), 0.0, self._rule.bound(list(self.norms.values()))
        for place, (site, weight, sent) in enumerate(self._replies):
            factor = shrink(self.norms[site], bound) if self.norms else 1.0
            total += weight
            values = _shrunk(self._kept.reply(place), sent, factor)
            rows = {name: replace(some, values=some.values * factor) for name, some in self._rows[place].items()}
            running.put(self._made(values, rows), weight, total)
        return running.payload()

    def _nearest(self) -> Averaged:
        distances = torch.zeros(self._kept.replies, self._kept.replies, dtype=torch.float64)
        for _, _, stacked in self._kept.slices():
            distances += squared_distances(stacked)
        for _, stacked in self._stacked().values():
            distances += squared_distances(stacked.flatten(1))
        wrong = byzantine(self._rule.byzantine, self._kept.replies)
        running = _Mean()
        for number, place in enumerate(krum_chosen(distances, wrong, self._rule.krum_keep), start=1):
            running.put(self._made(self._kept.reply(place), self._rows[place]), 1.0, float(number))
        return running.payload()

    def _update(
        self, payload: Averaged, floats: Mapping[str, Tensor], rows: Mapping[str, Rows], sent: Parameters | None
    ) -> Iterable[Tensor] | None:
        """What a site changed: weights less those it was sent, or a gradient itself. Predictions have no norm worth
        a bound: they are on the simplex."""
        if isinstance(payload, Predictions):
            return None
        if not isinstance(payload, Parameters):
            return [*floats.values(), *(some.values for some in rows.values())]
        if sent is None or not floats.keys() <= sent.values.keys():
            if self._rule.aggregate == "norm_bound":
                raise GrandRoundsError(
                    "federation.aggregate = 'norm_bound' compares weights with those that a site was sent, and this "
                    "algorithm sends none, or only rows of them; take 'median', 'trimmed' or 'krum'"
                )
            return None
        # One at a time, and in float64: the difference of two float32 may overflow.
        return (value.double() - sent.values[name].to(value.device).double() for name, value in floats.items())

    def _stacked(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Of each table the rows that any reply has, [replies, rows, width]; zero where a reply has none."""
        found = {}
        for name in self._rows[0]:
            index = torch.cat([rows[name].index for rows in self._rows]).unique()
            found[name] = index, torch.stack([rows[name].at(index) for rows in self._rows])
        return found

    def _made(self, values: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> Averaged:
        assert self._first is not None  # by mean
        before, _ = _content(self._first)
        placed = {
            name: (values[name] if name in values else self._rest[name]).to(before[name].device) for name in before
        }
        return _like(self._first, placed, rows)


def _shrunk(values: Mapping[str, Tensor], sent: Parameters | None, factor: float) -> Mapping[str, Tensor]:
    """sent + factor (value - sent); without one sent, a part of the value. What need not shrink keeps its bits."""
    if factor == 1:
        return values
    starts = {name: torch.zeros(()) if sent is None else sent.values[name].cpu() for name in values}
    return {name: _between(starts[name].double(), value, factor) for name, value in values.items()}


def _between(start: Tensor, value: Tensor, factor: float) -> Tensor:
    """In float64: the difference of two float32 may overflow."""
    return (start + factor * (value.double() - start)).to(value.dtype)


def _content(payload: Averaged) -> tuple[Mapping[str, Tensor], Mapping[str, Rows]]:
    values = {"values": payload.values} if isinstance(payload, Predictions) else payload.values
    return values, payload.rows if isinstance(payload, Gradients) else {}


def _like(payload: Averaged, values: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> Averaged:
    """The payload with other content."""
    if isinstance(payload, Predictions):
        return replace(payload, values=values["values"])
    if isinstance(payload, Gradients):
        return replace(payload, values=values, rows=rows)
    return replace(payload, values=values)
