"""Workers on a stand-in for Ray's cluster, which die when a test says so; tests/real/test_ray.py has a real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Scores
from grandrounds.simulation import ray_cluster
from grandrounds.simulation.ray_cluster import RayWorkers
from tests.conftest import TinyConfig

SITES = ("charity", "general", "mercy", "university")


class RayError(Exception):
    pass


@dataclass(eq=False)
class Ref:
    value: Any = None
    made: Callable[[], Any] | None = None

    def get(self) -> Any:
        if self.made is not None:
            self.value, self.made = self.made(), None
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@dataclass
class Cluster:
    """`dies` says of an actor's number and the site that it is asked for whether that ends it; `cores` are how many
    actors find one; `lost` are sites whose payloads go with a node, once."""

    dies: Callable[[int, str], bool] = lambda number, site: False
    cores: int = 99
    lost: set[str] = field(default_factory=set)
    order: list[str] = field(default_factory=list)
    actors: int = 0
    killed: int = 0
    puts: int = 0
    exceptions: Any = field(default_factory=lambda: SimpleNamespace(RayError=RayError))

    def is_initialized(self) -> bool:
        return True

    def remote(self, cls: type) -> Any:
        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *given: Stand(self, cls(*given)))
        )

    def put(self, value: Any) -> Ref:
        self.puts += 1
        return Ref(value)

    def get(self, ref: Any) -> Any:
        return ref.get()

    def wait(self, refs: Sequence[Ref], **options: Any) -> tuple[list[Ref], list[Ref]]:
        """The last one first: answers don't come in the order of the asks."""
        ready = [ref for ref in reversed(refs) if ref.value != "waits for a core"]
        return ready[:1], []

    def kill(self, actor: Any) -> None:
        self.killed += 1


class Stand:
    """An actor's handle."""

    def __init__(self, cluster: Cluster, actor: ray_cluster.Actor) -> None:
        cluster.actors += 1
        self._cluster, self._actor, self._number, self._dead = cluster, actor, cluster.actors, False
        self.ready = SimpleNamespace(remote=self._ready)
        self.answer = SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=self._answer))

    def _ready(self) -> Ref:
        return Ref(None if self._number <= self._cluster.cores else "waits for a core")

    def _answer(self, note: dict[str, Any], refs: dict[str, Ref]) -> tuple[Ref, Ref]:
        site = note["site"]
        self._cluster.order.append(site)
        if self._dead or self._cluster.dies(self._number, site):
            self._dead = True
            return Ref(RayError("died")), Ref(RayError("died"))
        said, payloads = self._actor.answer(note, refs)
        if site in self._cluster.lost:
            self._cluster.lost.remove(site)
            return Ref(said), Ref(RayError("lost"))
        return Ref(said), Ref(payloads)


class Echo:
    """A runner that says what site it was asked for, and with what."""

    def answer(self, ask: Ask) -> Any:
        if ask.site == "broken":
            raise GrandRoundsError("no such data")
        (sent,) = ask.payloads
        return Answer(ask.site, (Scores({ask.site: float(sent.header["values"]["x"])}).pack("fp32"),), "00001.1")

    def flush(self) -> None: ...


def make_echo() -> Echo:
    return Echo()


def asks(*sites: str) -> list[Ask]:
    sent = Scores({"x": 7.0}).pack("fp32")
    return [Ask(site, "toy", {}, "train", 1, 1, (sent,), "config", None, "00001.1", ()) for site in sites]


def answered(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *sites: str, workers: int = 2) -> list[Any]:
    monkeypatch.setattr(ray_cluster, "_ray", lambda: cluster)
    pool = RayWorkers(make_echo, (), workers, "local")  # type: ignore[arg-type]
    try:
        return [(a.site, a.payloads[0].header["values"], a.version) for a in pool.exchange(asks(*sites))]
    finally:
        pool.close()


ALL = [(site, {site: 7.0}, "00001.1") for site in SITES]


def test_answers_come_in_the_order_of_sites_and_weights_are_put_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    assert answered(cluster, monkeypatch, *SITES) == ALL
    assert (cluster.puts, cluster.actors, cluster.killed) == (1, 2, 2)


def test_a_worker_that_dies_is_replaced_and_its_site_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(dies=lambda number, site: number == 1)
    assert answered(cluster, monkeypatch, *SITES) == ALL
    assert cluster.actors == 3
    assert len(cluster.order) == len(SITES) + 1


def test_a_site_whose_answer_went_with_its_node_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(lost={"general", "mercy"})
    assert answered(cluster, monkeypatch, *SITES) == ALL
    assert sorted(cluster.order) == sorted([*SITES, "general", "mercy"])


def test_workers_without_a_core_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(Cluster(cores=1), monkeypatch, *SITES, workers=4) == ALL
    with pytest.raises(GrandRoundsError, match="no core for a worker"):
        answered(Cluster(cores=0), monkeypatch, *SITES)


def test_a_site_that_ends_every_worker_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(dies=lambda number, site: site == "mercy")
    with pytest.raises(GrandRoundsError, match="3 workers ended one after the other"):
        answered(cluster, monkeypatch, *SITES)


def test_a_cluster_needs_the_runtime_and_one_that_is_not_there_is_said(
    tiny_config: TinyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"ray\.address has no effect without runtime = 'ray'"):
        make_config(tiny_config(**{"ray.address": "auto"}))

    def nobody(*given: Any, **named: Any) -> None:
        raise ConnectionError

    alone = Cluster()
    monkeypatch.setattr(Cluster, "is_initialized", lambda self: False)
    monkeypatch.setattr(Cluster, "init", nobody, raising=False)
    with pytest.raises(GrandRoundsError, match=r"no Ray cluster at ray\.address = 'local'"):
        answered(alone, monkeypatch, *SITES)


def test_what_a_worker_can_not_do_is_said_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GrandRoundsError, match="no such data"):
        answered(Cluster(), monkeypatch, "broken")
