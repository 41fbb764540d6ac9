"""Sites in several single-threaded processes of this machine.

What travels is encoded once to a spool file, so early replies wait on disk and memory does not grow with the number
of sites; over the pipes go small JSON notes only.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import torch

from grandrounds import subprocesses
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed
from grandrounds.federation.runner import SiteRunner

W = TypeVar("W")
Note = dict[str, Any]


class Pool(Generic[W]):
    """Workers that answer one ask at a time; answers are given in the order of the asks."""

    def __init__(self) -> None:
        self._idle: list[W] = []

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        waiting, busy, arrived = list(reversed(asks)), dict[W, Ask](), dict[str, Note]()
        for ask in asks:
            answer = None
            while answer is None:
                while self._idle and waiting:
                    worker, next_ask = self._idle.pop(), waiting.pop()
                    self._send(worker, next_ask)
                    busy[worker] = next_ask
                if ask.site in arrived:
                    answer = self._answer(ask, arrived.pop(ask.site))
                    waiting += [] if answer else [ask]
                    continue
                for worker in self._finished(busy):
                    asked = busy.pop(worker)
                    if (reply := self._receive(worker, asked)) is None:
                        waiting.append(asked)
                    else:
                        arrived[asked.site] = reply
                        self._idle.append(worker)
            yield answer
        self._clear()

    def flush(self) -> None:
        """Workers keep private state on disk, since the next ask may reach another worker."""

    def _send(self, worker: W, ask: Ask) -> None:
        raise NotImplementedError

    def _finished(self, busy: Collection[W]) -> Collection[W]:
        """Wait until at least one of them has something to say, or another became idle."""
        raise NotImplementedError

    def _receive(self, worker: W, ask: Ask) -> Note | None:
        """What it says; None where it ended and another must be asked."""
        raise NotImplementedError

    def _answer(self, ask: Ask, reply: Note) -> Answer | None:
        """With the payloads, when it is their turn; None where these are gone and the site must be asked again."""
        raise NotImplementedError

    def _clear(self) -> None:
        """After an exchange."""
        raise NotImplementedError


class Workers(Pool[Connection]):
    def __init__(self, runner: Callable[..., SiteRunner], given: tuple[Any, ...], count: int, spool: Path) -> None:
        """`runner` is a module's function that makes a worker's runner from plain values."""
        super().__init__()
        shutil.rmtree(spool, ignore_errors=True)
        spool.mkdir(parents=True)
        self._spool = spool
        self._processes = []
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            process = subprocesses.start(_serve, subprocesses.name_of(runner), given, theirs, str(spool), daemon=True)
            theirs.close()
            self._idle.append(ours)
            self._processes.append(process)
        self._connections = list(self._idle)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
            process.join(timeout=5)
        shutil.rmtree(self._spool, ignore_errors=True)

    def _send(self, worker: Connection, ask: Ask) -> None:
        worker.send_bytes(json.dumps(ask.note(self._write)).encode())

    def _write(self, packed: Packed) -> str:
        path = self._spool / packed.digest
        if not path.exists():
            path.write_bytes(packed.to_bytes())
        return packed.digest

    def _finished(self, busy: Collection[Connection]) -> Collection[Connection]:
        ready = wait(list(busy))
        return [connection for connection in self._connections if connection in ready]

    def _receive(self, worker: Connection, ask: Ask) -> Note:
        try:
            reply: Note = json.loads(worker.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise GrandRoundsError(
                "a worker process ended by itself, perhaps for want of memory; go on with --resume and fewer workers"
            ) from error
        return whole(reply)

    def _answer(self, ask: Ask, reply: Note) -> Answer:
        payloads = []
        for file in reply["files"]:
            path = self._spool / file
            payloads.append(Packed.from_bytes(path.read_bytes()))
            path.unlink()
        return Answer.of(ask.site, tuple(payloads), reply["answer"])

    def _clear(self) -> None:
        for path in self._spool.iterdir():
            path.unlink()


def whole(reply: Note) -> Note:
    """The reply of a worker; what it could not do is an error here."""
    if "error" in reply:
        raise GrandRoundsError(reply["error"])
    if "bug" in reply:
        raise RuntimeError("in a worker process:\n" + reply["bug"])
    return reply


class Host:
    """A runner in a process of its own; it is made at the first ask, from plain values."""

    def __init__(self, runner: str, given: tuple[Any, ...]) -> None:
        self._name, self._given = runner, given
        self._runner: SiteRunner | None = None
        self._held: dict[str, Packed] = {}

    def answer(self, note: Note, get: Callable[[str], bytes]) -> tuple[Note, list[bytes]]:
        """The answer to the ask of a note, and its payloads; `get` finds those of the ask by their digests."""
        try:
            if self._runner is None:
                self._runner = subprocesses.find(self._name)(*self._given)
            assert self._runner is not None
            answer = self._runner.answer(self._ask(note, get))
            self._runner.flush()
            return {"answer": answer.note()}, [part.to_bytes() for part in answer.payloads]
        except GrandRoundsError as error:
            return {"error": str(error)}, []
        except Exception:
            return {"bug": traceback.format_exc()}, []

    def _ask(self, note: Note, get: Callable[[str], bytes]) -> Ask:
        def payload(digest: str) -> Packed:
            if digest not in self._held:
                self._held[digest] = Packed.from_bytes(get(digest))
            return self._held[digest]

        named = {part["payload"] for part in note["message"] if isinstance(part, dict)} | {note["public_set"]}
        for digest in self._held.keys() - named:
            del self._held[digest]  # a worker holds what the last ask brought, no more
        return Ask.of(note, payload)


def _serve(runner: str, given: tuple[Any, ...], connection: Connection, spool: str) -> None:
    """A worker's life: answer asks until the parent is gone."""
    torch.set_num_threads(1)
    host, folder = Host(runner, given), Path(spool)
    try:
        while True:
            note = json.loads(connection.recv_bytes())
            reply, payloads = host.answer(note, lambda digest: (folder / digest).read_bytes())
            files = [f"{quote(note['site'], safe='')}.{place}.reply" for place in range(len(payloads))]
            for file, part in zip(files, payloads, strict=True):
                (folder / file).write_bytes(part)
            connection.send_bytes(json.dumps({**reply, "files": files}).encode())
    except EOFError:
        return
