"""What a document costs in training: over its encoder alone, over the same model written down from the paper
(plain_documents.py), and with FedLCC's contrast over FedAvg.

Documents are made up in the size of CDR's, or are CDR's own where GRANDROUNDS_DATA is the folder of the corpora.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.corpus import abstracts, document_federation
from benchmarks.measuring import Clocks, Row, Settings, ratio
from benchmarks.plain_documents import PlainLocalizedContext, plain_documents
from benchmarks.stepped import SteppedRun
from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.training import Training, make_optimizer
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.tasks.batching import training_batches
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions

OVER_ENCODER = 1.2
OVER_PLAIN = 0.333  # three times as fast
OVER_FEDAVG = 1.8
WINDOW = 512
SAME = 1e-4
"""How far apart, relatively, two losses may be that are summed in another order."""

Rows = NDArray[np.int64]
Step = Callable[[], object]
"""What is timed; all that leads to it is prepared."""


def measure(settings: Settings) -> Iterator[Row]:
    source, documents = _documents(2 if settings.quick else 48)
    for dropout in (0.0,) if settings.quick else (0.0, None):
        race = Race(settings.encoder, documents[:24], dropout, batch_size=1 if settings.quick else 3)
        race.run(1 if settings.quick else 2, settings.say)
        yield from race.rows(source)
    yield _contrast(settings, source, documents)


def _documents(count: int) -> tuple[str, Sequence[Document]]:
    """Where they are from, and so many."""
    data = os.environ.get("GRANDROUNDS_DATA")
    if data and (cdr := Path(data, "cdr", "eog", "train_filter.data")).exists():
        return "CDR", Random("documents").sample(read(cdr, "eog").documents, count)
    return "made up", list(abstracts(count, "documents"))


class Race:
    """A training step of ours and of each rival in turn, on the same documents, from the same weights."""

    def __init__(self, encoder: str, documents: Sequence[Document], dropout: float | None, batch_size: int) -> None:
        """`dropout`: of attention; None is the encoder's own."""
        found = Encoder.find(encoder, DocumentRE.markers)
        self.encoder = found if dropout is None else found.dropping_attention(dropout)
        self.dropout = "the encoder's own attention dropout" if dropout is None else f"attention dropout {dropout:g}"
        self.training = Training(batch_size=batch_size)
        self.task = DocumentRE.of(DocumentREOptions(), documents)
        self.examples, _ = self.task.examples(documents)
        self.features = self.task.features(self.examples, self.encoder)
        self.spec = LearnerSpec(self.task, self.encoder, self.training, 1, torch.device("cpu"))
        self.batches = self._batches()
        self.distance = 0.0
        """The largest relative difference of the plain model's losses from ours."""
        self.rivals: Mapping[str, Callable[[Rows], Step]] = {
            "ours": self._ours(),
            "encoder": self._encoder_alone(),
            "plain": self._plain(WINDOW),
            "plain, less padding": self._plain(None),
        }
        self.clocks: dict[str, list[Clocks]] = {}

    def run(self, epochs: int, say: Callable[[str], None]) -> None:
        for prepared in self.rivals.values():  # to warm up
            prepared(self.batches[0])()
        self.clocks = {rival: [] for rival in self.rivals}
        for epoch in range(epochs):
            say(f"{self.dropout}: epoch {epoch + 1} of {epochs}, {len(self.batches)} steps")
            for rows in self.batches:
                for rival, prepared in self.rivals.items():
                    step = prepared(rows)
                    began = Clocks.now()
                    step()
                    self.clocks[rival].append(Clocks().plus_since(began))

    def rows(self, source: str) -> Iterator[Row]:
        chosen = np.concatenate(self.batches)
        detail = {
            "documents": f"{len(chosen)}, {source}",
            "mean_pieces": float(self.features.lengths[chosen].mean()),
            "mean_pairs": float(self.features.answers[chosen].mean()),
            "batch_size": self.training.batch_size,
            "attention": self.dropout,
            "seconds_a_document": {
                rival: median(one.wall for one in clocks) / self.training.batch_size
                for rival, clocks in self.clocks.items()
            },
            "largest_relative_difference_of_losses": self.distance,
        }
        for rival, case, goal in (
            ("encoder", "a step over its encoder's forward and backward", OVER_ENCODER),
            ("plain", f"a step over a plain one, all as {WINDOW} pieces", OVER_PLAIN),
            ("plain, less padding", "a step over a plain one, padded as ours", None),
        ):
            yield _ratio(f"{source}: {case}", self.clocks["ours"], self.clocks[rival], goal, self.dropout, detail)

    def _batches(self) -> list[Rows]:
        """Full ones, of documents that fit the window: the plain model reads no others."""
        fitting = np.flatnonzero(self.features.lengths <= WINDOW)
        order = torch.Generator().manual_seed(1)
        found = training_batches(self.features.lengths[fitting], self.training.batch_size, order)
        return [fitting[rows] for rows in found if len(rows) == self.training.batch_size]

    def _ours(self) -> Callable[[Rows], Step]:
        """A learner's whole step, its batch included."""
        everything = {"train": Split(self.features, np.arange(len(self.examples)))}
        server = Server(self.spec, everything, self.spec.initial_model())
        optimizer = self._optimizer(server.model)
        return lambda rows: lambda: server.train(only=rows.tolist(), epochs=1, optimizer=optimizer)

    def _encoder_alone(self) -> Callable[[Rows], Step]:
        encoder = self.encoder.build().train()

        def prepared(rows: Rows) -> Step:
            batch = self.features.batch(rows)
            # At random: the gradient of a sum is zero behind a layer norm.
            gradient = torch.randn(*batch.input_ids.shape, self.encoder.width)

            def step() -> None:
                encoder.zero_grad()
                last_hidden(encoder, batch.input_ids, batch.attention_mask).backward(gradient)  # type: ignore[no-untyped-call]

            return step

        return prepared

    def _plain(self, length: int | None) -> Callable[[Rows], Step]:
        documents = plain_documents(self.examples, len(self.task.relations), self.encoder)
        model = PlainLocalizedContext(self.encoder, len(self.task.relations), length=length)
        self._make_equal(model, lambda rows: [documents[i] for i in rows])
        optimizer = self._optimizer(model)
        model.train()

        def step(rows: Rows) -> None:
            optimizer.zero_grad()
            loss = model([documents[i] for i in rows])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), self.training.clip_norm)
            optimizer.step()

        return lambda rows: lambda: step(rows)

    def _make_equal(self, model: nn.Module, batch: Callable[[Rows], Any]) -> None:
        """Our weights, and with them, without dropout, our losses: or else the race means nothing."""
        own = self.spec.initial_model().eval()
        model.load_state_dict({name: value for name, value in own.state_dict().items() if name != "threshold"})
        with torch.no_grad():
            for rows in self.batches[:3]:
                ours, theirs = self.task.loss(own, self.features.batch(rows)), model.eval()(batch(rows))
                distance = float((ours - theirs).abs() / ours)
                if distance > SAME:
                    raise ArithmeticError(f"the plain model's loss is {theirs:.6f}, ours is {ours:.6f}")
                self.distance = max(self.distance, distance)

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return make_optimizer(self.training, model.named_parameters(), self.training.learning_rate)


