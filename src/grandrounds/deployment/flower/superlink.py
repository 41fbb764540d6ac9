"""Flower's SuperLink in a process of its own, and the coordinator's way in: keys, one run, its Grid.

SuperLink serves nodes, runs and their administration on one port. Sites need the first only, so everything else asks
for a secret that is made anew at each start: who can reach the port can't submit runs, register keys or read replies.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from flwr.app import ConfigRecord, Message, RecordDict

from grandrounds.deployment.flower import guard
from grandrounds.deployment.flower.internals import (
    SUPERLINK_NODE_ID,
    AcquireTaskRequest,
    ConfirmMessageReceivedRequest,
    ControlHttpClient,
    Fab,
    HeartbeatSender,
    HttpGrid,
    ObjectPullError,
    ObjectUnavailableError,
    ProtobufCall,
    ProtobufRequestContext,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    RegisterNodeRequest,
    RuntimeHttpClient,
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    StartRunRequest,
    TaskIdentity,
    TaskType,
    build_fab_from_disk,
    fab_to_proto,
    inflate_object_from_contents,
    iterate_object_tree,
    make_pull_object_fn_protobuf,
    make_task_heartbeat_fn_http,
    run_from_proto,
)
from grandrounds.deployment.flower.records import TOO_LARGE
from grandrounds.errors import GrandRoundsError

MOST_OBJECTS = 100
"""Of a reply: a few records and arrays, and its payloads in pieces of megabytes."""
EVERYWHERE = ("0.0.0.0", "::")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_APP = """[project]
name = "grandrounds"
version = "1.0.0"
description = "Sites run their own copy of grandrounds, never this."
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "grandrounds"
[tool.flwr.app.components]
serverapp = "grandrounds_app:server"
clientapp = "grandrounds_app:client"
"""
_CODE = """from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()
"""


class SuperLink:
    """A running SuperLink; it ends with this process."""

    def __init__(
        self, folder: Path, bind: str, port: int, tls: tuple[Path, Path, Path] | None, keys: Mapping[str, bytes]
    ) -> None:
        """`tls` are the CA's certificate, the server's and its key; without it everything travels in the open. `keys`
        are the public ones, by site."""
        self._keys = keys
        self._secret, self._folder = secrets.token_hex(32), folder
        self._ca = tls[0].read_bytes() if tls else None
        self._address = f"{'127.0.0.1' if bind in EVERYWHERE else bind}:{port}"
        safety = ["--insecure"]
        if tls:
            names = ("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile")
            safety = [word for name, path in zip(names, tls, strict=True) for word in (name, str(path))]
            safety.append("--enable-supernode-auth")
        self._log = (folder / "superlink.log").open("ab")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", guard.__file__, "--host", bind, "--port", str(port), "--isolation", "process"),
                *("--disable-runtime-dependency-installation", *safety),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **QUIET, "FLWR_HOME": str(folder / "flower")},
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        self._tell(json.dumps({"secret": self._secret, "keys": {site: key.decode() for site, key in keys.items()}}))
        self._heartbeat: HeartbeatSender | None = None

    def open_run(self) -> Grid:
        """Register the sites' public keys, start a run, and take the part of its server."""
        control = self._client(ControlHttpClient)
        self._wait(control)
        self.check()  # it may be another's SuperLink that answered
        for key in self._keys.values():
            control.RegisterNode(RegisterNodeRequest(public_key=key))
        app = self._folder / "flower" / "app"
        (app / "grandrounds_app").mkdir(parents=True, exist_ok=True)
        (app / "pyproject.toml").write_text(_APP)
        (app / "grandrounds_app" / "__init__.py").write_text(_CODE)
        content = build_fab_from_disk(app)
        control.StartRun(StartRunRequest(fab=fab_to_proto(Fab(sha256(content).hexdigest(), content, {}))))
        acquired = self._client(RuntimeHttpClient).AcquireTask(
            AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
        )
        grid = Grid(self._address, self._ca, acquired.token, _Secret(self._secret))
        given = grid.client.PullTaskInput(PullTaskInputRequest())
        grid.set_run(run_from_proto(given.run))
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id  # what messages are stamped with
        TaskIdentity.node_id = given.context.node_id
        self._heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(grid.client))
        self._heartbeat.start()
        return grid

    def limit(self, grid: Grid, largest: int) -> None:
        """From now on a payload of a site has so many bytes at most; a reply has a few, and its message."""
        grid.largest = guard.MOST_BODY + 4 * largest
        # One piece more than the coordinator fetches, so that it sees that there is too much.
        self._tell(str(grid.largest + guard.MOST_BODY))

    def _tell(self, line: str) -> None:
        """Its standard input stays open: it ends when we do."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        if self._heartbeat is not None and self._heartbeat.is_running:
            self._heartbeat.stop()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process.kill()
        self._log.close()

    def check(self) -> None:
        """GrandRoundsError where it is no longer there."""
        if self._process.poll() is not None:
            raise GrandRoundsError(
                f"Flower's SuperLink ended by itself; '{self._folder / 'superlink.log'}' says why "
                "(is the port already taken?); go on with --resume"
            )

    def _wait(self, control: ControlHttpClient, patience: float = 180.0) -> None:
        until = time.monotonic() + patience
        url = f"{'https' if self._ca else 'http'}://{self._address}/health"
        problem = ""
        while time.monotonic() < until:
            self.check()
            try:
                if control._client.get(url).status_code == httpx.codes.OK:
                    return
                problem = "something else answers at this port"
            except httpx.TransportError as error:
                problem = str(error)
            time.sleep(0.1)
        raise GrandRoundsError(f"Flower's SuperLink did not begin to answer within {patience:.0f} s ({problem})")

    def _client(self, kind: Any) -> Any:
        versions = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
        return kind.from_server_address(self._address, self._ca is None, self._ca, [versions, _Secret(self._secret)])


class _Secret:
    """Shows SuperLink that it is us."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[guard.HEADER] = self._secret
        return call_next(context)


