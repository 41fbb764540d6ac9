"""Messages: what a coordinator may send to a site's handler, and what a site may answer to the coordinator."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from grandrounds import __version__
from grandrounds.deployment.flower.grid import Received, _read
from grandrounds.deployment.flower.records import to_records
from grandrounds.deployment.handler import PURPOSE, MessageHandler, _addressed, _text
from grandrounds.deployment.handshake import Handshake
from grandrounds.deployment.heads import SignedHead
from grandrounds.deployment.keys import CURVE, public_text, seal, sign
from grandrounds.deployment.ledger import SiteLedger
from grandrounds.deployment.protocol import (
    AskMethod,
    Hello,
    Introduction,
    Keys,
    Request,
    Response,
    Sealed,
    Secret,
    decode,
    encode,
)
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import Audit
from grandrounds.federation.contract import Registration, make_algorithm, site_method
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed, unpack
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.runner import SiteRunner
from tests.data.formats.samples import CHANGES
from tests.deployment.grids import MemoryGrid, over
from tests.deployment.samples import REQUESTS, RESPONSES
from tests.federation.samples import EXPECTED, PAYLOADS
from tests.fuzz.scratch import scratch

BETWEEN = b"\x00\x1d\x00"
"""Between a message and each of the payloads that travel beside it."""
ODD: tuple[Any, ...] = (0, -1, 1 << 70, 1e308, True, None, "", "a", "\ud800", "\0", [], {}, [[]], {"": 0}, "é" * 300)
OFTEN = 2_000
"""Messages after which a site's log begins anew: it grows with each."""
SITE = Registration("a", {"examples": 3, "notes": 3}, ["x"], EXPECTED.manifest)


class Messages:
    """JSON, with payloads beside it."""

    def mutate(self, data: bytes, draw: random.Random) -> bytes:
        parts = data.split(BETWEEN)
        if draw.random() < 0.6:
            parts[0] = _revalued(parts[0], draw)
        else:
            i = draw.randrange(len(parts))
            if parts[i]:
                parts[i] = draw.choice(CHANGES)(parts[i], draw.randrange(2**16), draw.randrange(2**16))
        if draw.random() < 0.1:
            parts.insert(draw.randint(1, len(parts)), draw.choice(list(PAYLOADS.values())).pack("fp32").to_bytes())
        return BETWEEN.join(parts)


class Untrained(SiteRunner):
    """Does all that is done with an ask but the training."""

    def _run(self, ask: Ask) -> Answer:
        self.check(ask)
        self._private.read(ask.site, ask.start)
        site_method(self._algorithm, ask.method)
        for part in ask.message:
            if isinstance(part, Packed):
                unpack(part, self._expected)
        return Answer(ask.site, (PAYLOADS["scores"].pack("fp32"),), ask.start)


