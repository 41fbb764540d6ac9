"""What a wire costs: an empty exchange, 90 MB to and from two sites, a FedAvg round over loopback and in process.

    python -m benchmarks.between_hosts [--encoder FOLDER] [--out FILE]

Sites are processes of this machine, with TLS and keys; the encoder is `tiny` unless a folder is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tests.hosts import SITES, Hosts, free_port

from grandrounds import subprocesses
from grandrounds.deployment import protocol
from grandrounds.deployment.flower.grid import Letter, OverGrid, Roster
from grandrounds.deployment.flower.node import Door, app_of, serve
from grandrounds.deployment.flower.superlink import SuperLink
from grandrounds.deployment.keys import issue_certificate, make_authority, make_key, public_bytes, read_private
from grandrounds.deployment.protocol import Done, Hello, Request, Response
from grandrounds.federation.payloads import Packed
from grandrounds.runs.provenance import provenance

NAMES = ("a", "b")


class Echo:
    """A handler that sends back what it got."""

    ended: str | None = None

    def __call__(self, data: bytes, payloads: list[bytes]) -> tuple[bytes, list[bytes]]:
        now = str(time.time())
        response = Response(id=protocol.decode(Request, data).id, registration="", log=now, message=Done())
        return protocol.encode(response), list(payloads)


def site(address: str, folder: str, name: str) -> None:
    torch.set_num_threads(1)
    root = Path(folder)
    door = Door(address, root / "ca.crt", read_private(root / f"{name}.key"), root / f"{name}.node")
    echo: Any = Echo()
    serve(door, app_of(echo), lambda: False, lambda sentence: None)


def wire(megabytes: int, repeats: int = 20) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root, port = Path(folder), free_port()
        make_authority(root, "benchmark")
        issue_certificate(root, ["127.0.0.1"])
        keys = {public_bytes(make_key(root / f"{name}.key", root / f"{name}.pub")): name for name in NAMES}
        tls = root / "ca.crt", root / "server.crt", root / "server.key"
        link = SuperLink(root, "127.0.0.1", port, tls, {name: key for key, name in keys.items()})
        grid = link.open_run()
        link.limit(grid, megabytes << 20)
        processes = [subprocesses.start(site, f"127.0.0.1:{port}", folder, name, daemon=True) for name in NAMES]
        try:
            over = OverGrid(grid, Roster(grid, keys), root / "spool")
            while not all(presence.online for presence in over.roster.look().values()):
                time.sleep(0.1)
            empty = [timed(lambda: list(over.converse([Letter(name, Hello()) for name in NAMES])))]
            empty += [
                timed(lambda: list(over.converse([Letter(name, Hello()) for name in NAMES]))) for _ in range(repeats)
            ]
            packed = Packed("parameters", {}, {"w": torch.randn(megabytes * 250_000)})
            encode = timed(lambda: packed.to_bytes())
            data = packed.to_bytes()
            decode = timed(lambda: Packed.from_bytes(data).digest)
            stages = [staged(over, data) for _ in range(3)]
        finally:
            for process in processes:
                process.terminate()
            link.close()
    return {
        "empty_exchange_seconds": round(statistics.median(empty[1:]), 3),
        "megabytes": megabytes,
        "sites": len(NAMES),
        "exchange_seconds": middle(stages, "all"),
        "to_superlink": middle(stages, "pushed"),
        "from_superlink_to_the_last_site": middle(stages, "down"),
        "back_from_the_last_site": middle(stages, "up"),
        "encoding": round(encode, 3),
        "decoding_and_digest_of_a_reply": round(decode, 3),
    }


def staged(over: OverGrid, data: bytes) -> dict[str, float]:
    """When the bytes had left us, when the last site had them, when all were back."""
    began, left = time.time(), [0.0]
    push = over._grid.push_messages

    def pushed(messages: Any) -> Any:
        sent = push(messages)
        left.append(time.time())
        return sent

    over._grid.push_messages = pushed  # type: ignore[method-assign]
    replies = list(over.converse([Letter(name, Hello(), (data,)) for name in NAMES]))
    over._grid.push_messages = push  # type: ignore[method-assign]
    back, there, gone = time.time(), max(float(reply.response.log) for reply in replies if reply.response), max(left)
    return {"all": back - began, "pushed": gone - began, "down": there - gone, "up": back - there}


def middle(stages: list[dict[str, float]], name: str) -> float:
    return round(statistics.median(stage[name] for stage in stages), 2)


def timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rounds(encoder: str) -> dict[str, Any]:
    """Median seconds of FedAvg's rounds, over loopback and in one process on the same data."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(Path(folder), encoder, federation__rounds=4).found()
        hosts.run().good()
        over = [json.loads(line) for line in (hosts.root / "run" / "metrics.jsonl").read_text().splitlines()]
        inside = [json.loads(line) for line in (hosts.reference() / "metrics.jsonl").read_text().splitlines()]
    between, within = (statistics.median(line["seconds"] for line in lines[1:]) for lines in (over, inside))
    return {
        "sites": len(SITES),
        "parameters_mb": round(over[-1]["bytes_up"] / len(SITES) / 1e6, 1),
        "round_seconds_between_hosts": round(between, 2),
        "round_seconds_in_process": round(within, 2),
        "ratio": round(between / within, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--megabytes", type=int, default=90)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = {
        **provenance(),
        "command": "python -m benchmarks.between_hosts",
        "encoder": Path(given.encoder).name,
        "wire": wire(given.megabytes),
        "fedavg": rounds(given.encoder),
    }
    text = json.dumps(found, indent=1)
    sys.stdout.write(text + "\n")
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
