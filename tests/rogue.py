"""A hostile site: the real process of an honest one, with its replies forged and its connection misused.

`play` is the prelude of `grandrounds site join` (tests/real/test_attacks.py).
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Message, RecordDict
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest

from grandrounds.deployment import handler
from grandrounds.deployment.flower import guard, node
from grandrounds.deployment.flower.internals import message_to_proto, remove_content_from_message
from grandrounds.deployment.flower.records import from_records
from grandrounds.deployment.keys import public_bytes
from grandrounds.federation.contract import Registration
from grandrounds.simulation.attackers import forged
from tests.forgeries import MARKUP, Reply, Script

MEGABYTE = bytes(1 << 20)
Connection = Any


class _SilenceError(Exception):
    """Nothing is sent."""


def play(rounds: Mapping[str, str], registering: str = "") -> None:
    """In this process, from now on: one attack a round, by its name, and what is forged before round 1."""
    script = Script({int(round): name for round, name in rounds.items()})
    honest = node._Connection._answer

    def answer(self: Connection, app: Any, message: Message, tree: Any) -> None:
        def forging(asked: Message, context: Context) -> Message:
            reply = app(asked, context)
            name = script.attack(asked)
            if name in WIRE:
                WIRE[name][0](self, reply)
                content: RecordDict | None = Reply(*from_records(reply.content)).saying(
                    answer={"lost": "refused: it does other things", "version": None}
                )
            else:
                content = script(asked, reply)
            if content is None:
                raise _SilenceError
            return Message(content, reply_to=asked)

        try:
            honest(self, forging, message, tree)
        except _SilenceError:
            pass
        except Exception as problem:  # what SuperLink did not take
            print(f"an attack broke off: {type(problem).__name__}", file=sys.stderr)

    node._Connection._answer = answer  # type: ignore[method-assign]
    if registering:
        start = handler.MessageHandler.__init__

        def opened(self: Any, runner: Any, registration: Registration, about: Any, *rest: Any) -> None:
            start(self, runner, *REGISTERING[registering][0](registration, about), *rest)

        handler.MessageHandler.__init__ = opened  # type: ignore[method-assign, assignment]
        if registering == "another version":
            handler.__version__ = f"9.9 {MARKUP}"


def _with(**changes: Any) -> Callable[[Registration, Any], tuple[Registration, Any]]:
    return lambda registration, about: (replace(registration, **changes), about)


REGISTERING: dict[str, tuple[Callable[[Registration, Any], tuple[Registration, Any]], str]] = {
    "10^12 examples": (
        lambda r, about: (replace(r, counts={**r.counts, "examples": 10**12}), about),
        "site 'rogue' registered counts that can't be",
    ),
    "labels of markup": (_with(labels=["[/b]", MARKUP]), "site 'rogue' has the labels [/b], \\[/bold]"),
    "counts of labels": (
        lambda r, about: (r, {**about, "label_counts": {"[/b]": -5}}),
        "site 'rogue' registered counts of labels that can't be",
    ),
    "other shapes": (_with(manifest={"[/b]\x1b": (1, 2)}), "site 'rogue' shares"),
    "another version": (lambda r, about: (r, about), "site 'rogue' runs grandrounds 9.9 \\[/bold] [red]"),
    "a billion times its examples": (
        lambda r, about: (forged(r, 10**9), about),
        "it counts for 50.0% (federation.largest_share)",
    ),
}
"""What it says of itself, and how that is named."""


def _headers(connection: Connection, **more: str) -> dict[str, str]:
    key, stamp = connection._door.key, datetime.now(UTC).isoformat()
    signature = key.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        guard.KEY.decode(): b64encode(public_bytes(key.public_key())).decode(),
        guard.TIME.decode(): stamp,
        guard.SIGNATURE.decode(): b64encode(signature).decode(),
        **more,
    }


def _send(connection: Connection, path: str, body: Iterator[bytes], headers: Mapping[str, str]) -> int:
    """The status of a raw request; zero where SuperLink hung up."""
    door = connection._door
    trusted = ssl.create_default_context(cafile=str(door.ca))
    with suppress(httpx.HTTPError), httpx.Client(verify=trusted, timeout=60) as client:
        return client.post(f"https://{door.address}{path}", content=body, headers=dict(headers)).status_code
    return 0


def _megabytes(number: int, pause: float = 0.0) -> Iterator[bytes]:
    for _ in range(number):
        yield MEGABYTE
        time.sleep(pause)


def _large(signed: bool) -> Callable[[Connection, Message], None]:
    def attack(connection: Connection, reply: Message) -> None:
        length = {"content-length": str(1200 << 20)}
        headers = _headers(connection, **length) if signed else length
        _send(connection, "/v1/fleet/push-object", _megabytes(1200), headers)

    return attack


def _endless(connection: Connection, reply: Message) -> None:
    _send(connection, "/v1/fleet/push-object", _megabytes(1200), _headers(connection))


def _administer(connection: Connection, reply: Message) -> None:
    headers = _headers(connection, **{"content-length": "0"})
    for path in ("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/pull-messages"):
        _send(connection, path, iter(()), headers)


def _at_once(connection: Connection, reply: Message) -> None:
    def one() -> None:
        headers = _headers(connection, **{"content-length": str(30 << 20)})
        _send(connection, "/v1/fleet/push-object", _megabytes(30, pause=0.05), headers)

    crowd = [threading.Thread(target=one) for _ in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()


def _push(connection: Connection, reply: Message, **about: Any) -> None:
    """A message that is not what an honest site would push."""
    proto = message_to_proto(remove_content_from_message(reply))
    proto.metadata.message_id = os.urandom(32).hex()
    for name, value in about.items():
        setattr(proto.metadata, name, value)
    tree = ObjectTree(object_id=proto.metadata.message_id)
    connection._client.PushMessages(
        PushMessagesRequest(node=connection._node, messages_list=[proto], message_object_trees=[tree])
    )


def _object(connection: Connection, reply: Message) -> None:
    run = reply.metadata.run_id
    for _ in range(20):
        content = os.urandom(1 << 20)
        request = PushObjectRequest(node=connection._node, run_id=run, object_id="0" * 64, object_content=content)
        connection._client.PushObject(request)


WIRE: dict[str, tuple[Callable[[Connection, Message], None], str]] = {
    "a body of 1.2 GB": (_large(True), "refused, rogue: more than 33554432 bytes"),
    "a body of 1.2 GB without a key": (_large(False), "refused, a stranger: key"),
    "a body without its length": (_endless, "refused, rogue: say how long it is"),
    "the coordinator's own requests": (_administer, "refused, rogue: this is for the coordinator alone"),
    "eight bodies of 30 MB at once": (_at_once, "refused, rogue: busy"),
    "an ask to another site": (
        lambda c, r: _push(c, r, reply_to_message_id="", src_node_id=1, dst_node_id=12345),
        "refused, rogue: a message that is no reply: only the coordinator asks",
    ),
    "a reply in another's name": (
        lambda c, r: _push(c, r, src_node_id=12345),
        "refused, rogue: a message in the name of another",
    ),
    "objects of no reply": (_object, "refused, rogue: an object of no reply of its own"),
}
"""Attacks on SuperLink itself, and how its log names them."""


def prelude(rounds: Mapping[int, str], registering: str, repository: str) -> str:
    """Python for the process of the site."""
    words = json.dumps({str(round): name for round, name in rounds.items()})
    path = f"import sys\nsys.path.insert(0, {repository!r})\n"
    return f"{path}import json\nfrom tests.rogue import play\nplay(json.loads({words!r}), {registering!r})\n"
