"""One small run that every command may look at."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w

from tests.cli.commands import Outcome, run
from tests.conftest import TinyConfig


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory, tiny_config: TinyConfig) -> Path:
    """Three sites, two rounds, seconds."""
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(tomli_w.dumps(tiny_config()))
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, config: Path) -> tuple[Path, Outcome]:
    """The folder of a finished run of three rounds, and what `run --json` said."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, run("run", config, "federation.rounds=3", "--out", folder, "--json")


@pytest.fixture(scope="session")
def model(finished: tuple[Path, Outcome]) -> Path:
    finished[1].good()
    return finished[0] / "model"
