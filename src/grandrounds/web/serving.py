"""Starting a server on this machine, quietly, and ending it so that whoever has asked is answered.

uvicorn has no limit on how long a connection may stay half open or leave an answer unread; ours ends such ones, so that
a thousand of them keep nobody else waiting.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from math import ceil

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from grandrounds.errors import ConfigError
from grandrounds.web.access import Access, Guard
from grandrounds.web.answers import Answers
from grandrounds.web.limits import BodyLimit, Limits

PATIENCE = 10.0
"""Seconds that a connection may be open without a whole request, or leave an answer unread."""
MOST_CONNECTIONS = 500
"""More than so many, and the one that has waited longest without a request gives way."""


def guarded(app: ASGIApp, access: Access, limits: Limits) -> ASGIApp:
    """An application behind all that protects it."""
    return Answers(Guard(BodyLimit(app, limits), access))


def listen(host: str, port: int) -> socket.socket:
    """A socket that is ours from here on; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"there is no port {port}; choose one from 1024 to 65535 with --port, or --port 0")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"'{host}' is no address of this machine; try --host 127.0.0.1") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise ConfigError(_why(error, host, port)) from error
    return listening


def run(app: ASGIApp, listening: socket.socket, ending: Callable[[], None] = lambda: None, grace: float = 60) -> None:
    """Answer until Ctrl-C or SIGTERM; then what has begun is finished, within `grace` seconds. `ending` is called
    first, for answers that would never end by themselves, such as a stream of events."""
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again when all is done
        Server(app, ending, grace).run([listening])


class Server(uvicorn.Server):
    """uvicorn's, without its log and its trust in proxies."""

    def __init__(self, app: ASGIApp, ending: Callable[[], None] = lambda: None, grace: float = 60) -> None:
        super().__init__(_settings(app, grace))
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def _settings(app: ASGIApp, grace: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        log_config=None,
        log_level="critical",  # its own lines hold addresses that strangers chose
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=ceil(grace),
        h11_max_incomplete_event_size=32_768,
    )


class Connection(H11Protocol):
    """uvicorn's, with patience that ends."""

    since = 0.0
    """When it began to wait for a request; 0 while one is being answered."""
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that we hear of whatever is left unread
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            idle = [c for c in self.connections if isinstance(c, Connection) and c.since and c is not self]
            if idle:
                min(idle, key=lambda connection: connection.since).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()  # the time of its body, and of the answer, is limited elsewhere

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()  # a request that came behind it

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(PATIENCE, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        if self._unread is not None:
            self._unread.cancel()

    def _wait(self) -> None:
        self._stop_waiting()
        self.since = self.loop.time()
        self._waiting = self.loop.call_later(PATIENCE, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.since = 0.0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def _why(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use; choose another one with --port, or --port 0 for any that is free"
        case errno.EACCES:
            return f"port {port} is for administrators only; choose one from 1024 on with --port"
        case errno.EADDRNOTAVAIL:
            return f"'{host}' is no address of this machine; try --host 127.0.0.1"
    return f"this machine can't listen on '{host}', port {port}; choose others with --host and --port"