def _contrast(settings: Settings, source: str, documents: Sequence[Document]) -> Row:
    """Rounds of FedLCC, from the second on, when every site has a previous model; of one epoch, where it costs most."""
    sites, rounds = (1, 1) if settings.quick else (2, 3)
    runs = []
    for algorithm in ("fedlcc", "fedavg"):
        folder = settings.folder / f"documents-{algorithm}"
        chosen = {"algorithm.name": algorithm, "federation.weight_by": "uniform"}
        runs.append(SteppedRun(document_federation(folder, settings.encoder, sites, documents, **chosen), folder))
    with runs[0] as contrasted, runs[1] as averaged:
        settings.say(f"FedLCC and FedAvg: {rounds} rounds each")
        pairs = [(_round(contrasted), _round(averaged)) for _ in range(rounds + 1)][1:]
    ones, others = zip(*pairs, strict=True)
    detail = {"rounds": rounds, "sites": sites, "documents": f"{len(documents)}, {source}", "batch_size": 3}
    note = "one epoch; attention dropout 0"
    return _ratio(f"{source}: a round of FedLCC over FedAvg's", ones, others, OVER_FEDAVG, note, detail)


def _round(run: SteppedRun) -> Clocks:
    began = Clocks.now()
    return Clocks(run.round(), Clocks().plus_since(began).cpu)


def _ratio(
    case: str,
    ones: Sequence[Clocks],
    others: Sequence[Clocks],
    goal: float | None,
    note: str,
    detail: Mapping[str, Any],
) -> Row:
    cpu = median(one.cpu / other.cpu for one, other in zip(ones, others, strict=True))
    walls = ([one.wall for one in ones], [other.wall for other in others])
    return ratio(case, *walls, goal, note=note, detail={**detail, "ratio_of_cpu_time": cpu})
