"""`grandrounds serve` under load, on this machine alone: requests a second, memory, and clients that mean it no good.

    python -m benchmarks.serving [--encoder FOLDER] [--out FILE] [--seconds 20] [--requests 20000]

The server is the command itself, in a process of its own; clients are threads of this one and share its cores. Its
tagger has weights at random, set to find as many mentions as a trained one: figures are about speed. Memory and
faults are measured with `tiny`. Every client sends one note of some 530 characters at a time, or for memory one
sentence, over a connection that it keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from benchmarks.extraction import random_tagger
from benchmarks.measuring import load
from grandrounds.data.synthetic import synthesize
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.load import save
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.runs.provenance import provenance

CLIENTS = (1, 8, 32)
HALF_OPEN = 1_000
LARGE = 50_000_000
TOKEN = "a-token-for-this-machine-alone"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
NOTES = [document.text for document in synthesize(hospitals=1, notes=100).train]
SENTENCES = [note.split(". ")[0] for note in NOTES]


@dataclass(frozen=True)
class Server:
    """A `grandrounds serve` that runs."""

    process: subprocess.Popen[str]
    port: int

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=120)

    def megabytes(self) -> float:
        """Its memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "grandrounds", "serve", str(folder), "--port", "0"]
    environment = {**os.environ, "GRANDROUNDS_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield Server(process, urlsplit(process.stdout.readline().strip()).port or 0)
        finally:
            process.terminate()


def model(folder: Path, encoder: str) -> Path:
    save(Pipeline((random_tagger(Encoder.find(encoder, public=NOTES), NOTES[:16]),)), folder)
    return folder


def ask(connection: HTTPConnection, note: str) -> int:
    """The status; 0 where no whole answer came."""
    try:
        connection.request("POST", "/extract", json.dumps({"text": note}), HEADERS)
        answer = connection.getresponse()
        whole = json.loads(answer.read())
        return answer.status if answer.status != 200 or whole["documents"][0]["text"] == note else 0
    except (OSError, HTTPException, ValueError):
        connection.close()
        return 0


def clients(server: Server, number: int, on: Callable[[int], bool], texts: Sequence[str] = NOTES) -> dict[str, Any]:
    """So many at a time, each asking as long as the next request's number is `on`."""
    numbers, began = count(), time.perf_counter()

    def one(client: int) -> list[tuple[int, float]]:
        connection, answers = server.connect(), list[tuple[int, float]]()
        while on(mine := next(numbers)):
            start = time.perf_counter()
            status = ask(connection, texts[mine % len(texts)])
            answers.append((status, time.perf_counter() - start))
        connection.close()
        return answers

    with ThreadPoolExecutor(number) as pool:
        answers = [answer for own in pool.map(one, range(number)) for answer in own]
    seconds = time.perf_counter() - began
    waited = np.array([wait for _, wait in answers]) * 1e3
    return {
        "clients": number,
        "requests": len(answers),
        "a_second": round(len(answers) / seconds, 2),
        "median_ms": round(float(np.median(waited)), 1),
        "p99_ms": round(float(np.percentile(waited, 99)), 1),
        "longest_ms": round(float(waited.max()), 1),
        "statuses": dict(Counter(str(status) for status, _ in answers)),
    }


def lasting(seconds: float) -> Callable[[int], bool]:
    end = time.perf_counter() + seconds
    return lambda number: time.perf_counter() < end


def speed(folder: Path, seconds: float) -> list[dict[str, Any]]:
    with serving(folder) as server:
        clients(server, 1, lambda number: number < 5)
        return [{**clients(server, number, lasting(seconds)), "load": load()} for number in CLIENTS]


def memory(folder: Path, requests: int) -> dict[str, Any]:
    """After a tenth, when all that is kept for good is there, and on to the end."""
    with serving(folder) as server:
        megabytes, statuses = {"0": server.megabytes()}, Counter[str]()
        for done in range(requests // 10, requests + 1, requests // 10):
            statuses.update(clients(server, 8, lambda number: number < requests // 10, SENTENCES)["statuses"])
            megabytes[str(done)] = server.megabytes()
        tenth, last = megabytes[str(requests // 10)], server.megabytes()
    return {"requests": requests, "statuses": dict(statuses), "megabytes": megabytes, "over": round(last / tenth, 3)}


def faults(folder: Path) -> dict[str, Any]:
    with serving(folder) as server:
        told = {
            "undisturbed": clients(server, 4, lasting(5)),
            "slow_client": meanwhile(server, lambda: slow_client(server)),
            "large_body": meanwhile(server, lambda: large_body(server)),
            "half_open": meanwhile(server, lambda: half_open(server)),
        }
        return {**told, "sigterm": sigterm(server)}


def meanwhile(server: Server, fault: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What became of it, and of four others that asked at the same time."""
    over, before = Event(), server.megabytes()
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(clients, server, 4, lambda number: not over.is_set())
        try:
            told = fault()
        finally:
            over.set()
        return {**told, "megabytes_more": round(server.megabytes() - before, 1), "others": others.result()}


def slow_client(server: Server) -> dict[str, Any]:
    """A request of 1,000 bytes that comes one byte in half a second."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", server.port), 120) as connection:
        connection.sendall(head(1_000))
        with suppress(OSError):
            for _ in range(1_000):
                connection.sendall(b" ")
                time.sleep(0.5)
    return {"ended_after_seconds": round(time.perf_counter() - began, 1)}


def large_body(server: Server) -> dict[str, Any]:
    """50 MB: once declared, once in chunks without a word on their sum."""
    told = dict[str, Any]()
    for name, start, piece in (
        ("declared", head(LARGE), b" " * 65_536),
        ("in_chunks", head(None), b"10000\r\n" + b" " * 65_536 + b"\r\n"),
    ):
        with socket.create_connection(("127.0.0.1", server.port), 120) as connection:
            connection.sendall(start)
            sent = 0
            with suppress(OSError):
                while sent < LARGE:
                    connection.sendall(piece)
                    sent += len(piece)
            told[name] = {"megabytes_taken": round(sent / 1e6, 1), "answer": first_line(connection)}
    return told


def half_open(server: Server) -> dict[str, Any]:
    """1,000 connections that say half a line and nothing more, while others ask."""
    opened = [socket.create_connection(("127.0.0.1", server.port), 120) for _ in range(HALF_OPEN)]
    began = time.perf_counter()
    for connection in opened:
        with suppress(OSError):  # it has given way to others already
            connection.sendall(b"POST /extr")
    for connection in opened:
        first_line(connection)
        connection.close()
    return {"connections": HALF_OPEN, "all_ended_after_seconds": round(time.perf_counter() - began, 1)}


def sigterm(server: Server) -> dict[str, Any]:
    """32 requests under way when the server is asked to end."""
    with ThreadPoolExecutor(32) as pool:
        connections = [server.connect() for _ in range(32)]
        for connection in connections:
            assert ask(connection, NOTES[0]) == 200
        answers = [pool.submit(ask, connection, " ".join(NOTES[:20])) for connection in connections]
        time.sleep(0.5)
        waiting = sum(not answer.done() for answer in answers)
        began = time.perf_counter()
        server.process.send_signal(signal.SIGTERM)
        statuses = Counter(str(answer.result()) for answer in answers)
    code = server.process.wait(60)
    seconds = round(time.perf_counter() - began, 1)
    return {"under_way": waiting, "statuses": dict(statuses), "exit_code": code, "ended_after_seconds": seconds}


def head(length: int | None) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [
        "POST /extract HTTP/1.1",
        "Host: 127.0.0.1",
        size,
        *(f"{name}: {value}" for name, value in HEADERS.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def first_line(connection: socket.socket) -> str:
    """Of what comes until the server hangs up."""
    came = b""
    with suppress(OSError):
        while piece := connection.recv(65_536):
            came = came or piece
    return came.split(b"\r\n")[0].decode("latin-1")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--encoder", help="a folder, such as MiniLM's; by default tiny")
    parser.add_argument("--seconds", type=float, default=20, help="for each number of clients")
    parser.add_argument("--requests", type=int, default=20_000, help="over which memory is measured")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    before = load()
    with tempfile.TemporaryDirectory(prefix="grandrounds-bench-") as scratch:
        tiny = model(Path(scratch, "tiny"), "tiny")
        found = {
            **provenance(),
            "command": "python -m benchmarks.serving" + (" --encoder MINILM" if options.encoder else ""),
            "encoder": Path(options.encoder or "tiny").name,
            "speed": speed(model(Path(scratch, "model"), options.encoder or "tiny"), options.seconds),
            "faults": faults(tiny),
            "memory": memory(tiny, options.requests),
            "load": {"before": before, "after": load(), "cores": os.cpu_count()},
        }
    written = json.dumps(found, indent=1) + "\n"
    sys.stdout.write(written)
    if options.out:
        options.out.write_text(written)


if __name__ == "__main__":
    main()
