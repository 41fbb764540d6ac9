"""What an honest but curious coordinator could find out about one site: it does all that it should, and looks at what
it is sent. Of masked uploads it sees the mean.

It ranks words by how much the site's uploads changed their embeddings, or by the gradients of these. It says which
examples the site trained on by how much the loss on each fell. Canaries are test examples of which a random half is
planted in the site's training data, several times each: what tells one half from the other is memory and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grandrounds.config.schema import Config
from grandrounds.errors import ConfigError, unknown
from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask, Transport
from grandrounds.federation.learner import Split
from grandrounds.federation.payloads import Expected, Gradients, Packed, Parameters, unpack
from grandrounds.federation.rows import table_names
from grandrounds.federation.runner import SiteData
from grandrounds.federation.secure_payloads import Masked
from grandrounds.federation.seeds import derive
from grandrounds.federation.state import copy_into
from grandrounds.metrics.leakage import Exposure, Membership, Words, exposure, membership, words_found
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop, Watcher
from grandrounds.simulation.in_process import InProcess
from grandrounds.simulation.prepare import Simulation, prepare
from grandrounds.tasks.abilities import Bagged, Redrawn
from grandrounds.tasks.batching import infer
from grandrounds.tasks.task import Task

Rows = NDArray[np.int64]
MOST_COMPARED = 500
"""Examples of each side that losses are computed of."""
TEST = "test"


@dataclass(frozen=True)
class Leak:
    """What the coordinator found out."""

    site: str
    uploads: Mapping[str, int]
    """Payloads of the site that the coordinator could look at, by kind."""
    words: Words | None
    """None: no embedding travels."""
    membership: Membership
    canaries: Exposure
    repeated: int
    """How often each canary was planted."""
    objective: str
    score: float | None
    """Of the run's model on the test set, by this objective."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def attack(
    config: Config, base: Path, out: Path, watcher: Watcher, site: str = "", canaries: int = 32, repeated: int = 8
) -> Leak:
    """Run the config in the new folder `out`, as its coordinator, and look at what this site sends; by default the
    first one."""
    if config.make_algorithm().pooled:
        raise ConfigError(f"with '{config.algorithm['name']}' all text is in one place: there is nothing to attack")
    folder = RunFolder(out, config, resume=False)
    try:
        simulation = prepare(config, base, out)
        folder.claim(config)
        site = site or min(simulation.sites)
        if site not in simulation.sites:
            raise ConfigError(f"--site: {unknown('site', site, simulation.sites)}")
        planted = _Planted(simulation, site, canaries, repeated, config.seed)
        model = simulation.spec.initial_model()
        curious = Curious(InProcess(planted.simulation.runner(config, out, memory=1 << 30)), site, model)
        curious.expected = simulation.expected
        sites = [held.registration for _, held in sorted(planted.simulation.sites.items())]
        loop = RoundLoop(config, folder, planted.simulation, sites, curious, watcher)
        result = loop.go()
        curious.mean(loop.server.model.state_dict())
        if curious.last is None:
            curious.last = {name: value.clone() for name, value in loop.server.model.state_dict().items()}
        return Leak(
            site,
            dict(curious.uploads),
            curious.words(planted.simulation.sites[site]),
            *planted.told(model, curious.last),
            repeated,
            loop.objective.name,
            None if result.test is None else result.test.value(loop.objective),
        )
    finally:
        folder.close()


class Curious:
    """A transport that notes what it sees of one site."""

    expected: Expected

    def __init__(self, inner: Transport, site: str, start: nn.Module) -> None:
        self._inner, self._site, self._start = inner, site, start
        self.uploads: Counter[str] = Counter()
        self.last: dict[str, Tensor] | None = None
        """The weights that the site sent last, and where it sends none of them those that it was sent."""
        tables = {name: start.get_parameter(name) for name in table_names(start)}
        self._table = max(tables, key=lambda name: len(tables[name]), default="")  # of words, not of positions
        self._change = torch.zeros(len(tables[self._table])) if tables else torch.zeros(0)
        self._seen = False
        self._before: dict[str, Tensor] | None = None
        """What the site was sent when its last upload was masked: the next weights hold the mean of all."""

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        sent = {ask.site: ask for ask in asks}
        for answer in self._inner.exchange(asks):
            if answer.site == self._site:
                self._look(sent[answer.site], answer)
            yield answer

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    def _look(self, ask: Ask, answer: Answer) -> None:
        start = self._start.state_dict()
        expected = replace(self.expected, base=start)
        before = [unpack(part, expected) for part in ask.message if isinstance(part, Packed)]
        weights = self._whole(next((part for part in before if isinstance(part, Parameters)), Parameters({})))
        if self._before is not None and weights:
            self.mean(weights)
        for packed in answer.payloads:
            self.uploads[packed.kind] += 1
            if packed.kind == Gradients.kind:
                gradients = Gradients.unpack(packed, self.expected)
                if self._table in gradients.rows:
                    rows = gradients.rows[self._table]
                    self._changed(rows.whole(torch.zeros_like(self._start.get_parameter(self._table))))
                elif self._table in gradients.values:
                    self._changed(gradients.values[self._table])
            if packed.kind == Masked.kind:
                self._before = weights
            if packed.kind == Parameters.kind:
                begun = {**start, **weights}
                uploaded = self._whole(Parameters.unpack(packed, replace(expected, base=begun)))
                if self._table in uploaded:
                    self._changed(_without_decay(uploaded[self._table], begun[self._table]))
                self.last = {**weights, **uploaded}

    def mean(self, weights: Mapping[str, Tensor]) -> None:
        """Of what several sites sent masked, this is what the coordinator gets to see."""
        if self._before is not None and self._table in self._before:
            self._changed(_without_decay(weights[self._table], self._before[self._table]))
        self._before = None

    def _whole(self, sent: Parameters) -> dict[str, Tensor]:
        """A copy with whole tables."""
        found = {name: value.detach().clone() for name, value in sent.values.items()}
        for name, rows in sent.rows.items():
            found[name] = self._start.state_dict()[name].clone()
            rows.put_into(found[name])
        return found

    def _changed(self, change: Tensor) -> None:
        self._seen = True
        self._change = torch.maximum(self._change, change.float().norm(dim=1))

    def words(self, site: SiteData) -> Words | None:
        if not self._seen:
            return None
        return words_found(self._change.numpy(), _looked_up(self._start, self._table, site, len(self._change)))


