"""A small application behind the guard, and servers that end with the test."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive

from grandrounds.web.access import Access
from grandrounds.web.answers import HANDLERS, page, static
from grandrounds.web.limits import Limits
from grandrounds.web.serving import Server, guarded, listen

TOKEN = "correct-horse-battery-staple"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
AUTHORISED = [(b"authorization", f"Bearer {TOKEN}".encode())]
SMALL = Limits(1000, 0.5)
SECRET = "Mrs Blyth denies chest pain"


def access(token: str | None = TOKEN, **more: object) -> Access:
    return Access.of("127.0.0.1", 8000, token, open_paths=["/health"], **more)  # type: ignore[arg-type]


def small(token: str | None = TOKEN, limits: Limits = SMALL) -> ASGIApp:
    async def home(request: Request) -> Response:
        return page("refusal.html", title="Home", sentence=request.query_params.get("say", "home"))

    async def echo(request: Request) -> Response:
        return JSONResponse({"length": len(await request.body())})

    async def broken(request: Request) -> Response:
        raise RuntimeError(SECRET)

    async def slow(request: Request) -> Response:
        await asyncio.sleep(1)
        return JSONResponse({})

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/", home),
        Route("/echo", echo, methods=["POST"]),
        Route("/broken", broken),
        Route("/slow", slow, methods=["POST"]),
        Route("/health", health),
        Route("/static/{name}", static),
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return guarded(app, access(token), limits)


def client(app: ASGIApp | None = None, host: str = "127.0.0.1:8000") -> TestClient:
    return TestClient(app or small(), base_url=f"http://{host}", follow_redirects=False)


def raw(
    method: str, target: str, headers: list[tuple[bytes, bytes]], receive: Receive, app: ASGIApp | None = None
) -> tuple[int, bytes]:
    """The status and body that an application gives a request as it is, which no client has tidied up."""
    answered = list[Message]()

    async def send(message: Message) -> None:
        answered.append(message)

    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8000"), *headers],
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
    }
    asyncio.run((app or small())(scope, receive, send))
    return answered[0]["status"], b"".join(message["body"] for message in answered[1:])


@contextmanager
def running(app: ASGIApp) -> Iterator[int]:
    """The port of a server that runs in a thread."""
    listening = listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    with running_on(listening, app):
        yield port


@contextmanager
def running_on(listening: socket.socket, app: ASGIApp, ending: Callable[[], None] = lambda: None) -> Iterator[None]:
    server = Server(app, ending)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
