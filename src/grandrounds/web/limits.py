"""How much a request may bring, and how long it may take to bring it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grandrounds.web.answers import refusal


@dataclass(frozen=True)
class Limits:
    """Of a request's body."""

    body_bytes: int = 4_000_000
    body_seconds: float = 30.0


class BodyLimit:
    """Reads a body before the rest of the application does: what is declared too large is not read at all, and what
    turns out to be is read no further."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        too_large = refusal(
            413, f"a request has at most {self.limits.body_bytes:,} bytes here; send less text at a time", headers
        )
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 12 or int(declared) > self.limits.body_bytes:
            await too_large(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                body = await self._body(receive)
        except TimeoutError:
            slow = f"the request took longer than {self.limits.body_seconds:g} s to arrive; send it again"
            await refusal(408, slow, headers, {"Connection": "close"})(scope, receive, send)
            return
        except ConnectionResetError:
            return  # nobody is there to be answered
        await (self.app(scope, _replay(body, receive), send) if body is not None else too_large(scope, receive, send))

    async def _body(self, receive: Receive) -> bytes | None:
        """All of it; None if it is too large."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed
