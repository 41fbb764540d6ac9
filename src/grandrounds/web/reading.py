"""Texts that come at once are read together: one thread has the models, and takes what has gathered while it was busy.

What a text is read with changes nothing of what is found in it. The queue is bounded: beyond it, who asks is told when
to come again, and nothing piles up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import torch

from grandrounds.data.documents import Document
from grandrounds.errors import GrandRoundsError
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.web.answers import log

TOGETHER = 64
"""Texts of one forward pass, as in `grandrounds extract`."""
CHARACTERS_TOGETHER = 200_000


class QueueFullError(Exception):
    """Come again in so many seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class NotReadError(Exception):
    """The thread failed on a text, for a reason that its log tells."""


@dataclass(frozen=True)
class Read:
    """What was found, and what was passed over, counted."""

    documents: Sequence[Document]
    warnings: Mapping[str, int]


@dataclass
class _Job:
    texts: Sequence[str | Document]
    threshold: float | None
    answer: asyncio.Future[Read]
    characters: int

    @property
    def given_up(self) -> bool:
        return self.answer.cancelled()


@dataclass
class Reader:
    """The pipeline, its thread and its queue."""

    pipeline: Pipeline
    most_waiting: int = 64
    """Requests."""
    documents: int = 0
    """Read so far."""
    passes: int = 0
    """Times that texts were read together so far."""
    _waiting: deque[_Job] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False
    _seconds: float = 1.0
    """Of the last pass."""
    _thread: threading.Thread | None = None

    def start(self) -> None:
        threads = torch.get_num_threads()  # OpenMP has a number for each thread that starts a computation
        self._thread = threading.Thread(target=self._work, args=(threads,), name="reader", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """After what is waiting has been read."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, texts: Sequence[str | Document], threshold: float | None = None) -> asyncio.Future[Read]:
        """From the event loop: the answer to come. Cancel it, and the texts are not read if they still wait."""
        answer: asyncio.Future[Read] = asyncio.get_running_loop().create_future()
        job = _Job(texts, threshold, answer, sum(map(_length, texts)))
        with self._changed:
            if len(self._waiting) >= self.most_waiting:
                raise QueueFullError(min(max(ceil(self._seconds), 1), 60))
            self._waiting.append(job)
            self._changed.notify()
        return answer

    def _work(self, threads: int) -> None:
        torch.set_num_threads(threads)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                jobs = self._take()
                if not jobs and self._ended:
                    return
            if jobs:
                began = time.monotonic()
                self._answer(jobs)
                self._seconds = time.monotonic() - began

    def _take(self) -> list[_Job]:
        """The first in the queue, and those behind it that can be read with it."""
        taken: list[_Job] = []
        texts = characters = 0
        while self._waiting:
            job = self._waiting[0]
            texts, characters = texts + len(job.texts), characters + job.characters
            fits = texts <= TOGETHER and characters <= CHARACTERS_TOGETHER
            if taken and not (fits and job.threshold == taken[0].threshold):
                break
            self._waiting.popleft()
            if job.given_up:
                texts, characters = texts - len(job.texts), characters - job.characters
            else:
                taken.append(job)
        return taken

    def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            read = self._read([text for job in jobs for text in job.texts], jobs[0].threshold)
        except Exception as problem:
            if len(jobs) == 1:
                _deliver(jobs[0], problem if isinstance(problem, GrandRoundsError) else _logged(problem))
            else:
                self._one_by_one(jobs)
            return
        if read.warnings and len(jobs) > 1:  # whose they are is known only of each request for itself
            self._one_by_one(jobs)
            return
        rest = iter(read.documents)
        for job in jobs:
            own = [_renamed(next(rest), text, number) for number, text in enumerate(job.texts, start=1)]
            _deliver(job, Read(own, read.warnings))

    def _one_by_one(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            if not job.given_up:
                self._answer([job])

    def _read(self, texts: Sequence[str | Document], threshold: float | None) -> Read:
        least = self.pipeline.threshold if threshold is None else threshold
        pipeline = replace(self.pipeline, threshold=least, warnings=Counter())
        found = list(pipeline.pipe(texts, max(len(texts), 1)))
        self.documents += len(found)
        self.passes += 1
        return Read(found, dict(pipeline.warnings))


def _renamed(found: Document, text: str | Document, number: int) -> Document:
    """Texts are called by their number in their own request."""
    return replace(found, id=f"text-{number}") if isinstance(text, str) else found


def _length(text: str | Document) -> int:
    return len(text.text if isinstance(text, Document) else text)


def _deliver(job: _Job, what: Read | Exception) -> None:
    def done() -> None:
        if job.answer.done():
            return
        if isinstance(what, Exception):
            job.answer.set_exception(what)
        else:
            job.answer.set_result(what)

    job.answer.get_loop().call_soon_threadsafe(done)


def _logged(problem: Exception) -> Exception:
    log(problem)
    return NotReadError()
