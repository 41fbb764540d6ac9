"""Epsilon by our accountant (privacy-loss distributions) beside the PRV accountant (Gopi et al., NeurIPS 2021):

    python -m experiments.accountants --prv OTHER/bin/python --out docs/results/accountants.json
    python -m experiments.accountants --prv docs/results/accountants.json --out docs/results/accountants.json

`OTHER` is an environment with prv-accountant: it needs other versions than we do. What it found does not depend on our
code, so it can be taken from an earlier file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from grandrounds.federation.privacy.accounting import Draw, epsilon
from grandrounds.runs.provenance import provenance

DELTA = 1e-5
SETTINGS = [  # noise, rate, steps
    *[(1.0, 0.01, 1000), (0.8, 0.05, 300), (2.0, 0.2, 100), (0.7, 0.1, 20), (0.6, 0.02, 500)],
    *[(1.5, 0.05, 2000), (4.0, 0.3, 500), (3.0, 0.5, 50), (1.0, 0.2, 10), (0.9, 0.01, 5000)],
    *[(1.2, 0.1, 200), (5.0, 0.1, 10000), (2.5, 0.02, 20000), (1.0, 0.001, 10000), (0.75, 0.03, 100)],
    *[(6.0, 0.8, 100), (1.1, 0.06, 640), (8.0, 0.25, 3000), (2.0, 0.01, 300), (10.0, 0.9, 60)],
]
PRV = """
import json, sys, time
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
for noise, rate, steps in json.load(sys.stdin):
    began = time.perf_counter()
    mechanism = PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=noise)
    for error in (0.01, 0.001):
        made = PRVAccountant(prvs=[mechanism], max_self_compositions=[steps], eps_error=error, delta_error=1e-10)
        low, middle, high = made.compute_epsilon(delta=1e-5, num_self_compositions=[steps])
        if middle > 50 * error:
            break
    row = {"low": float(low), "epsilon": float(middle), "high": float(high), "seconds": time.perf_counter() - began}
    print(json.dumps(row), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prv", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    theirs, their_version = earlier(given.prv) if given.prv.suffix == ".json" else measured(given.prv)
    rows = []
    for (noise, rate, steps), prv in zip(SETTINGS, theirs, strict=True):
        began = time.perf_counter()
        pld = epsilon([Draw(noise, rate, steps)], DELTA)
        row = {"noise": noise, "rate": rate, "steps": steps, "pld": round(pld, 4), "prv": round(prv["epsilon"], 4)}
        row |= {"prv_low": round(prv["low"], 4), "prv_high": round(prv["high"], 4)}
        row |= {"difference": round(pld / prv["epsilon"] - 1, 4)}
        rows.append(
            {**row, "pld_seconds": round(time.perf_counter() - began, 2), "prv_seconds": round(prv["seconds"], 2)}
        )
        print(rows[-1], flush=True)
    found = {
        **provenance(),
        "dp_accounting": version("dp-accounting"),
        "prv_accountant": their_version,
        "delta": DELTA,
        "largest_difference": max(abs(row["difference"]) for row in rows),
        "rows": rows,
    }
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measured(python: Path) -> tuple[list[dict[str, float]], str]:
    """What PRV says, and its version."""
    said = subprocess.run([python, "-c", PRV], input=json.dumps(SETTINGS), capture_output=True, text=True, check=True)
    asked = "from importlib.metadata import version; print(version('prv-accountant'))"
    release = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    return [json.loads(line) for line in said.stdout.splitlines()], release


def earlier(file: Path) -> tuple[list[dict[str, float]], str]:
    """The same, as it was measured before."""
    found = json.loads(file.read_text(encoding="utf-8"))
    if [(row["noise"], row["rate"], row["steps"]) for row in found["rows"]] != SETTINGS:
        raise SystemExit(f"'{file}' is of other settings")
    names = {"low": "prv_low", "epsilon": "prv", "high": "prv_high", "seconds": "prv_seconds"}
    return [{name: row[theirs] for name, theirs in names.items()} for row in found["rows"]], found["prv_accountant"]


if __name__ == "__main__":
    sys.exit(main())
