"""What the SuperLink process runs: Flower's SuperLink behind a guard.

Flower reads a request's body before it looks who sent it, so the guard looks first: a stranger's body is never read,
and a site's is bounded. What is refused is said once in SuperLink's log, and again each time it has doubled.
A script of its own that imports little of ours: torch would take half a gigabyte and seconds.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HEADER, REFUSED, CLOCK = "x-grandrounds-coordinator", "x-grandrounds-refused", "x-grandrounds-clock"
LIFE = "x-grandrounds-life"
"""A name that a site's node draws whenever it joins."""
SITES, HEALTH, JOIN = "/v1/fleet/", "/health", "/v1/fleet/activate-node"
KEY, TIME, SIGNATURE = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"
EARLY, LATE = 5, 305
"""Seconds that a site's clock may be ahead, and that a request may be old: as Flower has it."""
MOST_BODY = 1 << 25
"""Bytes of a request: payloads travel in pieces of 5 MB, and a message without them has 16 MB at most."""
PUSH, MOST_MESSAGE = "/v1/fleet/push-messages", 1 << 20
"""Where a reply is announced: what it is to, and the digests of its pieces."""
MOST_IN_FLIGHT = 2 * MOST_BODY
"""Bytes of one site's requests at a time: its pieces come one or two at once."""
MOST_AT_ONCE, MOST_OF_ONE, MOST_CONNECTIONS = 256, 32, 1000
"""Requests at a time, those of one site, and connections."""
MOST_LIVES = 100
"""Of one site that are remembered."""
MOST_LINES = 1000
"""Kinds of refusals in the log."""
Refusal = tuple[int, str]


class Guard:
    """Whatever is not for sites is for who knows the secret; what is for sites is for who has a registered key."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        secret: str,
        keys: Mapping[str, str] | None = None,
        say: Callable[[str, str], None] = lambda who, why: None,
    ) -> None:
        """`keys` are the sites', in PEM; `say` hears who was refused, and why."""
        self._app, self._secret, self._say = app, secret.encode(), say
        self._keys = {base64.b64encode(key.encode()): (site, _public(key)) for site, key in (keys or {}).items()}
        self._busy, self._in_flight = Counter[str](), Counter[str]()
        self._lives = defaultdict[str, deque[bytes]](lambda: deque(maxlen=MOST_LIVES))
        """Of each site's node, the current one last."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = dict(scope["headers"])
        who, refusal = self._who(headers), self._refusal(scope)
        size = int(headers.get(b"content-length", b"0")) if refusal is None and who else 0
        if refusal is None and self._is_busy(who, size):
            refusal = 503, "busy"
        if refusal is not None:
            status, why = refusal
            self._say(who or "a stranger", why)
            now = datetime.now(UTC).isoformat()
            answer = [(REFUSED.encode(), why.encode()), (CLOCK.encode(), now.encode()), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": status, "headers": answer})
            await send({"type": "http.response.body", "body": why.encode()})
            return
        self._busy[who] += 1
        self._in_flight[who] += size
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy[who] -= 1
            self._in_flight[who] -= size

    def _is_busy(self, who: str, size: int) -> bool:
        """Whether there is no place for it: whoever sends its bodies slowly keeps its own place alone."""
        mine = who and (self._busy[who] >= MOST_OF_ONE or self._in_flight[who] + size > MOST_IN_FLIGHT)
        return bool(mine) or self._busy.total() >= MOST_AT_ONCE

    def _who(self, headers: Mapping[bytes, bytes]) -> str:
        """The site whose key it shows; empty: none of them."""
        return self._keys[headers[KEY]][0] if headers.get(KEY) in self._keys else ""

    def _refusal(self, scope: Mapping[str, Any]) -> Refusal | None:
        """Status and reason; None: it may pass. Nothing of its body has been read."""
        headers, path = dict(scope["headers"]), scope["path"]
        if not path.startswith(SITES) and path != HEALTH:
            ours = hmac.compare_digest(headers.get(HEADER.encode(), b""), self._secret)
            return None if ours else (403, "this is for the coordinator alone")
        if path != HEALTH and (why := self._stranger(headers)):
            return 401, why
        if path != HEALTH and self._has_gone_by(headers, path):
            return 412, "another process"
        most = {HEALTH: 0, PUSH: MOST_MESSAGE}.get(path, MOST_BODY)
        return _too_large(headers, scope.get("method", "GET"), most)

    def _stranger(self, headers: Mapping[bytes, bytes]) -> str:
        """What keeps it out; empty: a site whose key we have."""
        known, stamp = self._keys.get(headers.get(KEY, b"")), headers.get(TIME, b"")
        if known is None:
            return "key"
        try:
            known[1].verify(base64.b64decode(headers.get(SIGNATURE, b"")), stamp, ec.ECDSA(hashes.SHA256()))
            age = (datetime.now(UTC) - datetime.fromisoformat(stamp.decode("ascii"))).total_seconds()
        except (InvalidSignature, ValueError, TypeError):
            return "key"
        return "" if -EARLY < age < LATE else "clock"

    def _has_gone_by(self, headers: Mapping[bytes, bytes], path: str) -> bool:
        """Whether another process has joined with its key since this life began. Flower takes both for one node."""
        lives, life = self._lives[self._who(headers)], headers.get(LIFE.encode(), b"")[:32]
        if path != JOIN:
            return life in lives and life != lives[-1]
        if life in lives:
            lives.remove(life)
        lives.append(life)
        return False


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


class _Log:
    """Refusals on standard error, which is SuperLink's log; nobody can fill a disk with them."""

    def __init__(self) -> None:
        self._said, self._lock = Counter[tuple[str, str]](), threading.Lock()

    def __call__(self, who: str, why: str) -> None:
        with self._lock:
            if len(self._said) >= MOST_LINES and (who, why) not in self._said:
                return
            self._said[who, why] += 1
            times = self._said[who, why]
        if times & (times - 1) == 0:
            print(f"refused, {who}: {why} (time {times})", file=sys.stderr, flush=True)


def _serve() -> None:
    from starlette.middleware import Middleware

    from grandrounds.deployment.flower.internals import run_superlink
    from grandrounds.deployment.flower.quota import Quota

    told, say = json.loads(sys.stdin.buffer.readline()), _Log()
    keys: dict[str, str] = told["keys"]
    guard = Middleware(Guard, secret=told["secret"], keys=keys, say=say)

    def limited(push_messages: Any, push_object: Any) -> tuple[Any, Any]:
        public = {site: key.encode() for site, key in keys.items()}
        quota = Quota(push_messages, push_object, MOST_BODY, public, say)
        threading.Thread(target=_listen, args=(quota,), daemon=True).start()
        return quota.push_messages, quota.push_object

    run_superlink(lambda: (guard,), MOST_CONNECTIONS, limited)


def _listen(quota: Any) -> None:
    """To the coordinator, which says how large a reply can be once that is known. We end when it does."""
    for line in sys.stdin.buffer:
        quota.largest = int(line)
    os._exit(1)


if __name__ == "__main__":
    _serve()
