"""The page of a folder, and a stream of those of its parts that change.

Looking costs next to nothing and happens only while somebody watches: two hundred times as long as a look took passes
before the next one. On a busy machine a look takes longer, so there are fewer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from grandrounds.web.answers import HANDLERS, page, static
from grandrounds.web.view.following import FollowedRun, FollowedSite, Place
from grandrounds.web.view.parts import Parts
from grandrounds.web.view.run_parts import moving_parts, run_parts, title_of
from grandrounds.web.view.site_parts import site_parts, site_title
from grandrounds.web.view.spending import Spending

SHARE, SHORTEST, LONGEST = 0.005, 1.0, 10.0
"""Of the time that looking may take; seconds between two looks."""
MOST_STREAMS = 50
STILL_HERE = 15.0
"""Seconds after which a stream without news says that it is still there."""


@dataclass(frozen=True)
class Seen:
    title: str
    parts: Parts


def viewer(place: Place, alone: Path | None = None) -> Callable[[], Seen]:
    """What looks at a place, again and again; GrandRoundsError at once where `alone` is no run."""
    return _look_at_run(FollowedRun(place, alone)) if place.enrolment is None else _look_at_site(FollowedSite(place))


def _look_at_run(run: FollowedRun) -> Callable[[], Seen]:
    seen = Seen("", {})

    def look() -> Seen:
        nonlocal seen
        new = run.look() or not seen.parts
        seen = Seen(title_of(run), run_parts(run) if new else {**seen.parts, **moving_parts(run)})
        return seen

    return look


def _look_at_site(site: FollowedSite) -> Callable[[], Seen]:
    seen, spending = Seen("", {}), Spending(site.enrolment)

    def look() -> Seen:
        nonlocal seen
        if site.look() or not seen.parts:
            seen = Seen(site_title(site), site_parts(site, spending))
        return seen

    return look


@dataclass
class Watch:
    """One look for all who watch."""

    look: Callable[[], Seen]
    streams: int = 0
    pause: float = SHORTEST
    _seen: Seen | None = None
    _looked: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Streams end, so that the server can."""
        self._ended.set()

    async def seen(self) -> Seen:
        async with self._lock:
            seen = self._seen
            if seen is None or time.monotonic() - self._looked >= self.pause:
                fresh, seconds = await asyncio.to_thread(self._timed)
                self._seen = seen = fresh
                self.pause, self._looked = min(max(seconds / SHARE, SHORTEST), LONGEST), time.monotonic()
            return seen

    async def events(self) -> AsyncIterator[str]:
        """All parts at first, then what changes."""
        shown, said = dict[str, str](), time.monotonic()
        self.streams += 1
        try:
            while not self._ended.is_set():
                parts = (await self.seen()).parts
                changed = {name: html for name, html in parts.items() if shown.get(name) != html}
                if changed:
                    yield f"event: parts\ndata: {json.dumps({'now': time.time(), 'parts': changed})}\n\n"
                elif time.monotonic() - said >= STILL_HERE:
                    yield ": still here\n\n"
                if changed or time.monotonic() - said >= STILL_HERE:
                    shown, said = {**shown, **changed}, time.monotonic()
                try:
                    await asyncio.wait_for(self._ended.wait(), self.pause)
                except TimeoutError:
                    continue
        finally:
            self.streams -= 1

    def _timed(self) -> tuple[Seen, float]:
        began = time.monotonic()
        return self.look(), time.monotonic() - began


def application(watch: Watch) -> Starlette:
    """The page; `serving.guarded` protects it."""

    async def home(request: Request) -> Response:
        seen = await watch.seen()
        parts = {name: Markup(html) for name, html in seen.parts.items()}
        return page("view.html", title=seen.title, parts=parts, now=time.time())

    async def events(request: Request) -> Response:
        if watch.streams >= MOST_STREAMS:
            raise HTTPException(503, f"{MOST_STREAMS} pages watch already; close one and load this one again")
        return StreamingResponse(watch.events(), media_type="text/event-stream")

    routes = [Route("/", home), Route("/events", events), Route("/static/{name}", static)]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return app
