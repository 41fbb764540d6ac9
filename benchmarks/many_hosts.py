"""What registered hospitals cost a coordinator that asks few of them: rounds with 10 of 10,000 over Flower's Grid in
memory, and with 10 of 100. Messages are really encoded, decoded, checked and logged at both ends.

    python -m benchmarks.many_hosts [--out FILE]

Each case is a process of its own, which holds the coordinator and all sites. What the sites hold is the memory before
the run begins.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.deployment.grids import MemoryGrid, apps, handlers

from benchmarks.corpus import federation
from benchmarks.measuring import apart, load
from benchmarks.memory import peak_mb
from grandrounds.deployment.flower.grid import OverGrid, Roster
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop, Silent
from grandrounds.runs.provenance import provenance
from grandrounds.runs.results import Round
from grandrounds.simulation.prepare import prepare

REGISTERED = (100, 10_000)
ASKED, PER_SITE, ROUNDS, LENGTH = 10, 8, 12, (8, 8)


class Stopwatch(Silent):
    """The processor time of each round."""

    def __init__(self) -> None:
        self.seconds, self._began = list[float](), 0.0

    def asking(self, round: int, sites: int) -> None:
        self._began = time.process_time()

    def finished_round(self, round: Round) -> None:
        self.seconds.append(time.process_time() - self._began)


def case(folder: Path, sites: int) -> dict[str, float]:
    settings = {"federation.fraction": ASKED / sites, "federation.rounds": ROUNDS}
    config, out, watch = federation(folder, "tiny", sites, PER_SITE, LENGTH, **settings), folder / "run", Stopwatch()
    held = RunFolder(out, config, resume=False)
    simulation = prepare(config, folder, out)
    held.claim(config)
    host = simulation.runner(config, out, memory=0)
    grid = MemoryGrid(apps(handlers(simulation, host, out / "sites", ROUNDS)))
    before = peak_mb()
    registrations = [data.registration for _, data in sorted(simulation.sites.items())]
    transport = OverGrid(grid, Roster(grid, grid.keys()), out / "spool", poll=0.001)
    RoundLoop(config, held, simulation, registrations, transport, watch).go()
    held.close()
    return {"cpu_seconds": median(watch.seconds[1:]), "peak_mb": peak_mb(), "peak_mb_before": before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write JSON there")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(case(Path(folder), options.case)))
        return
    before, cases = load(), dict[str, dict[str, Any]]()
    for sites in REGISTERED:
        cases[str(sites)] = found = apart("benchmarks.many_hosts", "--case", sites)
        print(f"{ASKED} of {sites:,}: {found}", flush=True)
    result = {
        **provenance(),
        "command": "python -m benchmarks.many_hosts",
        "asked": ASKED,
        "rounds": ROUNDS,
        "sentences_per_site": PER_SITE,
        "load": {"before": before, "after": load(), "cores": os.cpu_count()},
        "cases": cases,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
