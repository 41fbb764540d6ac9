"""Where simulated sites run: in the run's own process, in two workers, or on a Ray cluster of two nodes. Seconds of a
round and memory, with 20 and with 100 sites:

    python -m benchmarks.runtimes [--encoder FOLDER] [--out FILE]

Each case is a process of its own, whose peak is that of the server; the cases come one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.corpus import federation
from benchmarks.measuring import apart, load
from benchmarks.memory import peak_mb
from benchmarks.stepped import SteppedRun

RUNTIMES = ("in process", "workers", "ray")
SITES = (20, 100)
PER_SITE, ROUNDS = 8, 4
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@contextmanager
def chosen(runtime: str) -> Iterator[Mapping[str, Any]]:
    """The settings of a runtime."""
    if runtime != "ray":
        yield {"workers": 2 if runtime == "workers" else 1}
        return
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield {"workers": 2, "runtime": "ray", "ray": {"address": cluster.address}}
    finally:
        cluster.shutdown()


def case(folder: Path, encoder: str, runtime: str, sites: int) -> dict[str, float]:
    """Seconds of the median round after the first, and megabytes of the server and of its largest worker."""
    with chosen(runtime) as own:
        config = federation(folder, encoder, sites, PER_SITE, **own)
        with SteppedRun(config, folder) as run:
            seconds = [run.round() for _ in range(ROUNDS)][1:]
            return {"seconds": median(seconds), "server_mb": peak_mb(), "worker_mb": max(_workers(), default=0.0)}


def _workers() -> Iterator[float]:
    """Peak megabytes of our own child processes, and of actors of Ray (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            ours = int(status["PPid"]) == os.getpid() and b"spawn_main" in command
            if "VmHWM" in status and (ours or command.startswith(b"ray::Actor")):
                yield int(status["VmHWM"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="tiny", help="a folder; tiny by default")
    parser.add_argument("--out", type=Path, help="write JSON there")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(QUIET)
    if options.case:
        runtime, sites = options.case
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(case(Path(folder), options.encoder, runtime, int(sites))))
        return
    from grandrounds.runs.provenance import provenance

    before, cases = load(), dict[str, dict[str, Any]]()
    for sites in SITES:
        for runtime in RUNTIMES:
            found = apart("benchmarks.runtimes", "--encoder", options.encoder, "--case", runtime, sites)
            cases[f"{runtime}, {sites} sites"] = found
            print(f"{runtime}, {sites} sites: {found}", flush=True)
    result = {
        **provenance(),
        "command": "python -m benchmarks.runtimes",
        "encoder": Path(options.encoder).name,
        "sentences_per_site": PER_SITE,
        "load": {"before": before, "after": load(), "cores": os.cpu_count()},
        "cases": cases,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
