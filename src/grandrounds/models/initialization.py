"""Initial weights that depend on the seed and the name of a part, not on what was built before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch


@contextmanager
def initialized_as(part: str) -> Iterator[None]:
    """Initialise a part of a model from the seed and the part's name alone, so that it is the same for everybody, even
    if the layers below it were loaded at one site and initialised at another."""
    digest = blake2b(f"{torch.initial_seed()} {part}".encode(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int.from_bytes(digest, "big") >> 1)
        yield