class Grid(HttpGrid):
    """Flower's, but that it never waits for a reply whose sender was killed while sending it, and takes none that is
    larger than a reply can be."""

    largest = guard.MOST_BODY
    """Bytes of a reply with all its payloads; more is known once sites have registered."""

    def __init__(self, address: str, ca: bytes | None, token: str, secret: _Secret) -> None:
        super().__init__(address, ca is None, ca, token=token)
        self._secret = secret
        self._coming: dict[str, _Coming] = {}

    @property
    def client(self) -> RuntimeHttpClient:
        return self._runtime_client

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        self._coming = {name: coming for name, coming in self._coming.items() if coming.reply_to in wanted}
        # SuperLink forgets a message once it has reported the reply, and would call it lost if it were asked again.
        asked = wanted - {coming.reply_to for coming in self._coming.values()}
        if asked:
            response = self.client.PullMessages(PullAppMessagesRequest(message_ids=asked))
            for proto, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                objects = [part.object_id for part in iterate_object_tree(tree)]
                many = len(objects) > MOST_OBJECTS + (self.largest >> 20)
                self._coming[proto.metadata.message_id] = _Coming(
                    proto.metadata.reply_to_message_id, objects, too_large=many
                )
        whole = [name for name, coming in self._coming.items() if self._pull(coming)]
        return [self._inflated(name, self._coming.pop(name)) for name in whole]

    def _pull(self, coming: _Coming) -> bool:
        """Fetch what has arrived of it; whether that is all."""
        run = self.run.run_id
        fetch = make_pull_object_fn_protobuf(self.client.PullObject, self.node, run)
        with suppress(ObjectUnavailableError, ObjectPullError):
            for name in coming.objects:
                if name not in coming.contents and not coming.too_large:
                    coming.contents[name] = fetch(name)
                    coming.too_large = sum(map(len, coming.contents.values())) > self.largest
        return coming.too_large or len(coming.contents) == len(set(coming.objects))

    def _inflated(self, name: str, coming: _Coming) -> Message:
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=self.node, run_id=self.run.run_id, message_object_id=name)
        )
        try:
            if coming.too_large:
                return Message(RecordDict({TOO_LARGE: ConfigRecord()}), reply_to=_asked(coming.reply_to))
            message = inflate_object_from_contents(name, coming.contents)
            if not isinstance(message, Message):
                raise TypeError
        except Exception:  # whatever a site made of it, it is that site's reply and can't be read
            message = Message(RecordDict(), reply_to=_asked(coming.reply_to))
        message.metadata.__dict__["_message_id"] = name
        return message

    def _connect(self) -> None:
        self._client = RuntimeHttpClient.from_server_address(
            self._addr,
            self._insecure,
            self._cert,
            [
                RuntimeVersionHttpInterceptor(component_name="flwr-serverapp"),
                RuntimeTokenHttpInterceptor(token=self._token),
                self._secret,
                _Again(),
            ],
        )


def _asked(message: str) -> Message:
    """A message of this name, to hang a reply on."""
    made = Message(RecordDict(), SUPERLINK_NODE_ID, "query")
    made.metadata.__dict__["_message_id"] = message
    return made


@dataclass
class _Coming:
    """A reply of which some objects have arrived."""

    reply_to: str
    objects: Sequence[str]
    contents: dict[str, bytes] = field(default_factory=dict)
    too_large: bool = False


class _Again:
    """A connection that was idle may have been closed just as we speak."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        for _ in range(2):
            with suppress(httpx.TransportError):
                return call_next(context)
            time.sleep(0.2)
        return call_next(context)
