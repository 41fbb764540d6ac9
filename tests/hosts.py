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

from grandrounds.config.schema import load_config
from grandrounds.data.documents import Document, Span
from grandrounds.deployment.consortium import Founded, create
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.deployment.handler import MessageHandler
from grandrounds.deployment.keys import make_authority, make_key
from grandrounds.deployment.signed import sign_enrolment
from grandrounds.deployment.site import open_handler, read_holding
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

    sites: Sequence[str] = SITES

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
        sites = ("--sites", ",".join(self.sites))
        run("federation", "create", self.root, *sites, "--config", self.config, *where, *options).good()
        for site in self.sites:
            self.enrol(site)
        return self

    def found_here(self) -> Hosts:
        """The same in this process, for tests that open the sites' handlers themselves."""
        where = {"hosts": ["127.0.0.1"], "port": 8000, "bind": "127.0.0.1"}
        founded = Founded(name="test", sites=list(self.sites), data=str(self.folder), **where)
        create(self.root, founded, load_config(self.config))
        for site in self.sites:
            enrolment = read_enrolment(self.enrolment(site))
            enrolment.key.parent.mkdir()
            make_key(enrolment.key, enrolment.public_key)
        return self

    def handler(self, site: str, data: Path | None = None) -> MessageHandler:
        enrolment = read_enrolment(self.enrolment(site))
        held = read_holding(enrolment, [data or self.folder / f"{site}.jsonl"], "json")
        return open_handler(enrolment, held, print)

    def enrol(self, site: str) -> None:
        """The site makes its key, and its public half goes back."""
        run("site", "init", self.enrolment(site)).good()
        shutil.copy(self.enrolment(site) / f"{site}.pub", self.root / "keys" / f"{site}.pub")

    def enrolment(self, site: str) -> Path:
        return self.root / "enrolment" / site

    def test_data(self, site: str) -> Path:
        return self.folder / "test.jsonl"

    def join(self, site: str, *options: str | Path) -> Running:
        data = ("--data", self.folder / f"{site}.jsonl", "--format", "json", "--test", self.test_data(site))
        self.running[site] = start("site", "join", self.enrolment(site), *data, "--accept", *options)
        return self.running[site]

    def coordinate(self, *options: str) -> Running:
        self.running["coordinator"] = start("coordinator", self.root, *options)
        return self.running["coordinator"]

    def run(self, **options: Sequence[str | Path]) -> Outcome:
        """Everything, to its end; `options` are further ones of a site's `join`."""
        for site in self.sites:
            self.join(site, *options.get(site, ()))
        return self.finish(self.coordinate("--json"))

    def finish(self, coordinator: Running) -> Outcome:
        outcome = coordinator.wait(1800)
        for site in self.sites:
            self.running[site].wait(120)
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
            for site in self.sites
        }

    def reference_models(self) -> dict[str, bytes]:
        out = self.reference()
        if (out / "model").exists():
            return {"model": (out / "model" / "model.safetensors").read_bytes()}
        return {site: (out / "models" / site / "model.safetensors").read_bytes() for site in self.sites}

    def close(self) -> None:
        for process in self.running.values():
            if not process.ended(0):
                process.kill()


TYPES = {"charity": ("problem", "treatment"), "general": ("treatment",), "mercy": ("test",)}
"""Which types each hospital annotates, where it may choose."""


class OwnLabels(Hosts):
    """Hospitals that annotate different things, one of them in another tag scheme; each is tested on its own data."""

    def __init__(self, folder: Path, encoder: Path | str, **settings: Any) -> None:
        super().__init__(
            folder,
            encoder,
            task={"name": "ner", "filters": 8, "hidden": 8, "character_width": 4},
            data={"format": "json", "public": "public.jsonl"},
            algorithm={"name": "fedner", "batch": 12, "iterations": 3},
            **settings,
        )
        for i, (site, types) in enumerate(TYPES.items()):
            train = planted(corpus(32, site), CANARIES[33 * i : 33 * i + 34])
            write_corpus(folder / f"{site}.jsonl", annotated(train, types))
            write_corpus(self.test_data(site), annotated(corpus(16, f"{site}t"), types))
            self.content["sites"][site]["test"] = self.test_data(site).name
        self.content["sites"]["mercy"]["task"] = {"scheme": "BIOES"}
        self.config.write_text(tomli_w.dumps(self.content))

    def test_data(self, site: str) -> Path:
        return self.folder / f"{site}-test.jsonl"

    def enrol(self, site: str) -> None:
        super().enrol(site)
        if "task" in self.content["sites"][site]:
            about = self.enrolment(site) / "site.toml"
            about.write_text(about.read_text() + tomli_w.dumps({"task": self.content["sites"][site]["task"]}))


def annotated(documents: Sequence[Document], types: Sequence[str]) -> list[Document]:
    """With mentions of these types alone; what another hospital annotates is text here."""
    out = []
    for document in documents:
        mentions = tuple(m for m in document.mentions if m.type in types)
        out.append(replace(document, mentions=mentions, entities=(), relations=()))
    return out


KNOWN = {"charity": ("treatment", "problem"), "mercy": ("test",)}
"""Which types two hospitals annotate; what the other one does, each leaves as text."""


def own_labels(folder: Path, algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config for these two hospitals, whose corpora are written to the folder."""
    sites: dict[str, dict[str, Any]] = {}
    for name, types in KNOWN.items():
        made = {part: annotated(corpus(size, f"{name}{part}"), types) for part, size in (("train", 48), ("test", 16))}
        sites[name] = {
            part: str(write_corpus(folder / f"{name}-{part}.jsonl", documents)) for part, documents in made.items()
        }
    return {
        "device": "cpu",
        "task": {"name": "ner", "filters": 16, "hidden": 16, "character_width": 8},
        "data": {"format": "json", "public": 0.2},
        "sites": sites,
        "model": {"encoder": "words"},
        "training": {"learning_rate": 5e-3, "optimizer": "adam", "batch_size": 8},
        "algorithm": algorithm,
    }


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


REFUSALS = {
    "unregistered key": "does not know this site's key",
    "wrong authority": "is not this federation's coordinator, or its certificate has expired",
    "plaintext": "it may speak TLS, and this site's enrolment says plaintext",
}


def stranger(hosts: Hosts, folder: Path, how: str) -> Running:
    """Somebody with mercy's enrolment, but for what must keep them out."""
    shutil.copytree(hosts.enrolment("mercy"), folder)
    match how:
        case "unregistered key":
            shutil.rmtree(folder / "private")
            run("site", "init", folder).good()
        case "wrong authority":
            make_authority(folder, "another")
            sign_enrolment(folder, "mercy", folder / "ca.key")
            (folder / "private" / "seen.json").unlink()  # whoever swaps all of it gets as far as TLS
        case "plaintext":
            about = folder / "site.toml"
            about.write_text(about.read_text().replace("insecure = false", "insecure = true"))
    data = ("--data", hosts.folder / "mercy.jsonl", "--format", "json")
    return start("site", "join", folder, *data, "--accept", *(["--insecure"] if how == "plaintext" else []))
