"""Randomness that depends on what it is for, never on what was drawn before.

Everything random is derived from (seed, who, round, exchange, purpose): so sites may run in any order and in any
process, and no generator state has to be saved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch


def derive(*parts: str | int) -> int:
    """A 63-bit seed for this purpose."""
    return int.from_bytes(blake2b(json.dumps(parts).encode(), digest_size=8).digest(), "big") >> 1


def generator(*parts: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive(*parts))


def random_bits(*parts: str | int) -> np.random.Generator:
    """Many times as fast as torch's, where one draw a weight is needed."""
    return np.random.Generator(np.random.SFC64(derive(*parts)))


@contextmanager
def global_seed(*parts: str | int) -> Iterator[None]:
    """Seed what modules draw from by themselves (dropout, initial weights), and put it back afterwards."""
    seed = derive(*parts)
    with torch.random.fork_rng():
        if torch.cuda.is_available() or torch.backends.mps.is_available():
            torch.manual_seed(seed)
        else:  # the same draws; for each absent device torch.manual_seed would write down the whole stack
            torch.default_generator.manual_seed(seed)
        yield