def _without_decay(after: Tensor, before: Tensor) -> Tensor:
    """The change of each row but for what all rows have in common: weight decay shrinks words that no batch had."""
    shrunk = (after * before).sum(dim=1) / before.square().sum(dim=1).clamp_min(1e-12)
    return after - shrunk.median() * before


def _looked_up(model: nn.Module, table: str, site: SiteData, rows: int) -> NDArray[np.bool_]:
    """The words of the site's training data: what the model looks up when it reads them."""
    present = np.zeros(rows, dtype=bool)

    def note(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        present[given[0].flatten().cpu().numpy()] = True

    hook = model.get_submodule(table.removesuffix(".weight")).register_forward_pre_hook(note)
    train = site.splits["train"]
    try:
        infer(site.spec.task.outputs, model, train.features, train.rows, site.spec.device)
    finally:
        hook.remove()
    return present


class _Planted:
    """A federation in which one site also trains on canaries."""

    def __init__(self, simulation: Simulation, site: str, canaries: int, repeated: int, seed: int) -> None:
        self.victim = simulation.sites[site]
        self._task = self.victim.spec.task
        train = self.victim.splits["train"]
        test = self.victim.splits.get(TEST, simulation.splits.get(TEST))
        if test is None or test.features is not train.features:
            raise ConfigError("an attack compares with examples that no site trained on: set data.test")
        self._members, others = _units(self._task, train), _units(self._task, test)
        if len(others) < 8:
            raise ConfigError(f"the test set has {len(others)} examples; an attack needs 8 at least")
        order = np.random.default_rng(derive(seed, "canaries")).permutation(len(others))
        half = min(canaries, len(others) // 4)
        self._planted = [others[i] for i in order[:half]]
        self._absent = [others[i] for i in order[half : 2 * half]]
        self._others = [others[i] for i in order[2 * half :]]
        more = np.concatenate([*self._planted] * repeated)
        whose = np.concatenate([np.full(len(rows), i) for i, rows in enumerate(self._planted)] * repeated)
        victim = replace(self.victim, registration=self._registered(len(more)), splits=self._with(train, more, whose))
        self.simulation = replace(simulation, sites={**simulation.sites, site: victim})

    def _registered(self, more: int) -> Registration:
        """With the canaries, of which each is a patient."""
        patients = {"patients": len(self._planted)}
        counts = {name: n + patients.get(name, more) for name, n in self.victim.registration.counts.items()}
        return replace(self.victim.registration, counts=counts)

    def _with(self, train: Split, more: Rows, whose: Rows) -> dict[str, Split]:
        """`whose` says which canary each of the rows is of."""
        last = 0 if train.documents is None else train.documents.max() + 1
        added = replace(
            train,
            rows=np.concatenate([train.rows, more]),
            documents=None if train.documents is None else np.append(train.documents, last + np.arange(len(more))),
            examples=_followed(train.examples, whose),
            patients=_followed(train.patients, whose),
            labelled=None
            if train.labelled is None
            else np.append(train.labelled, len(train) + np.arange(len(more), dtype=np.int64)),
        )
        return {**self.victim.splits, "train": added}

    def told(self, model: nn.Module, weights: Mapping[str, Tensor]) -> tuple[Membership, Exposure]:
        """By how much the loss on each example is lower with these weights than with those that all started from."""
        groups = [self._members[:MOST_COMPARED], self._others[:MOST_COMPARED], self._planted, self._absent]
        before = [self._losses(model, units) for units in groups]
        copy_into(model, weights)
        fallen = [was - self._losses(model, units) for was, units in zip(before, groups, strict=True)]
        return membership(fallen[0], fallen[1]), exposure(fallen[2], fallen[3])

    def _losses(self, model: nn.Module, units: Sequence[Rows]) -> NDArray[np.float64]:
        features, device = self.victim.splits["train"].features, self.victim.spec.device
        if isinstance(self._task, Redrawn):
            features = self._task.redraw(features, np.concatenate(units), 0)
        model.eval()
        with torch.inference_mode():
            return np.array([float(self._task.loss(model, features.batch(rows).to(device))) for rows in units])


def _followed(ids: Rows | None, more: Rows) -> Rows | None:
    """Ids with new ones after them."""
    return None if ids is None else np.append(ids, ids.max(initial=-1) + 1 + more)


def _units(task: Task, split: Split) -> list[Rows]:
    """What has one loss: a row, or the rows of a bag."""
    if isinstance(task, Bagged):
        return [split.rows[bag] for bag in task.bags(split.features, split.rows)]
    return [split.rows[i : i + 1] for i in range(len(split))]
