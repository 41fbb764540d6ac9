"""What masks cost: an exchange in which five sites send weights, in the open and in a secure sum.

    python -m benchmarks.secure [--out FILE]

Everything runs in one process and in turn, over the bytes of the wire: 91 MB (a BERT of MiniLM's size) and LoRA's
2.7 MB. Between hosts, sites work at the same time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measuring import Clocks, load
from grandrounds import Algorithm, Parameters, Site, algorithm, mean, on_site
from grandrounds.federation.audit import Audit
from grandrounds.federation.contract import Registration
from grandrounds.federation.coordinator import Federation, Ledger
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Expected, Packed
from grandrounds.federation.policy import Policy
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.runner import SiteData, SiteRunner
from grandrounds.federation.secure.settings import SecureSettings
from grandrounds.federation.secure.site import SecureSite
from grandrounds.federation.secure.store import InMemory
from grandrounds.runs.provenance import provenance

SITES = tuple(f"site-{i}" for i in range(1, 6))
SIZES = {"91 MB": 22_713_216, "LoRA": 680_638}
REPEATS = {"91 MB": 3, "LoRA": 15}
WEIGHTS: dict[str, Parameters] = {}
"""By site: what it has learnt."""


@algorithm("send_weights")
class SendWeights(Algorithm):
    def not_averaged(self) -> str:
        return ""

    @on_site
    def give(self, site: Site) -> Parameters:
        return WEIGHTS[site.who]


class Spec:
    """As much of a site's spec as weights need that are there already."""

    seed, model_key, device, trained = 1, "none", torch.device("cpu"), None

    def initial_model(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 1)

    def __getattr__(self, name: str) -> Any:
        return None


@dataclass
class Wire:
    """Answers as bytes; how long each site works, by site."""

    runner: SiteRunner
    seconds: dict[str, Clocks]
    bytes: int = 0

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        for ask in asks:
            mark = Clocks.now()
            answer = self.runner.answer(ask)
            sent = [part.to_bytes() for part in answer.payloads]
            self.seconds[ask.site] = self.seconds[ask.site].plus_since(mark)
            self.bytes += sum(map(len, sent))
            yield replace(answer, payloads=tuple(map(Packed.from_bytes, sent)))

    def flush(self) -> None: ...
    def close(self) -> None: ...


def exchange(words: int, secure: bool, folder: Path, round: int) -> dict[str, Any]:
    registered = [Registration(site, {"examples": 100}, (), {"weights": (words,)}) for site in SITES]
    expected = Expected(manifest={"weights": (words,)})
    settings = SecureSettings("examples", 0.5) if secure else None
    spec: Any = Spec()
    runner = SiteRunner(
        SendWeights(),  # type: ignore[call-arg]
        {one.site: SiteData(one, {}, spec, Policy()) for one in registered},
        expected,
        PrivateStore(folder / "states", 0),
        "fp32",
        "terms",
        None,
        PublicSetCache(folder / "public"),
        secure=SecureSite(settings, InMemory()) if settings else None,
    )
    wire = Wire(runner, defaultdict(Clocks))
    federation = Federation(
        *(SendWeights(), wire, Ledger(), expected, Audit(folder / "audit.jsonl"), "terms", "examples"),  # type: ignore[call-arg]
        secure=settings,
    )
    mark = Clocks.now()
    found = mean(federation.cohort(registered, round).ask(SendWeights().give)).values["weights"]  # type: ignore[call-arg]
    whole = Clocks().plus_since(mark)
    exact = torch.stack([WEIGHTS[site].values["weights"] for site in SITES]).double().mean(0)
    site, all_sites = max(one.cpu for one in wire.seconds.values()), sum(one.cpu for one in wire.seconds.values())
    return {
        "wall_seconds": whole.wall,
        "cpu_seconds": whole.cpu,
        "cpu_seconds_a_site": site,
        "cpu_seconds_coordinator": whole.cpu - all_sites,
        "bytes_up_a_site": wire.bytes / len(SITES),
        "largest_error": float((found - exact).abs().max()),
    }


def measure(name: str, folder: Path) -> dict[str, Any]:
    for i, site in enumerate(SITES):
        rng = torch.Generator().manual_seed(i)
        WEIGHTS[site] = Parameters({"weights": 0.05 * torch.randn(SIZES[name], generator=rng)})
    pairs = []
    for repeat in range(REPEATS[name]):
        pairs.append([exchange(SIZES[name], secure, folder, repeat + 1) for secure in (False, True)])
        print(f"{name}: {pairs[-1]}", file=sys.stderr)
    plain, secure = ({key: median(pair[i][key] for pair in pairs) for key in pairs[0][0]} for i in (0, 1))
    ratios = {key: _ratio(pairs, key) for key in plain if key != "largest_error"}
    return {"words": SIZES[name], "repeats": len(pairs), "plain": plain, "secure": secure, "ratio": ratios}


def _ratio(pairs: Sequence[Sequence[Mapping[str, float]]], key: str) -> dict[str, float]:
    found = [secure[key] / plain[key] for plain, secure in pairs]
    return {"median": median(found), "low": min(found), "high": max(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/secure.json"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, Path(folder)) for name in SIZES}
    result = {**provenance(), "command": "python -m benchmarks.secure", "sites": len(SITES), **found}
    result["load"] = {"before": before, "after": load()}
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
