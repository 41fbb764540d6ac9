"""A hostile coordinator: the real process of an honest one, which after the handshake asks a site what it likes.

`play` is the prelude of `grandrounds coordinator` (tests/real/test_asks.py). The federation is FedNER's, whose sites
answer more than those of any other algorithm: gradients, scores, and that their own model is saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric import ec

from grandrounds.deployment.flower.grid import Letter
from grandrounds.deployment.keys import CURVE, public_text
from grandrounds.deployment.protocol import Answered, Asked, AskMethod, FinalModel, Hello, Keys, Place
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.payloads import Packed, Parameters
from grandrounds.runs.loop import RoundLoop

SITE, SIZE = "mercy", 5
Content = tuple[Asked, list[bytes]]


@dataclass
class Asker:
    """What an honest coordinator would ask first, and changes of it."""

    loop: RoundLoop

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return dict(Parameters.of(self.loop.server.model, self.loop.algorithm.shared).values)

    def ask(self, shift: float = 0.0, message: tuple[Any, ...] = (SIZE,), **changes: Any) -> Content:
        shifted = {name: value + shift for name, value in self.weights.items()}
        return self.with_payload(Parameters(shifted).pack("fp32"), message, **changes)

    def with_payload(self, packed: Packed, message: tuple[Any, ...] = (SIZE,), **changes: Any) -> Content:
        algorithm: Any = self.loop.algorithm
        honest: dict[str, Any] = {
            "site": SITE,
            "algorithm": algorithm.name,
            "options": json.loads(json.dumps(asdict(algorithm))),
            "method": "learn",
            "round": 1,
            "exchange": 1,
            "message": [Place(payload=0), *message],
            "config": self.loop.federation.config,
            "start": None,
            "commit": "00001.1",
            "needed": [],
            "public": "",
            "public_set": None,
        }
        return AskMethod(**{**honest, **changes}), [packed.to_bytes()]

    def score(self, split: str, **changes: Any) -> Content:
        return self.ask(message=(split,), method="score", commit=None, **changes)

    def others(self, options: dict[str, Any]) -> dict[str, Any]:
        algorithm: Any = self.loop.algorithm
        return {**asdict(algorithm), **options}

    def keys(self) -> Content:
        return Keys(keys={SITE: public_text(ec.generate_private_key(CURVE()).public_key())}), []

    def model(self) -> Content:
        packed = Parameters({name: value * 0 + 7 for name, value in self.weights.items()}).pack("fp32")
        return FinalModel(round=1, digest="0" * 64), [packed.to_bytes()]

    def endless(self) -> Content:
        """A gigabyte of zeros, where weights were declared."""
        return self.with_payload(Packed("parameters", {}, {"w": torch.zeros(1 << 24)}))


GIVEN = "answered"
ALREADY = "refused: this round and exchange were answered already, to an ask with other content"
UNUSABLE = "failed: PayloadError; the site's own log says more"
ASKS: dict[str, tuple[Callable[[Asker], Content], str]] = {
    "a gradient, as the terms say": (lambda a: a.ask(), GIVEN),
    "the same ask again, as after a lost reply": (lambda a: a.ask(), GIVEN),
    "the same round and exchange with other weights": (lambda a: a.ask(0.1), ALREADY),
    "the same called read-only": (lambda a: a.ask(0.1, commit=None), ALREADY),
    "a gradient of one sentence": (
        lambda a: a.ask(message=(1,), exchange=2),
        "refused: the size of mini-batches was 5 and is 1",
    ),
    "mini-batches that differ by one sentence": (
        lambda a: a.ask(message=(SIZE - 1,), exchange=2),
        "refused: the size of mini-batches was 5 and is 4",
    ),
    "a mini-batch of 10^12 sentences": (
        lambda a: a.ask(message=(10**12,), exchange=2),
        "refused: the size of mini-batches was 5 and is 1000000000000",
    ),
    "a mini-batch of its choice": (
        lambda a: a.ask(message=(SIZE, 0), exchange=2),
        "refused: the size of mini-batches was 5 and is 5 0",
    ),
    "a round beyond the terms": (lambda a: a.ask(round=3), "refused: the terms have 2 rounds"),
    "a negative round": (lambda a: a.ask(round=-1), "refused: the terms have 2 rounds"),
    "an exchange beyond the algorithm's": (lambda a: a.ask(exchange=4), "refused: a round of this algorithm has 3"),
    "scores on what it trains on": (
        lambda a: a.score("train", exchange=2),
        "refused: a site is scored on its validation and test data alone",
    ),
    "another algorithm": (
        lambda a: a.ask(algorithm="fedavg", options={}),
        "refused: this site takes part in another algorithm",
    ),
    "private layers called shared": (
        lambda a: a.ask(options=a.others({"private": []})),
        "refused: this site takes part in another algorithm, or with other options",
    ),
    "terms that it was not enrolled on": (
        lambda a: a.ask(config="0" * 64),
        "refused: the shared config at this site is another one",
    ),
    "a method that is the server's": (lambda a: a.ask(method="evaluate", exchange=2), "failed: "),
    "a method that is Python's": (lambda a: a.ask(method="__reduce__", exchange=2), "failed: "),
    "another site's gradient": (lambda a: a.ask(site="general"), "refused: this is another site"),
    "private state that is a path": (lambda a: a.ask(start="../../../../etc/passwd", exchange=2), "refused: "),
    "to keep private state under a path": (lambda a: a.ask(commit="../../../tmp/grandrounds", exchange=3), "refused: "),
    "64 MB of weights that nobody declared": (lambda a: a.endless(), ALREADY),
    "a public set that the terms do not know": (lambda a: a.ask(public="f" * 16, round=2), "refused: the public set"),
    "the sites' secret, where none is needed": (lambda a: a.keys(), "failed: GrandRoundsError"),
    "a model with another digest than it says": (lambda a: a.model(), "refused: "),
    "scores on its test data, as the terms say": (lambda a: a.score("test", exchange=2), GIVEN),
    "scores of other weights, once after the best round": (
        lambda a: a.ask(0.1, ("test",), method="score", commit=None, exchange=2),
        GIVEN,
    ),
    "scores of a third model": (
        lambda a: a.ask(0.2, ("test",), method="score", commit=None, exchange=2),
        ALREADY,
    ),
    "a greeting": (lambda a: (Hello(), []), "done"),
    "another gradient after the greeting, as when a run is resumed": (lambda a: a.ask(0.1), GIVEN),
    "a third one": (lambda a: a.ask(0.2), ALREADY),
    "a second greeting": (lambda a: (Hello(), []), "done"),
    "a third gradient after it": (
        lambda a: a.ask(0.2),
        "refused: this round and exchange were answered 2 times, to asks that differ",
    ),
    "weights of another shape": (
        lambda a: a.with_payload(Parameters({"w": torch.ones(3)}).pack("fp32"), round=2),
        UNUSABLE,
    ),
    "a round that has a checkpoint behind it": (lambda a: a.ask(0.3), "refused: round 1 is over"),
}
"""What it asks, and how that ends."""
HONEST = 8
"""Of them an honest coordinator, too, would ask."""


def play(out: str) -> None:
    """In this process, from now on: after the handshake all of it is asked, and what came back is written down."""

    def go(loop: RoundLoop) -> Any:
        loop.sites = [site for site in loop.sites if site.site == SITE]
        asker, found = Asker(loop), []
        transport: Any = loop.transport
        for name, (make, _) in ASKS.items():
            message, payloads = make(asker)
            (reply,) = transport.converse([Letter(SITE, message, payloads)], patience=120)
            said = reply.message
            lost = reply.lost or (said.lost if isinstance(said, Answered) else None)
            ended = lost or (GIVEN if reply.payloads else "done")
            found.append({"ask": name, "ended": ended, "bytes": sum(map(len, reply.payloads))})
        Path(out).write_text(json.dumps(found))
        raise GrandRoundsError("all was asked")

    RoundLoop.go = go  # type: ignore[method-assign]
