"""Who vouches for what sites say to each other through the coordinator: the enrolment key of each."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure_payloads import MaskKeys, SiteKeys


class Signer(Protocol):
    """The site's enrolment key, and those of its peers."""

    public: str

    def sign(self, data: bytes) -> bytes: ...

    def check(self, site: str, public: str, data: bytes, signature: bytes) -> None:
        """RefusalError where the site is unknown, its key another one, or the signature not its own."""
        ...


class Unsigned:
    """Sites that are simulated have no keys of their own."""

    public = ""

    def sign(self, data: bytes) -> bytes:
        return b""

    def check(self, site: str, public: str, data: bytes, signature: bytes) -> None: ...


def keys_to_sign(place: Place, site: str, keys: SiteKeys) -> bytes:
    return place.info("keys", site, *(v.hex() if isinstance(v, bytes) else str(v) for v in keys[:-1]))


def stayed_to_sign(place: Place, roster: MaskKeys, stayed: Set[str]) -> bytes:
    """Who stayed, of sites with these very keys: sites that were shown different keys don't agree by accident."""
    return place.info("stayed", roster.pack("fp32").digest, *sorted(stayed))
