"""Keys, seeds and masks: X25519 agrees on a secret with each peer, HKDF-SHA256 makes seeds of 256 bits of it, AES-256
in counter mode makes masks of a seed.

What a seed is for is in its info: run, round, exchange, attempt and pair. So no two masks are ever the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from grandrounds.federation.privacy.discrete import Uniform
from grandrounds.federation.secure.fixed_point import Words

NONCE = 12
CHUNK = 1 << 22
"""Bytes of a mask that are made at once: a whole mask in memory is as large as a model."""


@dataclass(frozen=True)
class Place:
    """Where in a run an attempt to sum is; no two attempts have the same."""

    run: str
    """Digest of the terms."""
    round: int
    exchange: int
    attempt: str

    def info(self, purpose: str, *names: str) -> bytes:
        return json.dumps(["grandrounds", purpose, self.run, self.round, self.exchange, self.attempt, *names]).encode()


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, info: bytes) -> bytes:
    """The seed that only two can know; ValueError for a public key that would make it known to all."""
    shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared)


def usable(public: bytes) -> bool:
    """Whether a secret that is agreed on with it depends on both keys: a few points of the curve make it zero."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def pair_seed(private: bytes, public: bytes, place: Place, site: str, peer: str) -> bytes:
    """The same for both, whoever asks."""
    return agreed(private, public, place.info("pair mask", *sorted((site, peer))))


def self_seed(secret: bytes, place: Place, site: str) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=place.info("own mask", site)).derive(secret)


def commitment(secret: bytes) -> bytes:
    """Shows later whether a secret put together of shares is the one that was shared; says nothing about it before."""
    return sha256(b"grandrounds own mask" + secret).digest()


def add_mask(words: Words, seed: bytes, part: int, *, subtract: bool = False) -> None:
    """Add the seed's mask, or take it away, in place; each part of an upload has its own stretch of the key stream."""
    stream = Cipher(algorithms.AES256(seed), modes.CTR(part.to_bytes(8, "big") + bytes(8))).encryptor()
    zeros = bytes(min(CHUNK, words.nbytes))
    for start in range(0, len(words), CHUNK // 4):
        some = words[start : start + CHUNK // 4]
        mask = np.frombuffer(stream.update(zeros[: some.nbytes]), dtype="<u4")
        (np.subtract if subtract else np.add)(some, mask, out=some)


def uniform(seed: bytes) -> Uniform:
    """Numbers of 52 bits from the seed's key stream, to draw noise with."""
    stream = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()

    def drawn(count: int) -> NDArray[np.float64]:
        words = np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8") >> np.uint64(12)
        found: NDArray[np.float64] = (words.astype(np.float64) + 0.5) * 2.0**-52
        return found

    return drawn


def seal(secret: bytes, private: bytes, public: bytes, nonce: bytes, info: bytes) -> bytes:
    """Only the peer can open it."""
    return nonce + AESGCM(agreed(private, public, info)).encrypt(nonce, secret, info)


def unseal(box: bytes, private: bytes, public: bytes, info: bytes) -> bytes:
    """ValueError where it is for another or was altered."""
    try:
        return AESGCM(agreed(private, public, info)).decrypt(box[:NONCE], box[NONCE:], info)
    except InvalidTag as error:
        raise ValueError("it can't be opened") from error
