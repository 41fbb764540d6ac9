"""The site's side of the wire: a Flower SuperNode in this process.

It speaks Flower's Fleet API with the site's key, hands every message to a `ClientApp` of ours, and comes back by
itself whenever the coordinator was away.
"""

from __future__ import annotations

import secrets
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from grandrounds.deployment.flower.guard import CLOCK, LIFE, REFUSED
from grandrounds.deployment.flower.internals import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    FleetHttpClient,
    Node,
    NodeAuthHttpInterceptor,
    ProtobufCall,
    ProtobufRequestContext,
    PullMessagesRequest,
    PushMessagesRequest,
    RuntimeVersionHttpInterceptor,
    SendNodeHeartbeatRequest,
    get_all_nested_objects,
    get_object_tree,
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
    message_from_proto,
    message_to_proto,
    no_object_id_recompute,
    public_key_to_bytes,
    pull_and_inflate_object_from_tree,
    push_objects,
    remove_content_from_message,
)
from grandrounds.deployment.flower.records import from_records, to_records
from grandrounds.deployment.handler import MessageHandler
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.payloads import PayloadError

HEARTBEAT = 10.0
"""Seconds; Flower holds a node for gone after two of them."""
FAST, SLOW = 0.1, 2.0
"""Seconds between two looks for a message: after one came, and when none has come for long."""


@dataclass(frozen=True)
class Door:
    """Where the coordinator is and how it is known."""

    address: str
    ca: Path | None
    """The federation's own authority; None: plaintext."""
    key: Any
    """The site's private key."""
    state: Path
    """Remembers our node between two lives of the process."""


def app_of(handler: MessageHandler) -> ClientApp:
    """A ClientApp that passes every message to the handler, and so to `@on_site` methods."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        try:
            received = from_records(message.content)
        except PayloadError:
            received = b"", []  # the handler knows what to say to that
        return Message(to_records(*handler(*received)), reply_to=message)

    return app


def serve(door: Door, app: ClientApp, finished: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Answer the coordinator until `finished`; where it is away, try again with growing pauses."""
    _check(door)
    pause = 0.5
    while not finished():
        try:
            with _Connection(door) as connection:
                say(f"joined the coordinator at {door.address}")
                pause = 0.5
                connection.serve(app, finished)
        except GrandRoundsError:
            raise
        except Exception as error:  # of many kinds in Flower's client, all of them a line that broke
            problem = _explained(error, door)
            if finished():
                return
            say(f"{problem}; trying again in {pause:.0f} s" if pause >= 1 else f"{problem}; trying again")
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


def _check(door: Door) -> None:
    """ConfigError where no patience would help."""
    host, _, port = door.address.rpartition(":")
    if not host or not port.isdigit() or (":" in host and not host.startswith("[")):
        raise ConfigError(f"coordinator = '{door.address}' in site.toml is not host:port (an IPv6 address in brackets)")
    if door.ca is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=door.ca.read_text("ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"'{door.ca}' is not the federation's certificate; ask the coordinator for it") from error


class _Life:
    """Names this life of our node to SuperLink's guard, which tells it from that of another process with our key."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(8)

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[LIFE] = self._name
        return call_next(context)


class _Connection:
    """One life of our node at the SuperLink."""

    def __init__(self, door: Door) -> None:
        key, self._door = door.key, door
        self._client = FleetHttpClient.from_server_address(
            door.address,
            door.ca is None,
            None if door.ca is None else door.ca.read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
                _Life(),
            ],
        )
        self._public = public_key_to_bytes(key.public_key())
        self._stop = threading.Event()

    def __enter__(self) -> _Connection:
        try:
            self._leave_last_life()
            request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
            self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        except BaseException:
            self._client.close()
            raise
        self._door.state.write_text(str(self._node.node_id))
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()
        return self

    def __exit__(self, kind: object, *problem: object) -> None:
        self._stop.set()
        if kind is not None:  # SuperLink drops the last reply of a node that has left; so who is done just stops
            with suppress(httpx.HTTPError, RuntimeError):
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        self._client.close()

    def serve(self, app: ClientApp, finished: Callable[[], bool]) -> None:
        wait = FAST
        while not finished():
            response = self._client.PullMessages(PullMessagesRequest(node=self._node))
            if response.messages_list:
                self._answer(app, message_from_proto(response.messages_list[0]), response.message_object_trees[0])
                wait = FAST
            else:
                time.sleep(wait)
                wait = min(wait * 1.1, SLOW)

    def _answer(self, app: ClientApp, message: Message, tree: Any) -> None:
        run, node = message.metadata.run_id, self._node
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(self._client.PullObject, node, run),
            make_confirm_message_received_fn_protobuf(self._client.ConfirmMessageReceived, node, run),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower's own client does
        began = time.monotonic()
        context = Context(run, node.node_id, {}, RecordDict(), {})
        reply = app(message, context)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            sent = self._client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[time.monotonic() - began],
                )
            )
            push = make_push_object_fn_protobuf(self._client.PushObject, node, run, sent.session_id)
            push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(sent.objects_to_push))

    def _leave_last_life(self) -> None:
        """A process that was killed is still online to Flower for a while, and would keep us out."""
        with suppress(OSError, ValueError, httpx.HTTPStatusError):
            last = int(self._door.state.read_text())
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=last))

    def _beat(self) -> None:
        """While the main thread computes, this one says that we are alive."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
        while not self._stop.wait(HEARTBEAT / 3):
            with suppress(httpx.HTTPError, RuntimeError):  # whoever pulls next will notice
                self._client.SendNodeHeartbeat(request)


def _off(response: httpx.Response) -> str:
    """How far our clock is from the one that refused us; the answer's own date may be of an earlier second."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(response.headers[CLOCK])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return "off"
    return f"{abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}, too far"


def _explained(error: Exception, door: Door) -> str:
    """What is wrong, in a sentence for the hospital's engineer."""
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        refused = error.response.headers.get(REFUSED, "")
        if refused == "key":
            return f"the coordinator at {door.address} does not know this site's key (has it got our public key?)"
        if refused == "clock":
            return (
                f"this machine's clock is {_off(error.response)} from that of the coordinator at {door.address}; set it"
            )
        if status in (401, 412):
            return f"another process serves with this site's key at {door.address}; stop one of them"
        return f"the coordinator at {door.address} answers with status {status}"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and door.ca is None:
        return f"{door.address} broke off: it may speak TLS, and this site's enrolment says plaintext"
    if isinstance(error, httpx.ConnectError):
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            return (
                f"the server at {door.address} is not this federation's coordinator, or its certificate has "
                f"expired ({cause.verify_message})"
            )
        if "SSL" in str(error) or "WRONG_VERSION" in str(error):
            return f"{door.address} does not speak TLS"
        return f"the coordinator at {door.address} can't be reached"
    return f"the connection to {door.address} was lost ({type(error).__name__})"
