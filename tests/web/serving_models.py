"""Models made in seconds, behind the REST interface."""

from __future__ import annotations

from starlette.testclient import TestClient

from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.web.access import Access
from grandrounds.web.limits import Limits as BodyLimits
from grandrounds.web.reading import Reader
from grandrounds.web.rest import Limits, application
from grandrounds.web.serving import guarded
from tests.web.asking import BEARER, TOKEN


def serving(pipeline: Pipeline, limits: Limits = Limits(5000, 20), queue: int = 8) -> TestClient:  # noqa: B008
    """A client with the token; use it with `with`, so that the reader starts and ends."""
    app = application(Reader(pipeline, queue), limits)
    access = Access.of("127.0.0.1", 8000, TOKEN, open_paths=["/health"])
    guard = guarded(app, access, BodyLimits(40_000, 5))
    return TestClient(guard, base_url="http://127.0.0.1:8000", headers=BEARER, raise_server_exceptions=False)
