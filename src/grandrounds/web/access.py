"""Who may ask: this machine by default, under a name that is known, from no page of others, and with the token.

A browser gets the token once, by the address that the command prints; from then on a cookie carries it, which no other
page can read or make a browser send. Programs send `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from secrets import token_urlsafe
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from grandrounds.errors import ConfigError
from grandrounds.web.answers import refusal

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST_TOKEN = 16
STATIC = "/static/"


@dataclass(frozen=True)
class Access:
    """What a request must bring."""

    names: frozenset[str]
    """Host names and addresses under which this server may be asked: a page of others that turns its own name to our
    address (DNS rebinding) comes under another."""
    token: str | None
    cookie: str
    """Its name: cookies know no ports, so each server has its own."""
    open_paths: frozenset[str] = frozenset()
    """What needs no token, besides the pages' styles and scripts."""

    @classmethod
    def of(
        cls, host: str, port: int, token: str | None, names: Iterable[str] = (), open_paths: Iterable[str] = ()
    ) -> Access:
        """For a server that listens on `host`; without a token only on this machine."""
        if token is None and not is_loopback(host):
            raise ConfigError(
                f"without a token everyone who reaches '{host}' could read: leave out --no-token or --host"
            )
        if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
            raise ConfigError(
                f"a token has at least {SHORTEST_TOKEN} printable ASCII characters; leave it out and one is made"
            )
        known = {name.lower() for name in (*names, host, *(LOOPBACK if is_loopback(host) else ()))}
        return cls(frozenset(known), token, f"grandrounds-{port}", frozenset(open_paths))

    def admits(self, given: str | None) -> bool:
        """Whether this is the token; how long it takes to say so does not depend on it."""
        if self.token is None:
            return True
        digests = (sha256(word.encode("utf-8", "surrogatepass")).digest() for word in (given or "", self.token))
        return compare_digest(*digests)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def find_token() -> str:
    """That of GRANDROUNDS_TOKEN, which no list of processes shows; else a new one."""
    return os.environ.get("GRANDROUNDS_TOKEN") or token_urlsafe(24)


def address(host: str, port: int, token: str | None, names: Iterable[str] = ()) -> str:
    """What to open in a browser: it gets the token by it."""
    name = next(iter(names), host)
    place = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
    return place if token is None else f"{place}?token={quote(token, safe='')}"


class Guard:
    """Lets through what `Access` admits, and answers the rest with a sentence."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = self._answer(scope)
            await (answer or self.app)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _answer(self, scope: Scope) -> Response | None:
        """What to say instead of what was asked for."""
        headers = Headers(scope=scope)
        if not self._known_host(headers):
            return refusal(421, "this server is not known by that name; start it with --name NAME to allow it", headers)
        if _foreign(headers, scope):
            return refusal(403, "a page of another site asked for this; open the page of this server itself", headers)
        query = QueryParams(scope["query_string"])
        if "token" in query and scope["method"] == "GET" and self.access.token is not None:
            return self._entrance(scope["path"], query["token"], headers)
        if scope["path"] in self.access.open_paths or scope["path"].startswith(STATIC):
            return None
        if not self.access.admits(self._given(headers)):
            return _no_token(headers)
        return None

    def _entrance(self, path: str, token: str, headers: Headers) -> Response:
        """The address with the token: keep it in a cookie, and have it out of the address at once."""
        if not self.access.admits(token):
            return _no_token(headers)
        here = path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"
        answer = RedirectResponse(here, 303)
        answer.set_cookie(self.access.cookie, token, httponly=True, samesite="strict", path="/")
        return answer

    def _given(self, headers: Headers) -> str | None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if token:
            return token.strip() if kind.lower() == "bearer" else None
        return cookie_parser(headers.get("cookie", "")).get(self.access.cookie)

    def _known_host(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        return len(hosts) == 1 and _host_name(hosts[0]) in self.access.names


def _foreign(headers: Headers, scope: Scope) -> bool:
    """Whether a browser says that a page of another site asks; a link that is followed to us asks for nothing yet."""
    followed = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not followed:
        return True
    origin = headers.get("origin")
    return origin is not None and not _same_place(origin, headers.get("host", ""))


def _same_place(origin: str, host: str) -> bool:
    try:
        page, here = urlsplit(origin), urlsplit(f"//{host}")
        standard = {"http": 80, "https": 443}[page.scheme]
        same_port = (page.port or standard) == (here.port or standard)
        return same_port and (page.hostname or "") == (here.hostname or "") and page.path == ""
    except (KeyError, ValueError):
        return False


def _host_name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return parts.hostname if whole else None


def _no_token(headers: Headers) -> Response:
    return refusal(401, "the token is missing or wrong; the command printed it when it started", headers)
