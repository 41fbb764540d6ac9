"""Every target of a paper, run once for the tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.papers.reproduced import InProcess, run_all


@pytest.fixture(scope="module")
def all_targets(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, InProcess]:
    """The folder with every table and figure of the module's PAPER, as its `small` asks for them, and what was run."""
    out, module = tmp_path_factory.mktemp("reproduced"), request.module
    return out, run_all(module.PAPER, lambda name: module.small(out))
