"""A federation between hosts on this one: a coordinator and its sites as processes, with TLS and keys, on loopback."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from grandrounds.data.documents import Document, Span
from tests.cli.commands import Outcome, Running, run, start
from tests.conftest import corpus, write_corpus

SITES = ("charity", "general", "mercy")
CANARIES = [f"zanar{i:02d}q{i * 7919 % 1000:03d}" for i in range(100)]


def planted(documents: Sequence[Document], words: Sequence[str]) -> list[Document]:
    """Each document with canaries before its sentence's end: words that nobody but its site knows."""
    out = []
    for i, document in enumerate(documents):
        own = " ".join(words[j % len(words)] for j in range(3 * i, 3 * i + 3))
        text = f"{document.text[:-1]}{own} ."
        out.append(replace(document, id=f"{document.id}-{own.split()[0]}", text=text, sentences=(Span(0, len(text)),)))
    return out


class Hosts:
    """A founded federation; its sites have made their keys and the coordinator has them."""

    def __init__(self, folder: Path, encoder: Path | str, **settings: Any) -> None:
        self.folder, self.root = folder, folder / "federation"
        train = corpus(96)
        for i, site in enumerate(SITES):
            share = [document for k, document in enumerate(train) if (k // 4) % 4 == i]
            write_corpus(folder / f"{site}.jsonl", planted(share, CANARIES[33 * i : 33 * i + 34]))
        write_corpus(folder / "public.jsonl", [document for k, document in enumerate(train) if (k // 4) % 4 == 3])
        write_corpus(folder / "test.jsonl", corpus(24, "t"))
        self.content: dict[str, Any] = {
            "seed": 1,
            "device": "cpu",
            "task": {"name": "sentence_re", "max_length": 32},
            "data": {"format": "json", "public": "public.jsonl", "test": "test.jsonl"},
            "sites": {site: {"train": f"{site}.jsonl"} for site in SITES},
            "model": {"encoder": str(encoder)},
            "training": {"epochs": 1, "batch_size": 8, "learning_rate": 2e-3},
            "federation": {"rounds": 2, "evaluate_on": ["test"], "deadline": 120, "absence": 60},
            "algorithm": {"name": "fedavg"},
        }
        for key, value in settings.items():
            *sections, last = key.split("__")
            place = self.content
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        self.config = folder / "config.toml"
        self.config.write_text(tomli_w.dumps(self.content))
        self.running: dict[str, Running] = {}

    def found(self, *options: str, host: str = "127.0.0.1") -> Hosts:
        self.port = free_port()
        where = ("--host", host, "--bind", "127.0.0.1", "--port", str(self.port))
        sites = ("--sites", ",".join(SITES))
        run("federation", "create", self.root, *sites, "--config", self.config, *where, *options).good()
        for site in SITES:
            self.enrol(site)
        return self

    def enrol(self, site: str) -> None:
        """The site makes its key, and its public half goes back."""
        run("site", "init", self.enrolment(site)).good()
        shutil.copy(self.enrolment(site) / f"{site}.pub", self.root / "keys" / f"{site}.pub")

    def enrolment(self, site: str) -> Path:
        return self.root / "enrolment" / site

    def join(self, site: str, *options: str | Path) -> Running:
        data = ("--data", self.folder / f"{site}.jsonl", "--format", "json", "--test", self.folder / "test.jsonl")
        self.running[site] = start("site", "join", self.enrolment(site), *data, *options)
        return self.running[site]

    def coordinate(self, *options: str) -> Running:
        self.running["coordinator"] = start("coordinator", self.root, *options)
        return self.running["coordinator"]

    def run(self) -> Outcome:
        """Everything, to its end."""
        for site in SITES:
            self.join(site)
        return self.finish(self.coordinate("--json"))

    def finish(self, coordinator: Running) -> Outcome:
        outcome = coordinator.wait(240)
        for site in SITES:
            self.running[site].wait(30)
        return outcome

    def reference(self) -> Path:
        """The same in one process."""
        out = self.folder / "in-process"
        if not out.exists():
            run("run", self.config, "--out", out).good()
        return out

    def models(self) -> dict[str, bytes]:
        """The federation's model, or each site's own where sites have their own."""
        shared = self.root / "run" / "model" / "model.safetensors"
        if shared.exists():
            return {"model": shared.read_bytes()}
        return {
            site: (self.enrolment(site) / "private" / "models" / site / "model.safetensors").read_bytes()
            for site in SITES
        }

    def reference_models(self) -> dict[str, bytes]:
        out = self.reference()
        if (out / "model").exists():
            return {"model": (out / "model" / "model.safetensors").read_bytes()}
        return {site: (out / "models" / site / "model.safetensors").read_bytes() for site in SITES}

    def close(self) -> None:
        for process in self.running.values():
            if not process.ended(0):
                process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Any, seconds: float = 60.0) -> float:
    """How long it took to become true."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it never came true"
        time.sleep(0.02)
    return time.monotonic() - began


def everything(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
