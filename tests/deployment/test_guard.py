"""SuperLink's port is open to sites with a key; all else is for who knows the coordinator's secret. Strangers' bodies
are never read."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

from grandrounds.deployment.flower.guard import (
    CLOCK,
    HEADER,
    LIFE,
    MOST_AT_ONCE,
    MOST_BODY,
    MOST_LIVES,
    MOST_MESSAGE,
    REFUSED,
    Guard,
)
from grandrounds.deployment.flower.node import Door, _explained
from grandrounds.deployment.keys import public_bytes

KEY = ec.generate_private_key(ec.SECP384R1())
MEGABYTE = b"x" * (1 << 20)


def signed(key: ec.EllipticCurvePrivateKey = KEY, late: float = 0.0, **more: str) -> dict[str, str]:
    """The headers of a site's request."""
    stamp = (datetime.now(UTC) - timedelta(seconds=late)).isoformat()
    signature = key.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_bytes(key.public_key())).decode(),
        TIMESTAMP_HEADER: stamp,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(signature).decode(),
        "content-length": "9",
        **more,
    }


def status(path: str, headers: dict[str, str], method: str = "POST") -> int:
    """What a request gets: 200 from the app behind the guard, which reads all of it, as Flower does."""
    return exchange(path, headers, method)[0]


def exchange(path: str, headers: dict[str, str], method: str = "POST") -> tuple[int, str, int]:
    """Status, why it was refused, and how many megabytes were read of a request of 1.2 GB."""
    sent: list[dict[str, Any]] = []
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": MEGABYTE, "more_body": read < 1200}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = [(k.encode(), v.encode()) for k, v in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": given}
    guard = Guard(app, "the secret", {"mercy": public_bytes(KEY.public_key()).decode()})
    asyncio.run(guard(scope, receive, send))
    answered = dict(sent[0]["headers"])
    why = answered.get(REFUSED.encode(), b"").decode()
    if why:
        told = datetime.fromisoformat(answered[CLOCK.encode()].decode())
        assert abs(datetime.now(UTC) - told) < timedelta(seconds=60), "whoever is refused hears what time it is here"
    return int(sent[0]["status"]), why, read


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1/control/start-run",
            "/v1/control/register-node",
            "/v1/runtime/acquire-task",
            "/v1/runtime/pull-messages",
        ),
        *("/docs", "/openapi.json", "/", "", "//v1/fleet/x", "/v1/fleet", "/V1/fleet/x"),
    ],
)
def test_what_is_not_for_sites_asks_for_the_secret(path: str) -> None:
    assert status(path, {}) == 403
    assert status(path, {HEADER: "a guess"}) == 403
    assert status(path, {HEADER: "the secret"}) == 200


@pytest.mark.parametrize("path", ["/v1/fleet/pull-messages", "/v1/fleet/activate-node"])
def test_what_is_for_sites_is_open_to_a_registered_key(path: str) -> None:
    assert status(path, signed()) == 200
    assert status("/health", {}, "GET") == 200


