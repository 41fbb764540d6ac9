"""Some rows of an embedding: a mini-batch has few of a vocabulary's words, so few rows of its table have a gradient,
and training changes only rows of words that some batch had.

Of a gradient the rows that don't travel are zero; of weights they are as before round 1, which every site has built
for itself. A digest of that start goes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Rows:
    index: Tensor
    """[rows], in order, each once."""
    values: Tensor
    """[rows, width]"""
    since: str = ""
    """Of weights: the digest of the table that has all other rows."""

    def none(self) -> Rows:
        """None of them."""
        return Rows(self.index[:0], self.values[:0])

    def lerp(self, other: Rows, share: float) -> Rows:
        """self + share (other - self), for rows that one of them has: the bits are those of the whole tables."""
        index = torch.cat([self.index, other.index]).unique()
        return Rows(index, self.at(index).lerp_(other.at(index), share))

    def put_into(self, table: Tensor) -> None:
        table.index_copy_(0, self.index.to(table.device), self.values.to(table.device))

    def whole(self, like: Tensor, reused: tuple[Tensor, Rows] | None = None) -> Tensor:
        """The table, zero elsewhere. One that was made so of other rows, and is needed no more, can be reused."""
        if reused is None:
            table = torch.zeros_like(like)
        else:
            table, before = reused
            table.index_fill_(0, before.index.to(table.device), 0)
        self.put_into(table)
        return table

    def at(self, index: Tensor) -> Tensor:
        """[index, width], zero where it has no such row."""
        spread = self.values.new_zeros(len(index), self.values.shape[1])
        return spread.index_copy_(0, torch.searchsorted(index, self.index), self.values)


def table_names(model: nn.Module) -> list[str]:
    """Which of its parameters are tables of vectors."""
    return [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)]


@contextmanager
def sparse_gradients(model: nn.Module, wanted: Callable[[str], bool]) -> Iterator[None]:
    """Within, these embeddings' gradients are made of the rows that a batch looked up, not of whole tables."""
    modules = dict(model.named_modules())
    tables = [modules[name.removesuffix(".weight")] for name in table_names(model) if wanted(name)]
    # MPS has no sparse gradients: there, rows are picked from whole ones.
    chosen = [table for table in tables if isinstance(table, nn.Embedding) and table.weight.device.type != "mps"]
    for table in chosen:
        table.sparse = True
    try:
        yield
    finally:
        for table in chosen:
            table.sparse = False


def rows_of(gradient: Tensor) -> Rows:
    """The rows of a table's gradient that are not zero, or that were looked up."""
    if not gradient.is_sparse:
        index = gradient.ne(0).any(dim=1).nonzero()[:, 0]
        return Rows(index, gradient[index])
    index, place = gradient._indices()[0].unique(return_inverse=True)
    # Summed by what sums whole gradients, in the same order: coalesce() takes another, and gives other bits.
    return Rows(index, torch.ops.aten.embedding_dense_backward(gradient._values(), place, len(index), -1, False))


class Tables:
    """The weights of a model before round 1, of which the embeddings are its tables."""

    def __init__(self, start: Callable[[], Mapping[str, Tensor]]) -> None:
        self._make = start
        self._digests: dict[str, str] = {}
        self._put: dict[str, tuple[int, Tensor]] = {}

    @cached_property
    def start(self) -> Mapping[str, Tensor]:
        return self._make()

    def digest(self, name: str) -> str:
        if name not in self._digests:
            table = self.start[name].detach().cpu().contiguous()
            self._digests[name] = sha256(table.reshape(-1).view(torch.uint8).numpy().data).hexdigest()[:16]
        return self._digests[name]

    def digest_of(self, names: Iterable[str]) -> str:
        """Of several of them together."""
        return sha256("".join(name + self.digest(name) for name in sorted(names)).encode()).hexdigest()[:16]

    def changed(self, name: str, table: Tensor) -> Rows | None:
        """The rows that are no longer as they were; None where the whole table takes no more bytes."""
        width = table.shape[1]
        bits = torch.int32 if width % 2 else torch.int64
        differs = table.view(bits) != self.start[name].view(bits)
        index = differs.view(torch.uint8).amax(dim=1).nonzero()[:, 0]
        if len(index) * (width * table.element_size() + index.element_size()) >= table.nbytes:
            return None
        return Rows(index, table[index], self.digest(name))

    def put(self, name: str, rows: Rows, table: Tensor) -> None:
        """Make the table the start with these rows; where nobody else has written since last time, only rows move."""
        version, moved = self._put.get(name, (-1, None))
        start = self.start[name]
        if moved is not None and table._version == version:
            gone = moved[~torch.isin(moved, rows.index.to(moved.device))]
            table.index_copy_(0, gone, start[gone])
        else:
            table.copy_(start)
        rows.put_into(table)
        self._put[name] = table._version, rows.index.to(table.device)

    def forget(self, name: str) -> None:
        """Someone will write in that table in a way that tensors don't count: fused optimizers do."""
        self._put.pop(name, None)
