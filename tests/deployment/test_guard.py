"""SuperLink's port is open to sites; all else is for who knows the coordinator's secret."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from grandrounds.deployment.flower.guard import HEADER, Guard


def status(path: str, headers: dict[str, str]) -> int:
    """What a request gets: 200 from the app behind the guard."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
    asyncio.run(Guard(app, "the secret")(scope, None, send))
    return int(sent[0]["status"])


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


@pytest.mark.parametrize("path", ["/v1/fleet/pull-messages", "/v1/fleet/activate-node", "/health"])
def test_what_is_for_sites_is_open(path: str) -> None:
    assert status(path, {}) == 200
