"""What a second process brings: a round with `workers = 2` over the same round with `workers = 1`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks.corpus import federation
from benchmarks.measuring import Row, Settings, load, ratio
from benchmarks.stepped import SteppedRun


def measure(settings: Settings) -> Iterator[Row]:
    for encoder, name in settings.encoders:
        sites, per_site, rounds = (4, 16, 2) if settings.quick else (10, 32, 9 if name == "tiny" else 2)
        runs = []
        for workers in (2, 1):
            folder = settings.folder / f"workers-{name}-{workers}"
            runs.append(SteppedRun(federation(folder, encoder, sites, per_site, workers=workers), folder))
        with runs[0] as two, runs[1] as one:
            settings.say(f"{name}: {rounds} rounds each")
            pairs = [(two.round(), one.round()) for _ in range(rounds + 1)][1:]
        busy = load()
        yield ratio(
            f"{name}, 2 over 1",
            *zip(*pairs, strict=True),
            None,
            note=f"0.5 at best; {os.cpu_count()} cores under a load of {busy}, ours included",
            detail={"rounds": rounds, "sites": sites, "sentences_per_site": per_site},
        )
