"""Run a config on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, load_config, make_config
from grandrounds.federation.exchange import Transport
from grandrounds.federation.runner import SiteRunner
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop, Silent, Watcher
from grandrounds.runs.results import Result
from grandrounds.setup.server import find_device
from grandrounds.simulation.in_process import InProcess
from grandrounds.simulation.prepare import Simulation, prepare, spent_by
from grandrounds.simulation.ray_cluster import RayWorkers
from grandrounds.simulation.workers import Workers


def run(
    config: str | Path | Mapping[str, Any] | Config,
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    data: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Result:
    """Run a config on this machine, in the folder `out`; the result is what `result.json` holds.

    `config` is a TOML file or its content, `overrides` are changes such as `{"federation.rounds": 5}`. Paths in the
    config start at `data`, by default at the folder of the file. `resume` goes on with a run that was stopped.
    """
    made, base = opened(config, overrides)
    return run_config(made, Path(data) if data else base, Path(out), resume=resume, watcher=watcher)


def opened(
    config: str | Path | Mapping[str, Any] | Config, overrides: Mapping[str, Any] | None = None
) -> tuple[Config, Path]:
    """The config after overrides, and the folder that its paths start at."""
    if isinstance(config, Config):
        return make_config(config.model_dump(exclude_none=True), overrides) if overrides else config, Path()
    if isinstance(config, Mapping):
        return make_config(config, overrides), Path()
    return load_config(Path(config), overrides or {}), Path(config).parent


def run_config(
    config: Config, base: Path, out: Path, *, resume: bool = False, watcher: Watcher | None = None
) -> Result:
    """Run an experiment to its end, or on to its end, and give its result."""
    watcher = watcher or Silent()
    folder = RunFolder(out, config, resume)
    try:
        if (finished := folder.finished) is not None:
            watcher.say(f"this run is already finished: {out}")
            return finished
        find_device(config.device)  # before corpora are read: that may take minutes
        simulation = prepare(config, base, out)
        folder.claim(config)
        transport = _transport(config, base, out, simulation)
        try:
            sites = [site_data.registration for _, site_data in sorted(simulation.sites.items())]
            spent = spent_by(config, out)
            return RoundLoop(config, folder, simulation, sites, transport, watcher, spent=spent).go()
        finally:
            transport.close()
    finally:
        folder.close()


def _transport(config: Config, base: Path, out: Path, simulation: Simulation) -> Transport:
    if config.workers == 1 and config.runtime == "processes":
        return InProcess(simulation.runner(config, out, memory=1 << 30))
    shutil.rmtree(out / "secure", ignore_errors=True)  # of attempts that were interrupted
    if config.runtime == "ray":
        given = config.model_dump(), base.resolve(), out.resolve()
        return RayWorkers(worker_runner, given, config.workers, config.ray.address, config.threads)
    return Workers(worker_runner, (config.model_dump(), base, out), config.workers, out / "spool")


def worker_runner(content: dict[str, Any], base: Path, out: Path) -> SiteRunner:
    """The same sites in a worker process; what they keep goes straight to disk, where every worker finds it."""
    config = make_config(content)
    simulation = prepare(config, base, out)
    return simulation.runner(config, out, memory=0, model=simulation.model)
