"""What more sites cost in memory: the peak of a FedAvg round with 100 sites, over one with 2 sites of the same size.

Each in a process of its own: python -m benchmarks.memory FOLDER ENCODER SITES PER_SITE
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.corpus import federation
from benchmarks.measuring import Row, Settings, apart
from benchmarks.stepped import EnoughError
from grandrounds.runs.loop import Silent
from grandrounds.runs.results import Round
from grandrounds.simulation.run import run_config as run

GOAL = 1.1
PER_SITE = 8


def measure(settings: Settings) -> Iterator[Row]:
    many, few = (20, 2) if settings.quick else (100, 2)
    for encoder, name in settings.encoders:
        peaks = {}
        for sites in (few, many):
            settings.say(f"{name}: {sites} sites")
            peaks[sites] = _peaks(settings.folder / f"memory-{name}-{sites}", encoder, sites)
        yield Row(
            f"{name}, {many} sites over {few}",
            peaks[many]["round"] / peaks[few]["round"],
            GOAL,
            note=f"{peaks[many]['round']:.0f} MB over {peaks[few]['round']:.0f} MB",
            detail={"megabytes": {str(sites): peak for sites, peak in peaks.items()}, "sentences_per_site": PER_SITE},
        )


def _peaks(folder: Path, encoder: str, sites: int) -> dict[str, float]:
    peaks: dict[str, float] = apart("benchmarks.memory", folder, encoder, sites, PER_SITE)
    return peaks


class Peak(Silent):
    """Reads the peak of the second round alone, where the system can forget the one before (Linux)."""

    def asking(self, round: int, sites: int) -> None:
        if round == 3:
            raise EnoughError
        self.before = peak_mb()
        _forget_peak()

    def finished_round(self, round: Round) -> None:
        self.round = peak_mb()
        self.run = max(self.before, self.round)


def peak_mb() -> float:
    """The largest site_data size of this process.

    Not ru_maxrss on Linux: that is inherited from whatever started the process, if it was larger.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _forget_peak() -> None:
    with suppress(OSError):  # elsewhere the peak of the round is that of the run so far
        Path("/proc/self/clear_refs").write_text("5")


def main(folder: str, encoder: str, sites: str, per_site: str) -> None:
    config, watcher = federation(Path(folder), encoder, int(sites), int(per_site)), Peak()
    try:
        run(config, Path(folder), Path(folder) / "run", watcher=watcher)
    except EnoughError:
        print(json.dumps({"round": round(watcher.round, 1), "run": round(watcher.run, 1)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
