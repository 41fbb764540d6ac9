"""Answers of one sentence: JSON for programs, a page for people; and what every answer says to a browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from traceback import extract_tb
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Only our own files run, and only this server is asked: pages show words of notes, labels, sites and files."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = {
    **{name: ("grandrounds.reports", name) for name in ("page.css", "extraction.css")},
    **{
        name: ("grandrounds.web", f"static/{name}")
        for name in ("web.css", "serve.css", "dom.js", "note.js", "lists.js", "serve.js", "view.css", "view.js")
    },
}
"""Styles and scripts by name, and the package and place of each; nothing else is served from a disk."""
MEDIA = {"css": "text/css", "js": "text/javascript"}
BROKEN = "something broke in this server; its log says where"
SENTENCES = {404: "there is nothing here", 405: "this address takes another method"}


def refusal(status: int, sentence: str, headers: Headers, more: Mapping[str, str] | None = None) -> Response:
    """One sentence: a page if that is what the browser wants to show, else JSON."""
    if "text/html" in headers.get("accept", ""):
        return page("refusal.html", status=status, title="Grand Rounds", sentence=sentence, more=more)
    return JSONResponse({"error": sentence}, status, more)


def page(template: str, *, status: int = 200, more: Mapping[str, str] | None = None, **words: Any) -> HTMLResponse:
    """A template of this room; every word in it is escaped."""
    return HTMLResponse(_templates().get_template(template).render(status=status, **words), status, more)


async def static(request: Request) -> Response:
    """`/static/{name}`: a file of `STATIC`, by its exact name."""
    name: str = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(_file(name), media_type=MEDIA[name.rpartition(".")[2]])


async def said(request: Request, problem: Exception) -> Response:
    """An HTTPException of Starlette's as a sentence; the handler for all of them."""
    assert isinstance(problem, HTTPException)
    sentence = SENTENCES.get(problem.status_code, str(problem.detail))
    return refusal(problem.status_code, sentence, request.headers, problem.headers)


async def broke(request: Request, problem: Exception) -> Response:
    """Whatever else went wrong; `Answers` logs it."""
    return refusal(500, BROKEN, request.headers)


HANDLERS: Mapping[Any, Any] = {HTTPException: said, Exception: broke}
"""The `exception_handlers` of every application of this room."""


class Answers:
    """Outermost: the headers above on every answer; what breaks is one sentence, and in the log a place without words
    of the text that was read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, receive, sending)
        except Exception as problem:
            log(problem)
            if not begun:
                await refusal(500, BROKEN, Headers(scope=scope))(scope, receive, sending)


def log(problem: BaseException) -> None:
    """Where something broke, and what kind of thing it is: its message may have words of a note."""
    places = extract_tb(problem.__traceback__)
    where = f"{places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}" if places else "an unknown place"
    print(f"grandrounds: {type(problem).__name__} at {where}; an answer was not given", file=sys.stderr, flush=True)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("grandrounds.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _file(name: str) -> bytes:
    package, place = STATIC[name]
    return files(package).joinpath(place).read_bytes()
