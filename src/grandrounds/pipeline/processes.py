"""Saved models in several processes: batches of documents go out as they come, and results come back in their order.

Each process loads the models for itself and computes with one thread. A batch is read as it is read in one process, so
the results are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from grandrounds import subprocesses
from grandrounds.data.documents import Document
from grandrounds.errors import GrandRoundsError
from grandrounds.pipeline.load import load
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.registry import load_modules
from grandrounds.setup.server import find_device
from grandrounds.tasks.abilities import Bagged
from grandrounds.tasks.saved import Extractor
from grandrounds.tasks.task import Counts, ExtractionTask, no_example

AHEAD = 2
"""Batches for each process that are under way or wait for their turn: memory does not grow with documents."""
Texts = Sequence[str | Document]
Result = tuple[Any, Mapping[str, int]]
"""What a batch gave, and what was passed over in it, counted."""


@dataclass(frozen=True)
class Models:
    """How a process loads the same pipeline as any other."""

    folders: Sequence[Path]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """threshold, window, assertions, dictionary"""
    device: str = "cpu"
    imports: Sequence[str] = ()

    def load(self) -> Pipeline:
        load_modules(self.imports)
        return load(*self.folders, **self.settings, device=find_device(self.device))


def extract(
    models: Models, pipeline: Pipeline, texts: Iterable[str | Document], batch: int, processes: int
) -> Iterator[Document]:
    """What `pipeline.pipe` finds, in its order; what is passed over is counted in its `warnings`."""
    if processes == 1:
        yield from pipeline.pipe(texts, batch)
        return
    for documents, passed_over in _in_order(models, extract_batch, texts, batch, processes):
        pipeline.warnings.update(passed_over)
        yield from documents


def evaluate(
    models: Models,
    model: Extractor,
    documents: Sequence[Document],
    batch: int,
    processes: int,
    done: Callable[[int], None] = lambda documents: None,
) -> tuple[dict[str, Any], Counter[str]]:
    """The score of one model on annotated documents, and what was left out; `done` hears how many were read."""
    device = find_device(models.device)
    if not isinstance(model.task, ExtractionTask) or isinstance(model.task, Bagged):
        if processes > 1:
            raise GrandRoundsError(
                f"a {model.task.name} model is scored on all documents at once: leave --processes out"
            )
        score, left_out = model.evaluate(documents, device)
        done(len(documents))
        return score, Counter(left_out)
    if processes == 1:
        chunks = (documents[start : start + batch] for start in range(0, len(documents), batch))
        results: Iterable[Result] = (model.count(chunk, device) for chunk in chunks)
    else:
        results = _in_order(models, count_batch, documents, batch, processes)
    summed, left = Counter[str](), Counter[str]()
    for number, (counts, left_out) in enumerate(results, start=1):
        for name, value in counts.items():
            summed[name] += value
        left.update(left_out)
        done(min(number * batch, len(documents)))
    if not summed:
        raise no_example(model.task, "the corpus holds", left)
    return model.task.score(summed), left


def extract_batch(pipeline: Pipeline, texts: Texts, first: int) -> Result:
    pipeline.warnings.clear()
    found = list(pipeline.pipe(texts, len(texts), first))
    return found, dict(pipeline.warnings)


def count_batch(pipeline: Pipeline, documents: Sequence[Document], first: int) -> tuple[Counts, Mapping[str, int]]:
    (model,) = (*pipeline.taggers, *pipeline.relaters)
    return model.count(documents, pipeline.device)


def _in_order(
    models: Models, job: Callable[..., Result], texts: Iterable[str | Document], batch: int, processes: int
) -> Iterator[Result]:
    rest, number, turn = iter(texts), 0, 0
    with _workers(models, job, processes) as idle:
        busy: dict[Connection, int] = {}
        results: dict[int, Result] = {}
        ended = False
        while True:
            while idle and not ended and len(busy) + len(results) < AHEAD * processes:
                if chunk := list(islice(rest, batch)):
                    idle[-1].send((chunk, number * batch + 1))
                    busy[idle.pop()] = number
                    number += 1
                else:
                    ended = True
            while turn in results:
                yield results.pop(turn)
                turn += 1
            if ended and not busy:
                return
            for worker in wait(list(busy)) if busy else ():
                assert isinstance(worker, Connection)
                results[busy.pop(worker)] = _received(worker)
                idle.append(worker)


@contextmanager
def _workers(models: Models, job: Callable[..., Result], processes: int) -> Iterator[list[Connection]]:
    started, ends = [], list[Connection]()
    try:
        for _ in range(processes):
            ours, theirs = Pipe()
            ends.append(ours)
            started.append(subprocesses.start(work, theirs, models, subprocesses.name_of(job), daemon=True))
            theirs.close()  # or we would not see that it ended
        yield list(ends)
    finally:
        for end in ends:
            end.close()
        for process in started:
            process.terminate()
            process.join()


def work(connection: Connection, models: Models, job: str) -> None:
    """A process: load the models, then answer batches until the other end is closed."""
    torch.set_num_threads(1)
    run = subprocesses.find(job)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            pipeline = models.load()
            while True:
                chunk, first = connection.recv()
                connection.send(run(pipeline, chunk, first))
        except GrandRoundsError as problem:
            connection.send(str(problem))


def _received(worker: Connection) -> Result:
    try:
        answer = worker.recv()
    except (EOFError, OSError) as error:
        raise GrandRoundsError(
            "a process ended before its time: is there memory for so many? try fewer --processes or a smaller --batch"
        ) from error
    if isinstance(answer, str):
        raise GrandRoundsError(answer)
    result: Result = answer
    return result
