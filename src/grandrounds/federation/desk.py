"""A site's desk: what it says to each kind of note that the coordinator may send. It knows of no other.

hello     who we are: registration, package version, digest of the terms we were enrolled with
ask       run a method of the algorithm; the answer is a payload, or why there is none
keys      the public keys of all sites: the answer is a new secret, sealed to each of them
secret    the secret, sealed to us
refused   the coordinator will not have us, and why
bye       it is over
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grandrounds import __version__
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import Audit, log_payload
from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.files import write_whole
from grandrounds.federation.host import Host
from grandrounds.federation.keys import PrivateKey, fingerprint, public_of, seal, unseal
from grandrounds.federation.payloads import Packed, PayloadError

PURPOSE = "grandrounds: a secret of the sites"
Said = tuple[dict[str, Any], list[bytes]]


class Desk:
    """Answers notes for one site; what it says is logged first."""

    def __init__(
        self,
        host: Host,
        registration: Registration,
        about: Mapping[str, Any],
        audit: Audit,
        key: PrivateKey,
        state: Path,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`about` is what else a hello tells: digests to compare."""
        self._host, self._registration, self._about = host, registration, about
        self._audit, self._key, self._state, self._say = audit, key, state, say
        self.ended: str | None = None
        """Why there is nothing more to do: empty where it ended well."""

    def __call__(self, note: Mapping[str, Any], payloads: Sequence[bytes]) -> Said:
        """The reply to a note; it names the note, so that it can't be taken for another's."""
        try:
            said, sent = self._reply(note, payloads)
        except Exception as error:  # whatever it is, the coordinator hears of its kind alone: text may be in it
            self._say(f"a note could not be answered: {type(error).__name__}: {error}")
            self._audit.write(event="failed", error=type(error).__name__)
            said = {"answer": Answer("", lost=f"failed: {type(error).__name__}; the site's own log says more").note()}
            sent = []
        return {**said, "id": note.get("id")}, sent

    def _reply(self, note: Mapping[str, Any], payloads: Sequence[bytes]) -> Said:
        match note.get("what"):
            case "hello":
                return self._hello(), []
            case "ask":
                return self._ask(note["ask"], payloads)
            case "keys":
                return {"sealed": self._make_secret(note["keys"])}, []
            case "secret":
                return {"held": self._take_secret(note["sealed"])}, []
            case "refused" | "bye" as what:
                self.ended = str(note.get("why", "the coordinator refused us")) if what == "refused" else ""
                self._audit.write(event=what)
                return {}, []
        raise PayloadError("a note of an unknown kind")

    def _hello(self) -> dict[str, Any]:
        us = self._registration
        said = {
            "site": us.site,
            "counts": dict(us.counts),
            "labels": list(us.labels),
            "manifest": {name: list(shape) for name, shape in us.manifest.items()},
            "version": __version__,
            **self._about,
        }
        logged = {name: value for name, value in said.items() if name != "manifest"}
        self._audit.write(event="registered", **logged)
        return {"hello": said}

    def _ask(self, note: Mapping[str, Any], payloads: Sequence[bytes]) -> Said:
        ask = Ask.of(note, lambda place: Packed.from_bytes(payloads[place]))
        for part in ask.payloads:
            log_payload(self._audit, ask.where, "down", part)
        if ask.site != self._registration.site:
            answer = Answer(ask.site, lost="refused: this is another site")
        else:
            answer = self._host.answer(ask)
            self._host.flush()  # the coordinator may count on our state as soon as it has the reply
        if answer.packed is None:
            self._audit.write(**ask.where, event=answer.lost)
            return {"answer": answer.note()}, []
        log_payload(self._audit, ask.where, "up", answer.packed)
        return {"answer": answer.note()}, [answer.packed.to_bytes()]

    def _make_secret(self, keys: Mapping[str, str]) -> dict[str, str]:
        peers = self._known_peers(keys)
        path = self._state / "secret"
        secret = path.read_bytes() if path.exists() else os.urandom(32)
        write_whole(path, secret)
        self._audit.write(event="secret sealed", sites=sorted(peers))
        return {site: base64.b64encode(seal(secret, key, PURPOSE)).decode() for site, key in peers.items()}

    def _take_secret(self, sealed: str) -> bool:
        secret = unseal(base64.b64decode(sealed), self._key, PURPOSE)
        path = self._state / "secret"
        if path.exists() and path.read_bytes() != secret:
            raise GrandRoundsError("the sites' secret has changed since this site first got it")
        write_whole(path, secret)
        self._audit.write(event="secret received")
        return True

    def _known_peers(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """Keys as they were the first time: the coordinator can't slip in another later, and engineers may compare
        fingerprints before that."""
        path = self._state / "peers.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        peers = {site: public_of(text) for site, text in keys.items()}
        for site, key in peers.items():
            if known.setdefault(site, fingerprint(key)) != fingerprint(key):
                raise GrandRoundsError(f"the key of site '{site}' is another one than before; nothing is sealed to it")
        write_whole(path, json.dumps(known, indent=1).encode())
        return peers
