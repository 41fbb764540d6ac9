"""What the SuperLink process runs: Flower's SuperLink behind a guard.

A script of its own that imports little of ours: torch would take it half a gigabyte and seconds to start.
"""

from __future__ import annotations

import hmac
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

HEADER = "x-grandrounds-coordinator"
OPEN = ("/v1/fleet/", "/health")


class Guard:
    """Whatever is not for sites is for who knows the secret."""

    def __init__(self, app: Callable[..., Awaitable[None]], secret: str) -> None:
        self._app, self._secret = app, secret.encode()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(OPEN):
            given = dict(scope["headers"]).get(HEADER.encode(), b"")
            if not hmac.compare_digest(given, self._secret):
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b"this is for the coordinator alone"})
                return
        await self._app(scope, receive, send)


def _serve() -> None:
    from starlette.middleware import Middleware

    from grandrounds.deployment.flower.internals import run_superlink

    secret = sys.stdin.buffer.readline().strip().decode()
    threading.Thread(target=_end_with_coordinator, daemon=True).start()
    guard = Middleware(Guard, secret=secret)
    run_superlink(lambda: (guard,))


def _end_with_coordinator() -> None:
    """It holds the other end of our standard input."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    _serve()
