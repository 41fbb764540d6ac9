"""What several tests between hosts need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grandrounds.registry import ALGORITHMS
from tests.deployment.hospitals import RAN, SendNumbers


@pytest.fixture
def send_numbers() -> Iterator[None]:
    """The algorithm is known by its name."""
    ALGORITHMS["send_numbers"] = SendNumbers
    RAN.clear()
    yield
    del ALGORITHMS["send_numbers"]
