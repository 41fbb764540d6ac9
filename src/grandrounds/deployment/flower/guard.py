"""What the SuperLink process runs: Flower's SuperLink behind a guard.

Flower reads a request's body before it looks who sent it, so the guard looks first: a stranger's body is never read,
and a site's is bounded. A script of its own that imports little of ours: torch would take half a gigabyte and seconds.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HEADER, REFUSED = "x-grandrounds-coordinator", "x-grandrounds-refused"
SITES, HEALTH = "/v1/fleet/", "/health"
KEY, TIME, SIGNATURE = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"
EARLY, LATE = 5, 305
"""Seconds that a site's clock may be ahead, and that a request may be old: as Flower has it."""
MOST_BODY = 1 << 25
"""Bytes of a request: payloads travel in pieces of 5 MB, and a message without them has 16 MB at most."""
MOST_AT_ONCE, MOST_CONNECTIONS = 256, 1000
Refusal = tuple[int, str]


class Guard:
    """Whatever is not for sites is for who knows the secret; what is for sites is for who has a registered key."""

    def __init__(self, app: Callable[..., Awaitable[None]], secret: str, keys: Sequence[str] = ()) -> None:
        """`keys` are the sites', in PEM."""
        self._app, self._secret = app, secret.encode()
        self._keys = {base64.b64encode(key.encode()): _public(key) for key in keys}
        self._busy = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        if refusal is None and self._busy >= MOST_AT_ONCE:
            refusal = 503, "busy"
        if refusal is not None:
            status, why = refusal
            headers = [(REFUSED.encode(), why.encode()), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": why.encode()})
            return
        self._busy += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy -= 1

    def _refusal(self, scope: Mapping[str, Any]) -> Refusal | None:
        """Status and reason; None: it may pass. Nothing of its body has been read."""
        headers, path = dict(scope["headers"]), scope["path"]
        if not path.startswith(SITES) and path != HEALTH:
            ours = hmac.compare_digest(headers.get(HEADER.encode(), b""), self._secret)
            return None if ours else (403, "this is for the coordinator alone")
        if path != HEALTH and (why := self._stranger(headers)):
            return 401, why
        return _too_large(headers, scope.get("method", "GET"), 0 if path == HEALTH else MOST_BODY)

    def _stranger(self, headers: Mapping[bytes, bytes]) -> str:
        """What keeps it out; empty: a site whose key we have."""
        key, stamp = self._keys.get(headers.get(KEY, b"")), headers.get(TIME, b"")
        if key is None:
            return "key"
        try:
            key.verify(base64.b64decode(headers.get(SIGNATURE, b"")), stamp, ec.ECDSA(hashes.SHA256()))
            age = (datetime.now(UTC) - datetime.fromisoformat(stamp.decode("ascii"))).total_seconds()
        except (InvalidSignature, ValueError, TypeError):
            return "key"
        return "" if -EARLY < age < LATE else "clock"


def _too_large(headers: Mapping[bytes, bytes], method: str, most: int) -> Refusal | None:
    declared = headers.get(b"content-length", b"" if method == "POST" else b"0")
    if b"transfer-encoding" in headers or not declared.isdigit():
        return 411, "say how long it is"
    return (413, f"more than {most} bytes") if len(declared) > 15 or int(declared) > most else None


def _public(pem: str) -> ec.EllipticCurvePublicKey:
    key = serialization.load_pem_public_key(pem.encode())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("not an elliptic-curve key")
    return key


def _serve() -> None:
    from starlette.middleware import Middleware

    from grandrounds.deployment.flower.internals import run_superlink

    told = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_coordinator, daemon=True).start()
    guard = Middleware(Guard, secret=told["secret"], keys=told["keys"])
    run_superlink(lambda: (guard,), MOST_CONNECTIONS)


def _end_with_coordinator() -> None:
    """It holds the other end of our standard input."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    _serve()