OTHER = ec.generate_private_key(ec.SECP384R1())
Headers = dict[str, str]
STRANGERS: dict[str, tuple[Callable[[], Headers], int, str]] = {
    "nothing": (dict, 401, "key"),
    "a large body": (lambda: {"content-length": "1200000000"}, 401, "key"),
    "another key": (lambda: signed(OTHER), 401, "key"),
    "a false signature": (lambda: {**signed(), FLEET_HTTP_SIGNATURE_HEADER: "AAAA"}, 401, "key"),
    "no ASCII": (lambda: {**signed(), FLEET_HTTP_SIGNATURE_HEADER: "é"}, 401, "key"),
    "no time": (lambda: {**signed(), TIMESTAMP_HEADER: "yesterday"}, 401, "key"),
    "an hour late": (lambda: signed(late=3600), 401, "clock"),
    "an hour early": (lambda: signed(late=-3600), 401, "clock"),
    "a member's large body": (lambda: signed(**{"content-length": "1200000000"}), 413, "more than 33554432 bytes"),
    "a long length": (lambda: signed(**{"content-length": "9" * 5000}), 413, "more than 33554432 bytes"),
    "a negative length": (lambda: signed(**{"content-length": "-1"}), 411, "say how long it is"),
    "chunks": (lambda: signed(**{"transfer-encoding": "chunked"}), 411, "say how long it is"),
    "no length": (lambda: {k: v for k, v in signed().items() if k != "content-length"}, 411, "say how long it is"),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_a_strangers_body_is_never_read(who: str) -> None:
    headers, code, why = STRANGERS[who]  # signed now: a signature is good for minutes
    assert exchange("/v1/fleet/push-object", headers()) == (code, why, 0)


def test_the_open_pages_take_no_body() -> None:
    assert exchange("/health", {"content-length": "1200000000"}) == (413, "more than 0 bytes", 0)
    assert exchange("/health/x", {}, "GET")[0] == 403


def test_of_two_processes_with_one_key_the_one_that_joined_first_is_refused() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guard = Guard(app, "the secret", {"mercy": public_bytes(KEY.public_key()).decode()})

    def ask(what: str, life: str) -> int:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        given = [(k.encode(), v.encode()) for k, v in signed(**({LIFE: life} if life else {})).items()]
        scope = {"type": "http", "path": f"/v1/fleet/{what}", "method": "POST", "headers": given}
        asyncio.run(guard(scope, None, send))
        return int(sent[0]["status"])

    assert [ask("activate-node", "one"), ask("pull-messages", "one")] == [200, 200]
    assert [ask("deactivate-node", "two"), ask("activate-node", "two")] == [200, 200]  # as after a kill
    assert [ask(what, "one") for what in ("pull-messages", "push-object", "deactivate-node")] == [412] * 3
    assert [ask("pull-messages", "two"), ask("pull-messages", "")] == [200, 200]
    assert [ask("activate-node", "one"), ask("pull-messages", "one"), ask("pull-messages", "two")] == [200, 200, 412]
    for number in range(1000):
        ask("activate-node", str(number))
    assert len(guard._lives["mercy"]) == MOST_LIVES


def test_so_many_at_once_and_no_more() -> None:
    async def crowd() -> list[int]:
        hold, codes = asyncio.Event(), list[int]()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await hold.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: dict[str, Any]) -> None:
            codes.extend([message["status"]] if "status" in message else [])

        guard = Guard(app, "the secret", {"mercy": public_bytes(KEY.public_key()).decode()})
        scope = {"type": "http", "path": "/health", "method": "GET", "headers": []}
        tasks = [asyncio.create_task(guard(scope, None, send)) for _ in range(MOST_AT_ONCE + 9)]
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(*tasks)
        return codes

    codes = asyncio.run(crowd())
    assert (codes.count(503), codes.count(200)) == (9, MOST_AT_ONCE)


def test_one_site_has_so_many_bytes_under_way_and_others_their_own() -> None:
    """Requests of 32 MB that never end: two of them pass, whoever else comes passes too."""

    async def flood() -> list[tuple[int, str]]:
        hold, codes = asyncio.Event(), list[tuple[int, str]]()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await hold.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        keys = {"mercy": KEY, "general": OTHER}
        said: list[tuple[str, str]] = []
        public = {site: public_bytes(key.public_key()).decode() for site, key in keys.items()}
        guard = Guard(app, "the secret", public, lambda *refused: said.append(refused))

        async def ask(site: str) -> None:
            async def send(message: dict[str, Any]) -> None:
                codes.extend([(message["status"], site)] if "status" in message else [])

            headers = signed(keys[site], **{"content-length": str(MOST_BODY)})
            given = [(k.encode(), v.encode()) for k, v in headers.items()]
            scope = {"type": "http", "path": "/v1/fleet/push-object", "method": "POST", "headers": given}
            await guard(scope, None, send)

        tasks = [asyncio.create_task(ask(site)) for site in ("mercy", "mercy", "mercy", "mercy", "general")]
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(*tasks)
        assert said == [("mercy", "busy")] * 2
        return sorted(codes)

    wanted = [(200, "general"), (200, "mercy"), (200, "mercy"), (503, "mercy"), (503, "mercy")]
    assert asyncio.run(flood()) == wanted


def test_a_reply_is_announced_in_a_megabyte() -> None:
    large = signed(**{"content-length": str(MOST_MESSAGE + 1)})
    assert exchange("/v1/fleet/push-messages", large) == (413, "more than 1048576 bytes", 0)
    assert status("/v1/fleet/push-object", large) == 200


@pytest.mark.parametrize(
    ("code", "refused", "sentence"),
    [
        (401, "key", "does not know this site's key"),
        (401, "clock", "this machine's clock is"),
        (401, "", "another process serves with this site's key"),
        (412, "", "another process serves with this site's key"),
    ],
)
def test_a_site_hears_what_is_wrong(tmp_path: Path, code: int, refused: str, sentence: str) -> None:
    headers = {
        CLOCK: (datetime.now(UTC) - timedelta(hours=1)).isoformat(),
        **({REFUSED: refused} if refused else {}),
    }
    response = httpx.Response(code, headers=headers, request=httpx.Request("POST", "https://x"))
    error = httpx.HTTPStatusError("", request=response.request, response=response)
    said = _explained(error, Door("x:1", None, None, tmp_path))
    assert sentence in said
    assert ("3600 s ahead" in said or "3601 s ahead" in said) == (refused == "clock")
