"""All replies of an exchange, for rules that look at all of them at once: in memory while they are small, then in an
unnamed file on disk, which is read again a slice at a time. So memory does not grow with the number of sites."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

IN_MEMORY = 64 << 20
"""Bytes of all replies together up to which nothing is written to disk."""
SLICE = 1 << 22
"""Numbers that are read at once, of all replies together."""


class Collected:
    """The floating-point tensors of one payload of each reply, by name."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  # it lives as long as this
        self._like: dict[str, Tensor] = {}
        self.replies = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        if not self._like:
            self._like = {name: torch.empty_like(value, device="cpu") for name, value in values.items()}
        for name, like in self._like.items():
            self._file.write(values[name].detach().to("cpu", like.dtype).contiguous().numpy().tobytes())
        self.replies += 1

    def reply(self, place: int) -> dict[str, Tensor]:
        """One reply again."""
        return {
            name: self._read(place, start, like.numel(), like).reshape(like.shape)
            for name, start, like in self._layout()
        }

    def slices(self) -> Iterator[tuple[str, slice, Tensor]]:
        """A tensor's name, some of its entries, and these of every reply: [replies, entries]."""
        step = max(1, SLICE // max(1, self.replies))
        for name, start, like in self._layout():
            for first in range(0, like.numel(), step):
                some = slice(first, min(first + step, like.numel()))
                offset, count = start + some.start * like.element_size(), some.stop - some.start
                yield name, some, torch.stack([self._read(k, offset, count, like) for k in range(self.replies)])

    def filled(self, entries: Iterator[tuple[str, slice, Tensor]]) -> dict[str, Tensor]:
        """Tensors like those of a reply, put together from slices."""
        whole = {name: torch.empty_like(like) for name, like in self._like.items()}
        for name, some, values in entries:
            whole[name].view(-1)[some] = values
        return whole

    @property
    def _size(self) -> int:
        return sum(like.nbytes for like in self._like.values())

    def _layout(self) -> Sequence[tuple[str, int, Tensor]]:
        starts = np.cumsum([0, *(like.nbytes for like in self._like.values())])
        return [(name, int(start), like) for (name, like), start in zip(self._like.items(), starts[:-1], strict=True)]

    def _read(self, place: int, start: int, count: int, like: Tensor) -> Tensor:
        self._file.seek(place * self._size + start)
        data = bytearray(self._file.read(count * like.element_size()))
        return torch.frombuffer(data, dtype=like.dtype) if count else torch.empty(0, dtype=like.dtype)
