"""Sites in several single-threaded processes of this machine.

What travels is encoded once to a spool file, so early replies wait on disk and memory does not grow with the number
of sites; over the pipes go small JSON notes only.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from grandrounds import subprocesses
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed
from grandrounds.federation.runner import SiteRunner


class Workers:
    def __init__(self, runner: Callable[..., SiteRunner], given: tuple[Any, ...], count: int, spool: Path) -> None:
        """`runner` is a module's function that makes a worker's runner from plain values."""
        shutil.rmtree(spool, ignore_errors=True)
        spool.mkdir(parents=True)
        self._spool = spool
        self._connections: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            process = subprocesses.start(_serve, subprocesses.name_of(runner), given, theirs, str(spool), daemon=True)
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        waiting = list(reversed(asks))
        idle, busy = list(self._connections), dict[Any, str]()
        arrived: dict[str, dict[str, Any]] = {}
        for ask in asks:
            while ask.site not in arrived:
                while idle and waiting:
                    connection, next_ask = idle.pop(), waiting.pop()
                    connection.send_bytes(json.dumps(next_ask.note(self._write)).encode())
                    busy[connection] = next_ask.site
                for ready in [connection for connection in self._connections if connection in wait(list(busy))]:
                    arrived[busy.pop(ready)] = self._receive(ready)
                    idle.append(ready)
            yield self._answer(ask, arrived.pop(ask.site))
        self._clear()

    def flush(self) -> None:
        """Workers keep private state on disk, since the next ask may reach another worker."""

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
            process.join(timeout=5)
        shutil.rmtree(self._spool, ignore_errors=True)

    def _write(self, packed: Packed) -> str:
        path = self._spool / packed.digest
        if not path.exists():
            path.write_bytes(packed.to_bytes())
        return packed.digest

    def _receive(self, connection: Any) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = json.loads(connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise GrandRoundsError(
                "a worker process ended by itself, perhaps for want of memory; go on with --resume and fewer workers"
            ) from error
        if "error" in reply:
            raise GrandRoundsError(reply["error"])
        if "bug" in reply:
            raise RuntimeError("in a worker process:\n" + reply["bug"])
        return reply

    def _answer(self, ask: Ask, reply: dict[str, Any]) -> Answer:
        payloads = []
        for file in reply["files"]:
            path = self._spool / file
            payloads.append(Packed.from_bytes(path.read_bytes()))
            path.unlink()
        return Answer.of(ask.site, tuple(payloads), reply["answer"])

    def _clear(self) -> None:
        for path in self._spool.iterdir():
            path.unlink()


def _serve(runner_name: str, given: tuple[Any, ...], connection: Connection, spool: str) -> None:
    """A worker's life: make the runner once, then answer asks until the parent is gone."""
    torch.set_num_threads(1)
    held: dict[str, Packed] = {}
    try:
        runner: SiteRunner = subprocesses.find(runner_name)(*given)
        while True:
            ask = _ask_of(json.loads(connection.recv_bytes()), Path(spool), held)
            answer = runner.answer(ask)
            runner.flush()
            files = [f"{quote(ask.site, safe='')}.{place}.reply" for place in range(len(answer.payloads))]
            for file, part in zip(files, answer.payloads, strict=True):
                (Path(spool) / file).write_bytes(part.to_bytes())
            connection.send_bytes(json.dumps({"files": files, "answer": answer.note()}).encode())
    except EOFError:
        return
    except GrandRoundsError as error:
        connection.send_bytes(json.dumps({"error": str(error)}).encode())
    except Exception:
        connection.send_bytes(json.dumps({"bug": traceback.format_exc()}).encode())


def _ask_of(note: dict[str, Any], spool: Path, held: dict[str, Packed]) -> Ask:
    def get(digest: str) -> Packed:
        if digest not in held:
            held[digest] = Packed.from_bytes((spool / digest).read_bytes())
        return held[digest]

    named = {part["payload"] for part in note["message"] if isinstance(part, dict)} | {note["public_set"]}
    for digest in held.keys() - named:
        del held[digest]  # a worker holds what the last ask brought, no more
    return Ask.of(note, get)
