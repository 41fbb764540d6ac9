"""The other sites of a federation, by their keys: as peers.json says, which an engineer wrote who had the fingerprints
from the other hospitals. Without it, the first keys that come are written there and shown; no others are taken later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from grandrounds.deployment.keys import PrivateKey, PublicKey, fingerprint, public_of, public_text, sign, signed_by
from grandrounds.errors import GrandRoundsError, foreign
from grandrounds.federation.files import write_whole
from grandrounds.federation.policy import RefusalError


class Peers:
    def __init__(self, path: Path, site: str, own: PublicKey, say: Callable[[str], None]) -> None:
        self._path, self._site, self._own, self._say = path, site, own, say

    def check(self, keys: Mapping[str, str]) -> dict[str, PublicKey]:
        """These sites' keys, ours among them; GrandRoundsError where one is not as known."""
        peers = {site: public_of(text) for site, text in keys.items()}
        shown = {site: fingerprint(key) for site, key in peers.items()}
        if shown.get(self._site) != fingerprint(self._own):
            raise GrandRoundsError("among the sites' keys our own is not there or another one; nothing is shared")
        if not self._path.exists():
            write_whole(self._path, json.dumps(shown, indent=1).encode())
            for site, mark in sorted(shown.items()):
                self._say(f"site '{site}' has the key {mark}: compare it with what that hospital says")
        known = self.known()
        for site, mark in shown.items():
            if known.get(site) != mark:
                raise GrandRoundsError(
                    f"the key of site '{site}' is not the one in '{self._path}'; nothing is shared with it"
                )
        return peers

    def known(self) -> Mapping[str, str]:
        """Fingerprints by site; empty before the first keys have come."""
        if not self._path.exists():
            return {}
        try:
            known: dict[str, str] = dict(json.loads(self._path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise GrandRoundsError(
                f"'{self._path}' has to be a JSON object with the fingerprint of each site's key by its name"
            ) from error
        return known


class PeerSigner:
    """Signs the keys of secure sums with the site's enrolment key, and checks those of its peers: the coordinator, who
    carries them, can't swap one."""

    def __init__(self, key: PrivateKey, peers: Peers) -> None:
        self._key, self._peers = key, peers
        self.public = public_text(key.public_key())

    def sign(self, data: bytes) -> bytes:
        return sign(data, self._key)

    def check(self, site: str, public: str, data: bytes, signature: bytes) -> None:
        try:
            key = public_of(public)
        except GrandRoundsError as error:
            raise RefusalError(f"what came as the key of site '{foreign(site, 64)}' is none") from error
        if self._peers.known().get(site) != fingerprint(key):
            raise RefusalError(f"the key of site '{foreign(site, 64)}' is not the one in peers.json")
        if not signed_by(signature, data, key):
            raise RefusalError(f"the keys of site '{foreign(site, 64)}' are not signed by it")
