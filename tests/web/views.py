"""Pages of folders, served while a test looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

from grandrounds.web.access import Access, address
from grandrounds.web.limits import Limits
from grandrounds.web.serving import guarded, listen
from grandrounds.web.view.application import application
from grandrounds.web.view.server import watching
from tests.web.asking import BEARER, TOKEN, running_on


@contextmanager
def showing(folder: Path, alone: Path | None = None) -> Iterator[str]:
    """The address of its page."""
    listening = listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    watch = watching(folder, alone)
    app = guarded(application(watch), Access.of("127.0.0.1", port, TOKEN), Limits(1000))
    with running_on(listening, app, watch.end):
        yield address("127.0.0.1", port, TOKEN)


def looking(folder: Path, alone: Path | None = None) -> TestClient:
    """A client with the token, without a server."""
    app = guarded(application(watching(folder, alone)), Access.of("127.0.0.1", 8000, TOKEN), Limits(1000))
    return TestClient(app, base_url="http://127.0.0.1:8000", headers=BEARER)
