"""A site's handler: what it says to each message that the coordinator may send. It knows of no other."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from grandrounds import __version__
from grandrounds.deployment.final_model import FinalModelFolder
from grandrounds.deployment.heads import SignedHead, check_log, write_heads
from grandrounds.deployment.keys import PrivateKey, PublicKey, seal, sign, signed_by, unseal
from grandrounds.deployment.ledger import GREETED, SiteLedger
from grandrounds.deployment.peers import Peers
from grandrounds.deployment.protocol import (
    Answered,
    AskMethod,
    Bye,
    Done,
    FinalModel,
    Hello,
    Introduction,
    Keys,
    PeerKeys,
    Refused,
    Request,
    Response,
    Said,
    Sealed,
    Secret,
    Secrets,
    decode,
    encode,
    id_of,
)
from grandrounds.deployment.round_log import RoundLog
from grandrounds.errors import GrandRoundsError, foreign
from grandrounds.federation.audit import Audit, log_payload
from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.files import DiskError, disk_error, write_whole
from grandrounds.federation.payloads import PayloadError
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.private import MissingVersionError
from grandrounds.federation.runner import SiteRunner

HEAD = "audit.head"
CUT = "refused: this site's log has not got the head that it signed: it was cut or edited"
PURPOSE = "grandrounds: a secret of the sites"


class MessageHandler:
    """Answers messages for one site; what it says is logged first."""

    def __init__(
        self,
        runner: SiteRunner,
        registration: Registration,
        about: Mapping[str, Any],
        audit: Audit,
        key: PrivateKey,
        state: Path,
        ledger: SiteLedger,
        say: Callable[[str], None] = lambda sentence: None,
        final_model: FinalModelFolder | None = None,
    ) -> None:
        """`about` is what else a hello tells: digests to compare. `final_model` is where the federation's model is
        kept; None: the terms, or the site's policy, let none come."""
        self._runner, self._registration, self._about = runner, registration, about
        self._audit, self._key, self._state, self._say = audit, key, state, say
        self._ledger, self._final_model = ledger, final_model
        self._peers = Peers(state / "peers.json", registration.site, key.public_key(), say)
        self.digest = registration.digest
        self.rounds = RoundLog(say)
        self.ended: str | None = None
        """Why there is nothing more to do: empty where it ended well."""
        self.received: Path | None = None
        """Where the federation's model is, once it has come."""

    def __call__(self, data: bytes, payloads: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """The response to a request, and its payloads."""
        message: Said
        sent: list[bytes] = []
        try:
            request = decode(Request, data)
        except PayloadError as problem:
            self._audit.write(event="failed", error=type(problem).__name__)
            name, message = id_of(data), Answered(lost=f"failed: {problem}")
        else:
            name = request.id
            try:
                message, sent = self._reply(request, payloads)
            except OSError as error:
                raise disk_error(error, Path(error.filename or self._state)) from error
            except DiskError:  # an answer that we can't keep must not leave, and no later one could be kept
                raise
            except Exception as error:  # whatever it is, the coordinator hears of its kind alone: text may be in it
                self._say(f"a message could not be answered: {type(error).__name__}: {error}")
                self._audit.write(event="failed", error=type(error).__name__)
                message = Answered(lost=f"failed: {type(error).__name__}; the site's own log says more")
        head = self._signed_head()
        return encode(Response(id=name, registration=self.digest, **head, message=message)), sent

    def _signed_head(self) -> dict[str, str]:
        """Also beside the log, where the next start compares them."""
        signed = SignedHead.of(self._audit.head, self._key)
        write_heads(self._state / HEAD, {self._registration.site: signed})
        return {"log": signed.head, "signature": signed.signature}

    def _still_has(self, head: str, signature: str) -> bool:
        """Whether our log has the head that we signed once; a coordinator that knows of none names none."""
        try:
            return not head or bool(check_log(self._audit.path, SignedHead(head, signature), self._key.public_key()))
        except GrandRoundsError as problem:
            self._say(str(problem))
            return False

    def _reply(self, request: Request, payloads: Sequence[bytes]) -> tuple[Said, list[bytes]]:
        match request.message:
            case Hello(log=head, signature=signature):
                return self._introduce() if self._still_has(head, signature) else Answered(lost=CUT), []
            case AskMethod() as asked:
                return self._ask(asked, payloads)
            case Keys(keys=keys):
                return Secrets(sealed=self._seal_secret(keys)), []
            case Secret() as secret:
                self._take_secret(secret)
            case FinalModel() as model:
                return self._take_model(model, payloads), []
            case PeerKeys(keys=keys):
                self._audit.write(event="peers", sites=sorted(self._peers.check(keys)))
            case Refused(why=why):
                self._end("refused", foreign(why, 600))
            case Bye():
                self._end("bye", "")
            case never:
                assert_never(never)
        return Done(), []

    def _end(self, event: str, why: str) -> None:
        self.ended = why
        self.rounds.end()
        self._audit.write(event=event)

    def _introduce(self) -> Introduction:
        us = self._registration
        said = Introduction(
            site=us.site,
            counts=dict(us.counts),
            labels=list(us.labels),
            manifest=dict(us.manifest),
            version=__version__,
            secret=self._secret.exists(),
            **self._about,
        )
        self._ledger.greeted()
        self._audit.write(event=GREETED, **said.model_dump(exclude={"what", "manifest"}))
        return said

    def _ask(self, asked: AskMethod, payloads: Sequence[bytes]) -> tuple[Answered, list[bytes]]:
        began, ask = time.monotonic(), asked.ask(payloads)
        for part in ask.payloads:
            log_payload(self._audit, ask.where, "down", part)
        answer = self._answer(ask)
        if not answer.payloads:
            self._audit.write(**ask.where, event=answer.lost)
        for place, part in enumerate(answer.payloads):
            log_payload(self._audit, ask.where, "up", part, None if place else answer.work)
        self.rounds.exchange(ask.round, ask.payloads, answer.payloads, answer.lost, time.monotonic() - began)
        return Answered.of(answer), [part.to_bytes() for part in answer.payloads]

    def _take_model(self, model: FinalModel, payloads: Sequence[bytes]) -> Said:
        """Something that comes in, and is logged as that; nothing leaves."""
        self.rounds.end()
        place = {"round": model.round, "exchange": 0, "site": self._registration.site}
        try:
            if self._final_model is None:
                raise RefusalError("no model may come: the terms, or this site's policy, say so")
            if len(payloads) != 1:
                raise PayloadError(f"{len(payloads)} payloads came where the model was one")
            log = partial(log_payload, self._audit, place, "down")
            self._final_model.take(payloads[0], model.digest, log)
        except (RefusalError, PayloadError) as problem:
            self._audit.write(**place, event="model refused")
            self._say(f"the federation's model was not taken: {problem}")
            return Answered(lost=f"refused: {problem}")
        self.received = self._final_model.folder
        return Done()

    def _answer(self, ask: Ask) -> Answer:
        if ask.site != self._registration.site:
            return Answer(ask.site, lost="refused: this is another site")
        try:
            self._runner.check(ask)
            self._audit.write(**self._ledger.record(ask))
        except (RefusalError, MissingVersionError) as refusal:
            return Answer(ask.site, lost=f"refused: {refusal}")
        answer = self._runner.answer(ask)
        self._runner.flush()  # the coordinator may count on our state as soon as it has the reply
        return answer

    @property
    def _secret(self) -> Path:
        return self._state / "secret"

    def _seal_secret(self, keys: Mapping[str, str]) -> dict[str, Sealed]:
        """The secret, a new one if we hold none, for each of these sites."""
        peers = self._known_peers(keys)
        if not self._secret.exists():
            self._keep_secret(os.urandom(32))
        secret, sealed = self._secret.read_bytes(), {}
        for site, key in peers.items():
            box = seal(secret, key, PURPOSE)
            sealed[site] = Sealed(box=_text(box), signature=_text(sign(_addressed(box, site), self._key)))
        self._audit.write(event="secret sealed", sites=sorted(peers))
        return sealed

    def _take_secret(self, given: Secret) -> None:
        """Only from a site that we know: whoever has our public key, as the coordinator has, could seal us another."""
        peers = self._known_peers(given.keys)
        box, signature = _decoded(given.sealed.box), _decoded(given.sealed.signature)
        if given.sender not in peers:
            raise GrandRoundsError("a sealed secret comes from a site whose key did not come with it")
        if not signed_by(signature, _addressed(box, self._registration.site), peers[given.sender]):
            raise GrandRoundsError("a sealed secret is not signed by the site that it is said to come from")
        secret = unseal(box, self._key, PURPOSE)
        if self._secret.exists() and self._secret.read_bytes() != secret:
            raise GrandRoundsError("the sites' secret has changed since this site first got it")
        self._keep_secret(secret)
        self._audit.write(event="secret received", sender=given.sender)

    def _keep_secret(self, secret: bytes) -> None:
        write_whole(self._secret, secret)
        self._secret.chmod(0o600)

    def _known_peers(self, keys: Mapping[str, str]) -> dict[str, PublicKey]:
        """With whom a secret may be shared."""
        if not self._runner.algorithm.needs_secret:
            raise GrandRoundsError(
                "this federation's algorithm needs no secret of the sites, so there is none to share"
            )
        return self._peers.check(keys)


def _addressed(box: bytes, site: str) -> bytes:
    """What is signed: the box and whom it is for."""
    return f"{PURPOSE} for {site}:".encode() + box


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise GrandRoundsError("a sealed secret can't be read: it is cut short or not ours") from error
