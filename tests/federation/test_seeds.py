"""Randomness is named, never counted."""

from __future__ import annotations

import json
from hashlib import blake2b

import torch

from grandrounds.federation.seeds import derive, generator, global_seed


def test_a_derived_seed_is_the_top_63_bits_of_a_hash_of_its_purpose() -> None:
    parts = (1, "site-01", 3, 1, "dropout", 1)
    digest = blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
    assert derive(*parts) == int(digest, 16) >> 1 == PINNED
    assert derive(1, 23) != derive(12, 3)
    assert derive("1") != derive(1)


PINNED = 1066997123315259160


def test_what_was_drawn_before_does_not_matter() -> None:
    first = torch.rand(3, generator=generator(1, "a"))
    torch.rand(7, generator=generator(1, "b"))
    torch.rand(5)
    assert torch.equal(torch.rand(3, generator=generator(1, "a")), first)


def test_a_global_seed_is_put_back_and_does_not_hang_on_it() -> None:
    torch.manual_seed(5)
    outside = torch.rand(4)
    torch.manual_seed(5)
    before = torch.rand(2)
    with global_seed(1, "dropout"):
        one = torch.rand(3)
    after = torch.rand(2)
    assert torch.equal(torch.cat([before, after]), outside)
    torch.manual_seed(99)
    with global_seed(1, "dropout"):
        assert torch.equal(torch.rand(3), one)
