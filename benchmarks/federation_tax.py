"""What federating costs: a FedAvg round through the whole machinery, over a bare PyTorch loop on the same batches.

The two take turns site by site, so that whatever else the machine does slows both.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bare import BareFedAvg
from benchmarks.corpus import federation
from benchmarks.measuring import Clocks, Row, Settings, ratio
from benchmarks.stepped import EnoughError
from grandrounds.federation.learner import Server
from grandrounds.runs.checkpoints import Checkpoints, Progress
from grandrounds.runs.loop import Silent
from grandrounds.runs.results import Round
from grandrounds.simulation.prepare import Simulation
from grandrounds.simulation.run import run_config as run

GOAL = 1.05

PARTS = {
    "digest": [("payloads.py", "digest")],
    "finite check": [("payloads.py", "_check_finite")],
    "bytes count": [("payloads.py", "nbytes")],
    "load weights": [("learner.py", "_copy_into")],
    "mean": [("aggregate.py", "mean")],
    "snapshot": [("learner.py", "snapshot")],
    "optimiser": [("training.py", "make_optimizer")],
    "batches": [("learner.py", "_batch"), ("batching.py", "training_batches")],
    "audit": [("audit.py", "write")],
    "seeds": [("seeds.py", "generator"), ("seeds.py", "global_seed")],
}
OWN = {"mean"}  # which would otherwise count the sites whose replies it waits for
"""What a round does beside forward, backward and step; some of it (load, mean, optimiser) the bare loop does too."""


def measure(settings: Settings) -> Iterator[Row]:
    sites, per_site = (4, 16) if settings.quick else (20, 40)
    for encoder, name, rounds in (
        ("tiny", "tiny", 3 if settings.quick else 9),
        (settings.encoder, settings.encoder_name, 1 if settings.quick else 2),
    ):
        folder = settings.folder / f"tax-{name}"
        race = Race(rounds, lambda sentence, name=name: settings.say(f"{name}: {sentence}"), folder / "checkpoints")
        with suppress(EnoughError):
            run(federation(folder, encoder, sites, per_site), folder, folder / "run", watcher=race)
        yield from race.rows(name, {"sites": sites, "sentences_per_site": per_site, "rounds": rounds})


class Race(Silent):
    """Watches a run, and whenever a site has answered, runs the bare loop for that site.

    The first round warms up, the last is profiled instead of raced.
    """

    def __init__(self, rounds: int, say: Callable[[str], None], checkpoints: Path) -> None:
        self.rounds, self.say, self.checkpoints = rounds, say, checkpoints
        self.federated, self.bare = list[Clocks](), list[Clocks]()
        self.distance = 0.0
        self.profile = cProfile.Profile(time.process_time, builtins=False)

    def started(self, simulation: Simulation, rounds: int, done: int) -> None:
        self.simulation, self.rival = simulation, BareFedAvg(simulation)

    def asking(self, round: int, sites: int) -> None:
        if round > self.rounds + 2:
            raise EnoughError
        self.profiled = round == self.rounds + 2
        self.say("warm-up" if round == 1 else "profile" if self.profiled else f"round {round - 1} of {self.rounds}")
        self.rival.prepare(round)
        self.ours, self.theirs = Clocks(), Clocks()
        self.mark = Clocks.now()
        if self.profiled:
            self.profile.enable()

    def answered(self, site: str) -> None:
        if self.profiled:
            return
        self.ours = self.ours.plus_since(self.mark)
        self.rival.seed(site)
        mark = Clocks.now()
        self.rival.train(site)
        self.theirs = self.theirs.plus_since(mark)
        self.mark = Clocks.now()

    def finished_round(self, round: Round) -> None:
        self.profile.disable()
        if self.profiled:
            return
        self.ours = self.ours.plus_since(self.mark)
        mark = Clocks.now()
        self.rival.average()
        self.theirs = self.theirs.plus_since(mark)
        self.distance = max(self.distance, self.rival.distance(self.simulation.model.state_dict()))
        if round.round > 1:
            self.federated.append(self.ours)
            self.bare.append(self.theirs)

    def rows(self, name: str, detail: Mapping[str, Any]) -> Iterator[Row]:
        bare = median(clocks.wall for clocks in self.bare)
        bare_cpu = median(clocks.cpu for clocks in self.bare)
        parts = {part: seconds / bare_cpu for part, seconds in _parts(self.profile).items()}
        largest = sorted(parts, key=lambda part: -parts[part])[:4]
        yield ratio(
            name,
            [clocks.wall for clocks in self.federated],
            [clocks.wall for clocks in self.bare],
            GOAL,
            note=", ".join(f"{part} {parts[part]:.1%}" for part in largest),
            detail={
                **detail,
                "ratio_of_cpu_time": median(a.cpu / b.cpu for a, b in zip(self.federated, self.bare, strict=True)),
                "bare_seconds_a_round": bare,
                "parts_over_bare": parts,
                "largest_difference_of_weights": self.distance,
            },
        )
        yield Row(f"{name}, a checkpoint", self._checkpoint() / bare, note="of a bare round; beside a round, not in it")

    def _checkpoint(self) -> float:
        server, seconds = Server(self.simulation.spec, self.simulation.splits, self.simulation.model), []
        for round in range(3):
            began = time.perf_counter()
            Checkpoints(self.checkpoints).save(Progress(round), server.snapshot())
            seconds.append(time.perf_counter() - began)
        return median(seconds)


def _parts(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds of each part in the profiled round; a part whose functions have new names has none."""
    parts = dict.fromkeys(PARTS, 0.0)
    for (file, _, function), (_, _, own, cumulative, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for part, functions in PARTS.items():
            if (Path(file).name, function) in functions:
                parts[part] += own if part in OWN else cumulative
    return parts
