"""Whoever opens connections to SuperLink and says nothing, or says it slowly, keeps no site out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import uvicorn

from grandrounds.deployment.flower import connections
from grandrounds.deployment.flower.connections import MOST_HEADERS, Connection
from tests.hosts import free_port, until

REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


async def healthy(scope: object, receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server that has ten places, and waits a second."""
    monkeypatch.setattr(connections, "SOON", 1.0)
    monkeypatch.setattr(connections, "MOST_SILENT", 5)
    made = free_port()
    config = uvicorn.Config(
        healthy, "127.0.0.1", made, http=Connection, ws="none", lifespan="off", limit_concurrency=10
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield made
    server.should_exit = True
    thread.join(10)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answered(connection: socket.socket) -> bytes:
    """What comes back; nothing where it was hung up."""
    with suppress(OSError):
        return connection.recv(10_000)
    return b""


def asked(port: int) -> bytes:
    with connect(port) as connection:
        connection.sendall(REQUEST)
        return answered(connection)


def test_connections_that_say_nothing_leave_room_and_are_hung_up(port: int) -> None:
    crowd = [connect(port) for _ in range(30)]
    try:
        until(lambda: asked(port).startswith(b"HTTP/1.1 200"), 30)
        assert [answered(one) for one in crowd] == [b""] * 30
    finally:
        for one in crowd:
            one.close()
    until(lambda: not connections.silent, 10)


@pytest.mark.parametrize("before", [b"", REQUEST])
def test_headers_that_come_slowly_are_not_waited_for(port: int, before: bytes) -> None:
    """A letter at a time; also after a whole request, when the first letter ends uvicorn's own patience."""
    with connect(port) as connection:
        if before:
            connection.sendall(before)
            assert answered(connection).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        with suppress(OSError):
            for letter in REQUEST[:-2] * 20:
                connection.sendall(bytes([letter]))
                time.sleep(0.1)
        assert time.monotonic() - began < 20
        assert answered(connection) == b""


def test_headers_without_end_are_not_kept(port: int) -> None:
    sent = 0
    with connect(port) as connection:
        connection.sendall(REQUEST[:-2])
        with suppress(OSError):
            while sent < 1000 * MOST_HEADERS:
                connection.sendall(b"x-a: " + b"b" * 1000 + b"\r\n")
                sent += 1007
        assert sent < 500 * MOST_HEADERS
    assert asked(port).startswith(b"HTTP/1.1 200")


def test_one_connection_asks_again_and_again(port: int) -> None:
    with connect(port) as connection:
        for _ in range(5):
            connection.sendall(REQUEST)
            assert answered(connection).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)
    until(lambda: not connections.silent, 10)
