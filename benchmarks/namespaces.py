"""Sites in network namespaces of their own, each with its address; one is cut off in mid-round and comes back.

    sudo python -m benchmarks.namespaces [--away SECONDS] [--out FILE]

Needs root and `ip`. A bridge joins the coordinator's namespace and three sites'; the reference is the same federation
in one process. Says what both sides saw, how long it took, and whether the bits are the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.hosts import SITES, Hosts, until

from grandrounds.runs.provenance import provenance

ADDRESSES = {name: f"10.77.0.{i}" for i, name in enumerate(("coordinator", *SITES), start=1)}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def network() -> Iterator[None]:
    """A namespace and a cable for each, all in one bridge."""
    try:
        ip("link", "add", "gr-bridge", "type", "bridge")
        ip("link", "set", "gr-bridge", "up")
        for i, (name, address) in enumerate(ADDRESSES.items()):
            space = f"gr-{name}"
            ip("netns", "add", space)
            ip("link", "add", f"gr-cable{i}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"gr-cable{i}", "master", "gr-bridge", "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        yield
    finally:
        for name in ADDRESSES:
            subprocess.run(["ip", "netns", "del", f"gr-{name}"], check=False)
        subprocess.run(["ip", "link", "del", "gr-bridge"], check=False)


def within(name: str, log: Path, *words: str | Path) -> subprocess.Popen[bytes]:
    """`grandrounds WORDS` in that namespace."""
    command = ["ip", "netns", "exec", f"gr-{name}", sys.executable, "-m", "grandrounds", *map(str, words)]
    return subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT)


def cable(name: str, state: str) -> None:
    number = list(ADDRESSES).index(name)
    ip("link", "set", f"gr-cable{number}", state)


def measure(away: float, absence: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, network():
        hosts = Hosts(Path(folder), "tiny", federation__rounds=6, federation__absence=absence, training__epochs=6)
        hosts.found("--bind", "0.0.0.0", host=ADDRESSES["coordinator"])
        metrics, logs = hosts.root / "run" / "metrics.jsonl", {name: Path(folder, f"{name}.log") for name in ADDRESSES}
        data = {site: ("--data", hosts.folder / f"{site}.jsonl", "--format", "json", "--accept") for site in SITES}
        sites = [within(site, logs[site], "site", "join", hosts.enrolment(site), *data[site]) for site in SITES]
        coordinator = within("coordinator", logs["coordinator"], "coordinator", hosts.root, "--json")
        until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= 2, 180)
        cable("mercy", "down")
        cut = time.monotonic()
        time.sleep(away)
        cable("mercy", "up")
        code = coordinator.wait(300)
        took = time.monotonic() - cut
        for process in sites:
            process.wait(60)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        same = hosts.models() == hosts.reference_models()
        said = [line.strip() for line in logs["mercy"].read_text().splitlines() if "coordinator" in line]
    return {
        "command": "python -m benchmarks.namespaces",
        "addresses": ADDRESSES,
        "away_seconds": away,
        "absence_seconds": absence,
        "exit_code": code,
        "round_seconds": [line["seconds"] for line in lines],
        "lost": {line["round"]: line["lost"] for line in lines if line["lost"]},
        "from_cut_to_end_seconds": round(took, 1),
        "same_bits_as_one_process": same,
        "the_site_said": said,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--away", type=float, default=15.0)
    parser.add_argument("--absence", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = json.dumps({**provenance(), **measure(given.away, given.absence)}, indent=1)
    sys.stdout.write(text + "\n")
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
