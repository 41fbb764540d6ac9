"""Sites in actors on a Ray cluster (runtime = "ray"): workers with another transport.

Corpora, encoder and run folder are at the same paths on every node, so that an actor prepares its sites' data where it
runs, and what sites keep is on a disk that all see: whichever actor is asked next finds it. Payloads travel through
Ray's object store as our encoded bytes, those to sites once a node. A worker that dies, alone or with its node, is
replaced wherever the cluster has room, and its site is asked again: the ask names the version to start from.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from grandrounds import subprocesses
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed
from grandrounds.federation.runner import SiteRunner
from grandrounds.simulation.workers import Host, Note, Pool, whole

LOCAL = "local"
PATIENCE = 600.0
"""Seconds in which at least one worker must find a free core."""
MOST_DEATHS = 3
"""Of workers that were asked the same: then it is no accident."""


class RayWorkers(Pool[int]):
    """Workers are called by numbers; an actor that replaces another one has a new number."""

    def __init__(
        self, runner: Callable[..., SiteRunner], given: tuple[Any, ...], count: int, address: str, threads: int = 1
    ) -> None:
        super().__init__()
        self._ray = _ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._join(address, count * threads)
        actor = self._ray.remote(Actor)
        self._make: Callable[[], Any] = lambda: actor.options(num_cpus=threads, scheduling_strategy="SPREAD").remote(
            subprocesses.name_of(runner), given
        )
        self._actors: dict[int, Any] = {}
        self._coming: dict[Any, int] = {}
        """Actors that have found no core yet, by what they will say then."""
        self._running: dict[int, Any] = {}
        self._put: dict[str, Any] = {}
        self._deaths = Counter[str]()
        self._made = 0
        for _ in range(count):
            self._start()

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        if self._ours:
            self._ray.shutdown()

    def _join(self, address: str, cores: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        own = {"num_cpus": cores, "include_dashboard": False} if address == LOCAL else {}
        try:
            self._ray.init(address, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise GrandRoundsError(f"no Ray cluster at ray.address = '{address}' ({type(error).__name__})") from error

    def _start(self) -> None:
        self._made += 1
        self._actors[self._made] = actor = self._make()
        self._coming[actor.ready.remote()] = self._made

    def _send(self, worker: int, ask: Ask) -> None:
        refs: dict[str, Any] = {}

        def put(packed: Packed) -> str:
            digest = packed.digest
            if digest not in self._put:
                self._put[digest] = self._ray.put(np.frombuffer(packed.to_bytes(), dtype=np.uint8))
            refs[digest] = self._put[digest]
            return digest

        note = ask.note(put)
        self._running[worker] = self._actors[worker].answer.options(num_returns=2).remote(note, refs)

    def _finished(self, busy: Collection[int]) -> Collection[int]:
        asked = {self._running[worker][0]: worker for worker in busy}
        patience = None if busy else PATIENCE
        ready, _ = self._ray.wait([*asked, *self._coming], num_returns=1, timeout=patience, fetch_local=False)
        if not ready:
            raise GrandRoundsError(f"the Ray cluster had no core for a worker within {PATIENCE:g} s")
        for ref in ready:
            if ref in self._coming:
                self._arrive(ref)
        return [asked[ref] for ref in ready if ref in asked]

    def _arrive(self, ref: Any) -> None:
        worker = self._coming.pop(ref)
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            self._replace(worker, "a start", error)
        else:
            self._idle.append(worker)

    def _receive(self, worker: int, ask: Ask) -> Note | None:
        said, payloads = self._running.pop(worker)
        try:
            return {**whole(self._ray.get(said)), "payloads": payloads}
        except self._ray.exceptions.RayError as error:
            self._replace(worker, ask.site, error)
            return None

    def _replace(self, worker: int, asked: str, error: Exception) -> None:
        del self._actors[worker]
        self._deaths[asked] += 1
        if self._deaths[asked] >= MOST_DEATHS:
            raise GrandRoundsError(
                f"{MOST_DEATHS} workers ended one after the other, perhaps for want of memory; go on with --resume and "
                f"fewer workers ({type(error).__name__})"
            ) from error
        self._start()

    def _answer(self, ask: Ask, reply: Note) -> Answer | None:
        try:
            payloads = self._ray.get(reply["payloads"])
        except self._ray.exceptions.RayError:  # its node is gone, and with it what waited there
            return None
        return Answer.of(ask.site, tuple(Packed.from_bytes(part.tobytes()) for part in payloads), reply["answer"])

    def _clear(self) -> None:
        self._put.clear()
        self._deaths.clear()


class Actor:
    """A worker on some node."""

    def __init__(self, runner: str, given: tuple[Any, ...]) -> None:
        self._host = Host(runner, given)

    def ready(self) -> None:
        """It has a core."""

    def answer(self, note: Note, refs: dict[str, Any]) -> tuple[Note, list[Any]]:
        ray = _ray()
        reply, payloads = self._host.answer(note, lambda digest: ray.get(refs[digest]).tobytes())
        return reply, [np.frombuffer(part, dtype=np.uint8) for part in payloads]


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("runtime = 'ray' needs Ray; pip install 'grandrounds[ray]'") from error
    return ray
