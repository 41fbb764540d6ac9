"""`grandrounds.run`: an experiment from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grandrounds.experiment.config import Config, load_config, make_config
from grandrounds.experiment.loop import Watcher
from grandrounds.experiment.loop import run as run_config


def run(
    config: str | Path | Mapping[str, Any] | Config,
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    data: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Run a config (a TOML file, or its content) in the folder `out`; the result is what `result.json` holds."""
    if isinstance(config, Config):
        made, base = config, Path()
    elif isinstance(config, Mapping):
        made, base = make_config(config, overrides), Path()
    else:
        texts = [
            f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}"
            for key, value in (overrides or {}).items()
        ]
        made, base = load_config(Path(config), texts), Path(config).parent
    return run_config(made, Path(data) if data else base, Path(out), resume=resume, watcher=watcher)
