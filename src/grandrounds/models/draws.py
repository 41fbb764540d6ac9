"""Initial weights that depend on the seed and on what they are for, not on what was built before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch


@contextmanager
def drawn_as(part: str) -> Iterator[None]:
    """A part of a model whose weights are the same at all who build it from the same seed: also where what lies below
    it was loaded at one and drawn at another."""
    digest = blake2b(f"{torch.initial_seed()} {part}".encode(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int.from_bytes(digest, "big") >> 1)
        yield
