"""Weights and gradients in a byte a number (federation.compression = "int8"): weights as differences, of embeddings
only rows that changed.

down    w0 + Q(w - w0)     the server's weights w, by what each site holds: the start w0, known by its digest
up      Q(y - x + e)       a site's weights y, by those it got, x; or Q(g + e) of a gradient g
        e <- what Q took   error feedback: kept at the site, and added to its next upload

The server adds what comes up to its own w, not to the x that sites got. So it keeps what rounding took on the way down:
w goes on as if nothing had been taken, and needs no error of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from grandrounds.federation.contract import Algorithm, sent_kinds
from grandrounds.federation.payloads import OF_ROWS, Compression, Gradients, Packed, Parameters
from grandrounds.federation.rows import Rows, Tables
from grandrounds.federation.scaled import MOST, SCALES, grown, rounded, scales_of
from grandrounds.federation.seeds import random_bits

Taken = Mapping[str, Tensor]
"""What rounding took, by name; of embeddings the rows, and which they are."""


@dataclass
class _Rounded:
    """A payload on its way into bytes."""

    place: tuple[str | int, ...]
    """What names its random bits."""
    taken: Taken
    coded: dict[str, Tensor] = field(default_factory=dict)
    scales: dict[str, Tensor] = field(default_factory=dict)
    left: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, value: Tensor) -> None:
        if name in self.taken:
            value = value + self.taken[name]
        self.left[name] = value - self._rounded(name, value)

    def add_rows(self, name: str, change: Rows) -> None:
        """Rows that would be nearly all zero beside the table's largest number wait, among what rounding took."""
        before = Rows(self.taken[name + OF_ROWS], self.taken[name]) if name in self.taken else change.none()
        index = torch.cat([before.index, change.index]).unique()
        values, here = before.at(index), torch.searchsorted(index, change.index)
        values[here] += change.values
        sizes = values[here].abs().amax(dim=1)
        if len(here):  # what is not finite travels, to be rejected
            here = here[(sizes != 0) & ~(sizes * 2 * MOST < sizes.max())]
        self.coded[name + OF_ROWS] = index[here]
        values[here] -= self._rounded(name, values[here])
        waiting = values.ne(0).any(dim=1)
        self.left |= {name: values[waiting], name + OF_ROWS: index[waiting]}

    def packed(self, kind: str, header: Mapping[str, str]) -> Packed:
        scales = [self.scales[name] for name in sorted(self.scales)]
        return Packed(kind, header, {**self.coded, SCALES: torch.cat(scales) if scales else torch.zeros(0)})

    def _rounded(self, name: str, value: Tensor) -> Tensor:
        """As the other side will read it."""
        scales = scales_of(value)
        self.coded[name] = coded = rounded(value, scales, random_bits(*self.place, "rounding", name))
        self.scales[name] = scales
        return grown(coded, scales)


def named(packed: Packed) -> list[str]:
    """The weights that these differences are of."""
    return [name for name in packed.tensors if name != SCALES and not name.endswith(OF_ROWS)]


def update(
    leaving: Parameters | Gradients, base: Mapping[str, Tensor], tables: frozenset[str], taken: Taken, *place: str | int
) -> tuple[Packed, dict[str, Tensor]]:
    """What a site sends, and what rounding took from it."""
    if isinstance(leaving, Parameters):
        return _differences(leaving, base, tables, taken, {}, *place)
    made = _Rounded(place, taken)
    for name, value in leaving.values.items():
        made.add(name, value.detach().cpu().float())
    for name, rows in leaving.rows.items():
        made.add_rows(name, Rows(rows.index.cpu(), rows.values.detach().cpu()))
    return made.packed(leaving.kind, {}), made.left


@dataclass(frozen=True)
class Downlink:
    """The server's weights on their way to sites."""

    start: Tables
    tables: frozenset[str]
    seed: int

    @classmethod
    def of(
        cls, algorithm: Algorithm, compression: Compression, start: Tables, tables: frozenset[str], seed: int
    ) -> Self | None:
        """None where weights go down as they are: also of an algorithm whose sites send predictions, not weights."""
        if compression != "int8" or sent_kinds(algorithm).isdisjoint({Parameters, Gradients}):
            return None
        return cls(start, tables, seed)

    def pack(self, weights: Parameters, *place: str | int) -> Packed:
        """The same for all sites that get the same."""
        since = {"since": self.start.digest_of([*weights.values, *weights.rows])}
        return _differences(weights, self.start.start, self.tables, {}, since, self.seed, "server", *place)[0]

    def base(self, sent: Parameters | None) -> Mapping[str, Tensor]:
        """What a site's answer differs from: the weights that it was sent, else the start."""
        if sent is None:
            return self.start.start
        whole = {**self.start.start, **sent.values}
        for name, rows in sent.rows.items():
            whole[name] = self.start.start[name].clone()
            rows.put_into(whole[name])
        return whole


def _differences(
    weights: Parameters,
    base: Mapping[str, Tensor],
    tables: frozenset[str],
    taken: Taken,
    header: Mapping[str, str],
    *place: str | int,
) -> tuple[Packed, dict[str, Tensor]]:
    made = _Rounded(place, taken)
    for name, value in weights.values.items():
        if not value.is_floating_point():
            made.coded[name] = value.detach().cpu()
        elif name in tables:
            change = value.detach().cpu() - base[name].detach().cpu()
            index = change.ne(0).any(dim=1).nonzero()[:, 0]
            made.add_rows(name, Rows(index, change[index]))
        else:
            made.add(name, value.detach().cpu() - base[name].detach().cpu())
    for name, rows in weights.rows.items():
        index = rows.index.cpu()
        made.add_rows(name, Rows(index, rows.values.detach().cpu() - base[name].detach().cpu()[index]))
    return made.packed(weights.kind, header), made.left
