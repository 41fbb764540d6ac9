"""A site's handler: what it says to each kind of note that the coordinator may send. It knows of no other.

hello     who we are: registration, package version, digest of the terms we were enrolled with
ask       run a method of the algorithm; the answer is a payload, or why there is none
keys      the public keys of all sites: the answer is the sites' secret, sealed to each of them and signed by us
secret    the secret, sealed to us by a site whose signature it has
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
from grandrounds.deployment.keys import PrivateKey, PublicKey, fingerprint, public_of, seal, sign, signed_by, unseal
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import Audit, log_payload
from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import Packed, PayloadError
from grandrounds.federation.runner import SiteRunner

PURPOSE = "grandrounds: a secret of the sites"
Said = tuple[dict[str, Any], list[bytes]]


class MessageHandler:
    """Answers notes for one site; what it says is logged first."""

    def __init__(
        self,
        runner: SiteRunner,
        registration: Registration,
        about: Mapping[str, Any],
        audit: Audit,
        key: PrivateKey,
        state: Path,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`about` is what else a hello tells: digests to compare."""
        self._runner, self._registration, self._about = runner, registration, about
        self._audit, self._key, self._state, self._say = audit, key, state, say
        self.digest = registration.digest
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
        return {**said, "id": note.get("id"), "registration": self.digest, "log": self._audit.head}, sent

    def _reply(self, note: Mapping[str, Any], payloads: Sequence[bytes]) -> Said:
        match note.get("what"):
            case "hello":
                return self._hello(), []
            case "ask":
                return self._ask(note["ask"], payloads)
            case "keys":
                return {"sealed": self._seal_secret(note["keys"])}, []
            case "secret":
                return {"held": self._take_secret(note)}, []
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
            "secret": self._secret.exists(),
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
            answer = self._runner.answer(ask)
            self._runner.flush()  # the coordinator may count on our state as soon as it has the reply
        if not answer.payloads:
            self._audit.write(**ask.where, event=answer.lost)
            return {"answer": answer.note()}, []
        for place, part in enumerate(answer.payloads):
            log_payload(self._audit, ask.where, "up", part, None if place else answer.work)
        return {"answer": answer.note()}, [part.to_bytes() for part in answer.payloads]

    @property
    def _secret(self) -> Path:
        return self._state / "secret"

    def _seal_secret(self, keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """The secret, a new one if we hold none, for each of these sites."""
        peers = self._known_peers(keys)
        if not self._secret.exists():
            self._keep_secret(os.urandom(32))
        secret, sealed = self._secret.read_bytes(), {}
        for site, key in peers.items():
            box = seal(secret, key, PURPOSE)
            sealed[site] = {"box": _text(box), "signature": _text(sign(_addressed(box, site), self._key))}
        self._audit.write(event="secret sealed", sites=sorted(peers))
        return sealed

    def _take_secret(self, note: Mapping[str, Any]) -> bool:
        """Only from a site that we know: whoever has our public key, as the coordinator has, could seal us another."""
        peers = self._known_peers(note["keys"])
        box, signature = base64.b64decode(note["sealed"]["box"]), base64.b64decode(note["sealed"]["signature"])
        if not signed_by(signature, _addressed(box, self._registration.site), peers[note["from"]]):
            raise GrandRoundsError("a sealed secret is not signed by the site that it is said to come from")
        secret = unseal(box, self._key, PURPOSE)
        if self._secret.exists() and self._secret.read_bytes() != secret:
            raise GrandRoundsError("the sites' secret has changed since this site first got it")
        self._keep_secret(secret)
        self._audit.write(event="secret received", sender=str(note["from"]))
        return True

    def _keep_secret(self, secret: bytes) -> None:
        write_whole(self._secret, secret)
        self._secret.chmod(0o600)

    def _known_peers(self, keys: Mapping[str, str]) -> dict[str, PublicKey]:
        """The sites' keys as they are in peers.json: written by the engineer, who had the fingerprints from the other
        hospitals, or at the first time by us, and then shown. Whoever is not in it stays out for good."""
        path = self._state / "peers.json"
        peers = {site: public_of(text) for site, text in keys.items()}
        shown = {site: fingerprint(key) for site, key in peers.items()}
        if not path.exists():
            write_whole(path, json.dumps(shown, indent=1).encode())
            for site, mark in sorted(shown.items()):
                self._say(f"site '{site}' has the key {mark}: compare it with what that hospital says")
        known = json.loads(path.read_text(encoding="utf-8"))
        for site, mark in shown.items():
            if known.get(site) != mark:
                raise GrandRoundsError(
                    f"the key of site '{site}' is not the one in '{path}'; nothing is shared with it"
                )
        return peers


def _addressed(box: bytes, site: str) -> bytes:
    """What is signed: the box and whom it is for."""
    return f"{PURPOSE} for {site}:".encode() + box


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
