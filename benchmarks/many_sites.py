"""What registered sites cost that are not asked: a round of 10 among 10,000 sites, over one of 10 among 100."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus import federation
from benchmarks.measuring import Row, Settings, ratio
from benchmarks.stepped import SteppedRun

GOAL = 1.1
ASKED = 10
PER_SITE = 8
LENGTH = (8, 8)  # all sentences the same, so that both cohorts have the same work


def measure(settings: Settings) -> Iterator[Row]:
    many, few = (1_000, 100) if settings.quick else (10_000, 100)
    rounds = 7 if settings.quick else 41
    runs = {}
    for sites in (many, few):
        settings.say(f"setting up {sites:,} sites")
        folder = settings.folder / f"sites-{sites}"
        fraction = {"federation.fraction": ASKED / sites}
        runs[sites] = SteppedRun(federation(folder, "tiny", sites, PER_SITE, LENGTH, **fraction), folder)
    with runs[many] as large, runs[few] as small:
        settings.say(f"{rounds} rounds each")
        pairs = [(large.round(), small.round()) for _ in range(rounds + 2)][2:]
    yield ratio(
        f"{ASKED} of {many:,} over {ASKED} of {few}",
        *zip(*pairs, strict=True),
        GOAL,
        detail={"rounds": rounds, "sentences_per_site": PER_SITE, "encoder": "tiny"},
    )
    yield Row(
        f"set-up of {many:,}", large.set_up, unit="s", note=f"{small.set_up:.1f} s for {few}; read, deal, tokenise"
    )
