"""A pipeline made once, and a client of a server that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from grandrounds.pipeline.pipeline import Pipeline
from tests.pipeline.models import sentence_relater, word_tagger
from tests.web.serving_models import serving


@pytest.fixture(scope="session")
def pipeline(encoder_folder: Callable[[str], Path]) -> Pipeline:
    """Finds drugs, problems and tests of `corpus()`, and relates every treatment to every problem of its sentence."""
    return Pipeline([word_tagger()], [sentence_relater(encoder_folder("bert"))])


@pytest.fixture
def asking(pipeline: Pipeline) -> Iterator[TestClient]:
    with serving(pipeline) as client:
        yield client
