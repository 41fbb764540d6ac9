"""Masks cancel to the last bit, are random, and differ wherever anything of their place differs."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from grandrounds.federation.secure import masks
from grandrounds.federation.secure.masks import Place

PLACE = Place("run", 3, 1, "00" * 8)


def private(name: str) -> bytes:
    return sha256(name.encode()).digest()


def test_a_pair_agrees_on_a_seed_and_nobody_else() -> None:
    a, b, c = (private(name) for name in "abc")
    seed = masks.pair_seed(a, masks.public_of(b), PLACE, "a", "b")
    assert seed == masks.pair_seed(b, masks.public_of(a), PLACE, "b", "a")
    assert len(seed) == 32
    assert seed != masks.pair_seed(c, masks.public_of(a), PLACE, "b", "a")


@pytest.mark.parametrize(
    "other", [replace(PLACE, run="r"), replace(PLACE, round=4), replace(PLACE, exchange=2), replace(PLACE, attempt="1")]
)
def test_another_place_has_another_seed(other: Place) -> None:
    a, b = private("a"), masks.public_of(private("b"))
    assert masks.pair_seed(a, b, PLACE, "a", "b") != masks.pair_seed(a, b, other, "a", "b")
    assert masks.pair_seed(a, b, PLACE, "a", "b") != masks.pair_seed(a, b, PLACE, "a", "c")
    assert masks.self_seed(a, PLACE, "a") != masks.self_seed(a, other, "a")


def test_a_mask_is_the_key_stream_of_aes_256_in_counter_mode() -> None:
    """Also across the pieces that it is made in."""
    seed, size = private("s"), masks.CHUNK // 4 + 17
    words = np.zeros(size, dtype=np.uint32)
    masks.add_mask(words, seed, 2)
    stream = Cipher(algorithms.AES256(seed), modes.CTR((2).to_bytes(8, "big") + bytes(8))).encryptor()
    assert words.astype("<u4").tobytes() == stream.update(bytes(4 * size))
    masks.add_mask(words, seed, 2, subtract=True)
    assert not words.any()


def test_a_self_seed_is_hkdf_sha256_of_the_secret() -> None:
    info = b'["grandrounds", "own mask", "run", 3, 1, "0000000000000000", "a"]'
    assert masks.self_seed(private("x"), PLACE, "a") == HKDF(hashes.SHA256(), 32, None, info).derive(private("x"))


def test_the_masks_of_all_pairs_cancel() -> None:
    names = "abcde"
    total = np.arange(1000, dtype=np.uint32)
    for name, peer in combinations(names, 2):
        for one, other in ((name, peer), (peer, name)):
            seed = masks.pair_seed(private(one), masks.public_of(private(other)), PLACE, one, other)
            masks.add_mask(total, seed, 0, subtract=one > other)
    assert total.tolist() == list(range(1000))


def test_masked_words_look_random() -> None:
    words = np.zeros(1 << 16, dtype=np.uint32)
    masks.add_mask(words, private("s"), 0)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    chi = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert 150 < chi < 375  # 255 degrees of freedom: within 5 standard deviations
    assert len(np.unique(words)) > 65500 - 5


def test_a_public_key_that_makes_the_secret_known_to_all_is_refused() -> None:
    with pytest.raises(ValueError, match="shared key"):
        masks.pair_seed(private("a"), bytes(32), PLACE, "a", "b")


def test_only_the_peer_opens_a_box_and_only_as_it_was_sealed() -> None:
    a, b, info = private("a"), private("b"), PLACE.info("shares", "a", "b")
    box = masks.seal(b"x" * 64, a, masks.public_of(b), b"n" * 12, info)
    assert masks.unseal(box, b, masks.public_of(a), info) == b"x" * 64
    for altered, key, where in (
        (box[:-1] + b"!", b, info),
        (box, private("c"), info),
        (box, b, PLACE.info("shares", "b", "a")),
    ):
        with pytest.raises(ValueError, match="can't be opened"):
            masks.unseal(altered, key, masks.public_of(a), where)