class Requests(Messages):
    """To a site."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(CURVE())
        self.algorithm = make_algorithm("lazy_mil", {})  # which needs the sites' secret
        self.folder = scratch()
        self.count = 0

    def seeds(self) -> list[bytes]:
        keys = {"a": public_text(self.key.public_key())}
        box = seal(b"s" * 32, self.key.public_key(), PURPOSE)
        sealed = Sealed(box=_text(box), signature=_text(sign(_addressed(box, "a"), self.key)))
        head = SignedHead.of("0" * 64, self.key)
        ours = [
            *(Hello(log=head.head, signature=head.signature), Keys(keys=keys)),
            Secret(sealed=sealed, sender="a", keys=keys),
        ]
        weights = PAYLOADS["parameters"].pack("fp32")
        methods = [name for name in dir(type(self.algorithm)) if _is_site_method(self.algorithm, name)]
        asks = [
            Ask("a", "lazy_mil", {}, method, 1, 1, (weights, "test", 1), "digest", None, "00001.1", ())
            for method in methods
        ]
        asked = [AskMethod.of(ask, lambda packed: 0) for ask in asks]
        made = [encode(Request(id="1", message=message)) for message in (*REQUESTS, *ours)]
        return made + [encode(Request(id="1", message=m)) + BETWEEN + weights.to_bytes() for m in asked]

    def run(self, data: bytes) -> None:
        if self.count % OFTEN == 0:
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            self.handler = self._opened()
        self.count += 1
        self.problem = ""
        message, *payloads = data.split(BETWEEN)
        said, _ = self.handler(message, payloads)
        decode(Response, said)
        kind = self.problem.partition(": ")[0]
        assert not kind or kind in _kin(GrandRoundsError), f"the handler met {kind}: {self.problem}"

    def _opened(self) -> MessageHandler:
        store, log = PrivateStore(self.folder / "states"), self.folder / "audit.jsonl"
        cache: Any = None
        runner = Untrained(self.algorithm, {}, EXPECTED, store, "fp32", "digest", None, cache)
        ledger = SiteLedger(log, 3, self.algorithm)
        return MessageHandler(runner, SITE, {}, Audit(log), self.key, self.folder, ledger, self._hear)

    def _hear(self, sentence: str) -> None:
        self.problem = sentence.removeprefix("a message could not be answered: ") if "answered: " in sentence else ""


class Responses(Messages):
    """From a site."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(CURVE())
        self.folder = scratch()
        self.transport = over(MemoryGrid({}), self.folder, keys={"a": self.key.public_key()})
        task = SimpleNamespace(labels=["x"])
        config = SimpleNamespace(labels_may_differ=False)
        terms: Any = SimpleNamespace(digest="t", tokenizer="k", config=config, task=task, public=(None, "p"))
        setup: Any = SimpleNamespace(expected=EXPECTED)
        watcher: Any = SimpleNamespace(say=lambda sentence: sentence.encode())
        last = self.folder / "last.json"
        last.write_text(json.dumps({"a": {"examples": 3}}))
        self.handshake = Handshake(self.transport, setup, terms, {}, self.folder / "saved", watcher, last)

    def seeds(self) -> list[bytes]:
        whole = Introduction(
            site="a",
            counts=dict(SITE.counts),
            labels=["x"],
            manifest=dict(EXPECTED.manifest),
            version=__version__,
            secret=True,
            terms="t",
            tokenizer="k",
            public=["q"],
        )
        head = SignedHead.of("0" * 64, self.key)
        said = [
            encode(Response(id="1", registration="r", log=head.head, signature=head.signature, message=message))
            for message in (*RESPONSES, whole)
        ]
        return said + [said[1] + BETWEEN + payload.pack("fp32").to_bytes() for payload in PAYLOADS.values()]

    def run(self, data: bytes) -> None:
        message, *payloads = data.split(BETWEEN)
        received = _read("a", to_records(message, payloads), "1") or Received("a", lost="to another request")
        answer = self.transport._answer(received)
        why = answer.lost or ""
        assert "it can't be read (" not in why, f"the coordinator met {why}"
        for part in answer.payloads:
            with suppress(GrandRoundsError):
                unpack(part, EXPECTED)
        with suppress(GrandRoundsError):
            self.handshake._welcome(received)
        if received.response is not None:
            SignedHead(received.response.log, received.response.signature).signed_by(self.key.public_key())
            replace(received, payloads=()).unspooled()


def _revalued(message: bytes, draw: random.Random) -> bytes:
    """With something else in one place of the message."""
    with suppress(ValueError, RecursionError):
        plain = held = json.loads(message)
        while isinstance(held, dict | list) and held:
            key = draw.choice(list(held)) if isinstance(held, dict) else draw.randrange(len(held))
            if not isinstance(held[key], dict | list) or not held[key] or draw.random() < 0.2:
                held[key] = draw.choice(ODD)
                return json.dumps(plain).encode()
            held = held[key]
    return draw.choice(CHANGES)(message, draw.randrange(2**16), draw.randrange(2**16)) if message else message


def _is_site_method(algorithm: Any, name: str) -> bool:
    try:
        return not name.startswith("_") and bool(site_method(algorithm, name))
    except GrandRoundsError:
        return False


def _kin(kind: type) -> set[str]:
    return {kind.__name__}.union(*map(_kin, kind.__subclasses__()))
