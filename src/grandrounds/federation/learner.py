"""What a server and a site share: a model of a task, data splits, and seeded training and prediction on them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import torch as safetensors
from torch import Tensor, nn

from grandrounds.errors import ConfigError, GrandRoundsError, unknown
from grandrounds.federation.exchange import Work
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import LabelCounts, Parameters, PredictedLabels, Predictions
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.gradients import noisy_gradient
from grandrounds.federation.privacy.site import Sample, SitePrivacy, grouped
from grandrounds.federation.quantize import Form
from grandrounds.federation.rows import Tables
from grandrounds.federation.seeds import derive, generator, global_seed
from grandrounds.federation.state import (
    Flat,
    Stateful,
    TensorState,
    copy_into,
    flatten,
    put_back,
    rebuild,
    state_of,
    unfrozen,
)
from grandrounds.federation.training import Training, make_optimizer, step
from grandrounds.metrics.outcomes import OUTCOMES, Outcomes, Record, to_bytes
from grandrounds.models.encoder import Encoder
from grandrounds.models.lora import LORA_A, LORA_B, check_adapted
from grandrounds.tasks.abilities import Bagged, Calibrated, Distillable, OwnLabels, Redrawn, Response
from grandrounds.tasks.batching import PerRow, autocast, infer, predict_outputs, starts_of, training_batches
from grandrounds.tasks.saved import Trained, save_model
from grandrounds.tasks.task import Counts, Features, Task

if TYPE_CHECKING:
    from grandrounds.federation.contract import Registration

Loss = Callable[[nn.Module, Any], Tensor]
TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class Split:
    """Rows of a corpus's features that a learner may use, under one name."""

    features: Features
    rows: NDArray[np.int64]
    digest: str = ""
    """Of the public set: the site and the server compare it to make sure that they hold the same one."""
    documents: NDArray[np.int64] | None = None
    """The document of each row; None: each row is a document of its own."""
    labelled: NDArray[np.int64] | None = None
    """Which of the rows have a label, as places in them; None: all."""
    examples: NDArray[np.int64] | None = None
    """The example that each row was made of; None: each row is one of its own."""
    patients: NDArray[np.int64] | None = None
    """The patient of each row; None: some document does not say whose it is."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        lengths: NDArray[np.int64] = self.features.lengths[self.rows]
        return lengths


@dataclass(frozen=True)
class Asked:
    """The questions that a task asks about a split, row by row."""

    respond: Callable[[nn.Module, Any], Response]
    starts: NDArray[np.int64]

    def of(self, answers: Tensor, batch: Any) -> Tensor:
        """Those of [questions, classes] that are about the batch's rows."""
        return PerRow(answers, self.starts).at(batch.index)


@dataclass(frozen=True)
class SampledBatch:
    """A mini-batch of a site that promises privacy: `Site.backward` makes a noisy gradient of it."""

    sample: Sample
    seen: Split

    @property
    def examples(self) -> int:
        """What is said of its size: the expected one."""
        return round(self.sample.expected)


@dataclass(frozen=True)
class LearnerSpec:
    """How learners of a federation work; only the encoder may differ between sites."""

    task: Task
    encoder: Encoder
    training: Training
    """At a site."""
    server: Training
    """At the server."""
    rounds: int
    """Rounds of the whole run, where learning-rate schedules end."""
    seed: int
    device: torch.device
    start: Path | None = None
    """Weights to start from, instead of the encoder's and a random head."""
    drawn: Sequence[str] = ()
    """Parts that start random anyway, because their shapes depend on the site's own label set."""
    trained: Trained | None = None
    """How the training data were read, where that is known: it is saved with a model."""
    freeze: Sequence[str] = ()
    """Parts that stay as they start."""
    rank: int | None = None
    """Of the site's own adapters; None: the federation's."""

    @cached_property
    def model_key(self) -> str:
        """Equal for learners whose models have the same shapes and start."""
        schema = json.dumps([self.task.schema(), self.rank], sort_keys=True, default=str)
        return f"{self.encoder.name} {sha256(schema.encode()).hexdigest()[:16]}"

    def with_labels_of(self, task: Task) -> LearnerSpec:
        """For a site whose label set is its own: the parts of its model that depend on it start random."""
        assert isinstance(task, OwnLabels)  # the config allows own labels for no other task
        return replace(self, task=task, drawn=task.label_parts())

    def with_rank(self, rank: int) -> LearnerSpec:
        """For a site whose adapters have another rank: they start random."""
        assert self.encoder.lora is not None  # by the config
        return replace(self, encoder=replace(self.encoder, lora=replace(self.encoder.lora, rank=rank)), rank=rank)

    def initial_model(self) -> nn.Module:
        """The model before round 1, the same wherever it is built."""
        with global_seed(self.seed, "initial weights"):
            model = self.task.model(self.encoder).to(self.device).eval()
        check_adapted(model, self.encoder.lora)
        if self.start is not None:
            given = safetensors.load_file(self.start)
            fitting = {name: value for name, value in given.items() if not self._draws(name)}
            model.load_state_dict(fitting, strict=len(fitting) == len(given))
        freeze(model, self.freeze)
        return model

    def _draws(self, name: str) -> bool:
        adapter = self.rank is not None and name.endswith((LORA_A, LORA_B))
        return adapter or name.partition(".")[0] in self.drawn


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """What has no gradient is neither trained nor sent."""
    for part in parts:
        members = [p for name, p in model.named_parameters() if part in name.split(".")]
        if not members:
            known = {word for name, _ in model.named_parameters() for word in name.split(".")[:-1]}
            raise ConfigError(f"model.freeze: {unknown('part of the model', part, known)}")
        for parameter in members:
            parameter.requires_grad_(False)
    if parts and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("model.freeze names all of the model: nothing is learnt")


class Learner:
    """A model and the means to train it; every random draw is named by (seed, who, round, exchange, purpose)."""

    def __init__(
        self, who: str, spec: LearnerSpec, splits: Mapping[str, Split], round: int = 0, exchange: int = 0
    ) -> None:
        self.who, self.spec, self.round, self.exchange = who, spec, round, exchange
        self._splits = splits
        self._trainings = 0
        self.work = Work()
        """Steps and examples since this learner was asked, or since the server began the round."""
        self.outcomes: dict[str, Outcomes] | None = None
        """By split. If it is a dict, `counts` stores there the outcomes that its counts are made of."""

    @property
    def model(self) -> nn.Module:
        raise NotImplementedError

    @property
    def training(self) -> Training:
        return self.spec.training

    def load(self, parameters: Parameters) -> None:
        """Load these weights; parameters that are not named keep theirs."""
        copy_into(self.model, parameters.values)

    def train(
        self,
        split: str = "train",
        *,
        loss: Loss | None = None,
        only: Sequence[int] | NDArray[np.int64] | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        before_step: Callable[[nn.Module], None] | None = None,
    ) -> Work:
        """Epochs of mini-batches; gives how many steps and examples they took. `loss` replaces the task's, which needs
        labels and so sees only rows that have one; `only` are the rows of the split to train on; `before_step` may
        change the gradients that a backward pass left in the model, before they are clipped."""
        before = self.work
        chosen = self._split(split)
        if only is None and loss is None:
            only = chosen.labelled
        rows = np.arange(len(chosen)) if only is None else np.asarray(only, dtype=np.int64)
        own = optimizer is None
        optimizer = self._renewed_or_kept(learning_rate) if optimizer is None else optimizer
        self._trainings += 1
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        epochs = self.training.epochs if epochs is None else epochs
        steps, gradients = self._gradients(split, rows, self.spec.task.loss if loss is None else loss, epochs)
        self.model.train()
        with global_seed(*self._purpose("dropout", self._trainings)):
            for taken, _ in enumerate(gradients, start=1):
                if before_step is not None:
                    before_step(self.model)
                self._clipped_step(optimizer, parameters, taken / steps)
        self.model.eval()
        if own and self.training.optimizer_state == "keep":
            self._keep_optimizer(optimizer)
        return self.work - before

    def _gradients(self, name: str, rows: NDArray[np.int64], loss: Loss, epochs: int) -> tuple[int, Iterator[None]]:
        """How many steps there are, and these one after the other: each leaves its gradient in the model."""
        chosen, task = self._split(name), self.spec.task
        bags = task.bags(chosen.features, chosen.rows[rows]) if isinstance(task, Bagged) else None
        lengths = chosen.lengths[rows]
        if bags is not None:
            lengths = np.array([lengths[bag].max() for bag in bags], dtype=np.int64)

        def batches() -> Iterator[None]:
            for epoch in range(epochs):
                order = self.seeded("order", self._trainings, epoch)
                seen = self._drawn(chosen, derive(*self._purpose("drawn", self._trainings, epoch)))
                for batch in training_batches(lengths, self.training.batch_size, order):
                    places = batch if bags is None else np.concatenate([bags[i] for i in batch])
                    self.work += Work(examples=len(places))
                    self.model.zero_grad(set_to_none=True)
                    self._loss(loss, seen, rows[places]).backward()
                    yield

        return epochs * ceil(len(lengths) / self.training.batch_size), batches()

    def _loss(self, loss: Loss, split: Split, rows: NDArray[np.int64]) -> Tensor:
        batch = self._batch(split, rows)
        with autocast(self.spec.device):
            return loss(self.model, batch)

    def _clipped_step(self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], done: float) -> None:
        self.work += Work(steps=1)
        if self.training.clip_norm:
            _clip(parameters, self.training.clip_norm)
        # Before round 1 there is no run to be far into.
        progress = (self.round - 1 + done) / self.spec.rounds
        step(optimizer, self.training.height(progress) if self.round else 1.0)

    def backward(self, batch: Any, *purpose: str | int) -> None:
        """Compute the gradient of a batch's loss and leave it in the model; `purpose` seeds the dropout."""
        self.work += Work(examples=len(batch.index))
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        with global_seed(*self._purpose("dropout", *purpose)), autocast(self.spec.device):
            value = self.spec.task.loss(self.model, batch)
        value.backward()
        self.model.eval()

    def step(self, optimizer: torch.optim.Optimizer, done: float) -> None:
        """With the gradients that are there, no longer than training.clip_norm; `done` is the share of the round that
        ends with this step."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._clipped_step(optimizer, parameters, done)

    def outputs(self, split: str) -> NDArray[np.float32]:
        """[answers of the split, width]: the task's outputs, without dropout."""
        chosen = self._split(split)
        return predict_outputs(self.spec.task, self.model, chosen.features, chosen.rows, self.spec.device)

    def predict(self, split: str, form: Form = "probabilities", model: nn.Module | None = None) -> Predictions:
        """What this model or another answers to every question about the split, to be sent; of a `Distillable` task."""
        log_probabilities = self._responses(split, model).log_softmax(dim=1)
        values = log_probabilities.exp() if form == "probabilities" else log_probabilities
        return Predictions(values, form, self.digest(split))

    def predict_labels(self, split: str) -> PredictedLabels:
        """The likeliest class for every question about the split, to be sent."""
        logits = self._responses(split)
        return PredictedLabels(logits.argmax(dim=1), logits.shape[1], self.digest(split))

    def _responses(self, split: str, model: nn.Module | None = None) -> Tensor:
        asked = self.asked(split)
        net, chosen = self.model if model is None else model, self._split(split)

        def logits(network: nn.Module, batch: Any) -> Tensor:
            return asked.respond(network, batch).logits

        return infer(logits, net, chosen.features, chosen.rows, self.spec.device, np.diff(asked.starts)).values

    def asked(self, split: str) -> Asked:
        """The questions about the split; of a `Distillable` task."""
        task, chosen = self.spec.task, self._split(split)
        assert isinstance(task, Distillable)  # by the algorithm's needs
        return Asked(task.respond, starts_of(task.questions(chosen.features, chosen.rows)))

    def digest(self, split: str) -> str:
        """Of the public set, by which a site and the server know that they hold the same one."""
        return self._split(split).digest

    def label_counts(self, split: str = "train") -> LabelCounts:
        """How many examples of the split have each label, to be sent."""
        chosen = self._split(split)
        return LabelCounts(torch.from_numpy(self.spec.task.label_counts(chosen.features, chosen.rows)))

    def counts(self, split: str) -> Counts:
        """Right and wrong answers. On validation data a `Calibrated` task first chooses its threshold and sets it."""
        chosen, task = self._split(split), self.spec.task
        if split == VALIDATION and isinstance(task, Calibrated):
            task.uncalibrate(self.model)
            outputs = task.calibrate(self.model, self.outputs(split), chosen.features, chosen.rows)
        else:
            outputs = self.outputs(split)
        if self.outcomes is not None:
            units = np.arange(len(chosen)) if chosen.documents is None else chosen.documents
            self.outcomes[split] = task.outcomes(outputs, chosen.features, chosen.rows, units)
        return task.counts(outputs, chosen.features, chosen.rows)

    def calibrate(self) -> None:
        """Choose the threshold that is best on validation data, if there are any and the task has one."""
        if VALIDATION in self._splits and isinstance(self.spec.task, Calibrated):
            self.counts(VALIDATION)

    def facts(self, split: str = "train") -> Iterator[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Each fact of the split with the rows of its sentences; the algorithm needs a `Bagged` task."""
        chosen, task = self._split(split), self.spec.task
        assert isinstance(task, Bagged)  # by the algorithm's needs
        return task.facts(chosen.features, chosen.rows)

    def infer(self, split: str, give: Callable[[nn.Module, Any], Tensor], model: nn.Module | None = None) -> PerRow:
        """Apply `give` to each row of the split with this model or another; `at(batch.index)` looks the results up."""
        chosen = self._split(split)
        net = self.model if model is None else model
        return infer(give, net, chosen.features, chosen.rows, self.spec.device)

    def optimizer(
        self, parameters: Iterable[nn.Parameter] | None = None, learning_rate: float | None = None
    ) -> torch.optim.Optimizer:
        """A new optimiser for all parameters, or for these, at this round's learning rate."""
        training = self.training
        rate = training.learning_rate if learning_rate is None else learning_rate
        wanted = None if parameters is None else {id(parameter) for parameter in parameters}
        named = [(name, p) for name, p in self.model.named_parameters() if wanted is None or id(p) in wanted]
        return make_optimizer(training, named, rate * (1 - training.decay) ** max(self.round - 1, 0))

    def reset_rates(self, optimizer: torch.optim.Optimizer) -> None:
        """Set this round's learning rates in an optimiser from an earlier round."""
        fresh = self.optimizer(p for group in optimizer.param_groups for p in group["params"])
        for group, new in zip(optimizer.param_groups, fresh.param_groups, strict=True):
            group["lr"] = new["lr"]

    def frozen(self) -> nn.Module:
        """A copy of the model as it is now, in eval mode and without gradients."""
        return copy.deepcopy(self.model).eval().requires_grad_(False)

    def seeded(self, *purpose: str | int) -> torch.Generator:
        """A generator for this purpose, by seed, learner, round and exchange: never by what was drawn before."""
        return generator(*self._purpose(*purpose))

    def _purpose(self, *purpose: str | int) -> tuple[str | int, ...]:
        return (self.spec.seed, self.who, self.round, self.exchange, *purpose)

    def _split(self, name: str) -> Split:
        if name not in self._splits:
            raise ConfigError(
                f"{unknown('data split', name, self._splits)}; this algorithm needs it: set data.{name} in the config"
            )
        return self._splits[name]

    def _drawn(self, split: Split, seed: int) -> Split:
        """The split with its random features, if it has any, drawn by the seed."""
        task = self.spec.task
        if not isinstance(task, Redrawn):
            return split
        return replace(split, features=task.redraw(split.features, split.rows, seed))

    def _batch(self, split: Split, rows: NDArray[np.int64]) -> Any:
        """These rows of the split; the batch's `index` counts within the split, not the corpus."""
        batch = replace(split.features.batch(split.rows[rows]), index=torch.from_numpy(rows))
        return batch if self.spec.device.type == "cpu" else batch.to(self.spec.device)

    def _renewed_or_kept(self, learning_rate: float | None) -> torch.optim.Optimizer:
        """A new optimiser at this round's rates; with `optimizer_state = "keep"` it has its earlier moments."""
        optimizer = self.optimizer(learning_rate=learning_rate)
        rates = [group["lr"] for group in optimizer.param_groups]
        if self.training.optimizer_state == "keep":
            self._recall_optimizer(optimizer)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        return optimizer

    def _recall_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        raise NotImplementedError

    def _keep_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        raise NotImplementedError


class Server(Learner):
    """The coordinator's learner: splits public, validation and test; its state is checkpointed."""

    def __init__(self, spec: LearnerSpec, splits: Mapping[str, Split], model: nn.Module) -> None:
        super().__init__("server", spec, splits)
        self._model = model
        self.state: dict[str, Stateful] = {"model": model}
        if self.training.optimizer_state == "keep":
            self.state["optimizer"] = self.optimizer()

    @property
    def model(self) -> nn.Module:
        return self._model

    @property
    def training(self) -> Training:
        return self.spec.server

    @cached_property
    def start(self) -> Tables:
        """The model's weights before round 1. Sites have them too, so only what changed needs to be sent."""
        return Tables(lambda: self.spec.initial_model().state_dict())

    def begin(self, round: int) -> None:
        """Begin a round; its random numbers do not depend on earlier rounds."""
        self.round, self._trainings, self.work = round, 0, Work()

    def snapshot(self) -> dict[str, Flat]:
        """A copy of all that lives on, for a checkpoint."""
        return {name: flatten(state_of(part)) for name, part in self.state.items()}

    def restore(self, snapshot: Mapping[str, Flat]) -> None:
        """Return to the snapshot: remove named tensors that it lacks, and create those that it has."""
        for name in self.state.keys() - snapshot.keys():
            self.tensors(name)  # nothing else may be made in a round
            del self.state[name]
        for name, held in snapshot.items():
            state = rebuild(held)
            if name not in self.state and not all(isinstance(value, Tensor) for value in state.values()):
                raise GrandRoundsError(f"server.state['{name}'] must be made in the algorithm's start, not in a round")
            put_back(self.state.setdefault(name, TensorState()), state)

    def tensors(self, name: str) -> TensorState:
        """Named tensors that persist between rounds and are checkpointed; empty at first."""
        held = self.state.setdefault(name, TensorState())
        if not isinstance(held, TensorState):
            raise TypeError(f"server.state['{name}'] is a {type(held).__name__}, not named tensors")
        return held

    def _recall_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.load_state_dict(copy.deepcopy(self.state["optimizer"].state_dict()))

    def _keep_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.state["optimizer"] = optimizer


class Site(Learner):
    """A hospital's learner: splits train, validation, test and public; what it keeps is private and versioned."""

    def __init__(
        self,
        registration: Registration,
        spec: LearnerSpec,
        splits: Mapping[str, Split],
        model: nn.Module,
        start: Callable[[], Mapping[str, Tensor]],
        private: Mapping[str, Flat],
        models: Path | None,
        round: int,
        exchange: int,
        secret: Callable[[], bytes],
        tables: Tables | None = None,
        least_batch: int = 1,
        privacy: SitePrivacy | None = None,
    ) -> None:
        """`tables` are the initial embeddings; they track what the working model holds instead. `privacy`: gradients of
        the site's training data get noise."""
        super().__init__(registration.site, spec, splits, round, exchange)
        self.registration, self._secret = registration, secret
        self.kept: dict[str, Flat] = {}
        self._model, self._start, self._private, self._models = model, start, private, models
        self._tables = Tables(start) if tables is None else tables
        self._least_batch, self._privacy = least_batch, privacy
        self._fresh = False

    @property
    def model(self) -> nn.Module:
        """The working model. It serves many sites, so it is reset to the site's start before its first use."""
        if not self._fresh:
            copy_into(self._model, self._start())
            self._fresh = True
        return self._model

    @property
    def training(self) -> Training:
        """Noise is longer than the gradient, so clipping both together would shrink the steps; privacy has its own
        clip."""
        training = super().training
        return training if self._privacy is None else training.model_copy(update={"clip_norm": 0.0})

    def load(self, parameters: Parameters) -> None:
        if unfrozen(self._model).keys() <= parameters.values.keys() | parameters.rows.keys():
            self._fresh = True  # all that can change comes, so the start need not be restored first
        super().load(parameters)
        own = self._model.state_dict()
        for name, rows in parameters.rows.items():
            if rows.since != self._tables.digest(name):
                raise RefusalError(f"this site does not start with the server's {name!r}: does it have its encoder?")
            self._tables.put(name, rows, own[name])

    def optimizer(
        self, parameters: Iterable[nn.Parameter] | None = None, learning_rate: float | None = None
    ) -> torch.optim.Optimizer:
        made = super().optimizer(parameters, learning_rate)
        trained = {id(p) for group in made.param_groups for p in group["params"]}
        for name, parameter in self._model.named_parameters():
            if id(parameter) in trained:
                self._tables.forget(name)
        return made

    @property
    def secret(self) -> bytes:
        """Bytes that all sites know and the coordinator does not, for keyed digests; needs `needs_secret`."""
        return self._secret()

    def minibatch(self, size: int, step: int, most: int | None = None) -> Any:
        """The step-th mini-batch of an endless run of shuffled epochs: a function of (seed, site, step). `most` is the
        size that the terms give all sites together."""
        if size < self._least_batch:  # whoever asks chooses the size, and a gradient of one sentence shows its words
            raise RefusalError(f"the site's policy lets gradients of {self._least_batch} examples leave, not of {size}")
        if most is not None and size > most:
            raise RefusalError(f"the terms' mini-batches have {most} examples at all sites together, not {size} at one")
        split = self._drawn(self._split(TRAIN), derive(self.spec.seed, self.who, "minibatch drawn", step))
        if self._privacy is not None:
            return SampledBatch(
                self._privacy.single(self._units(split, np.arange(len(split))), size, self.training.batch_size), split
            )
        place = np.arange(step * size, (step + 1) * size)
        orders = {
            epoch: torch.randperm(len(split), generator=generator(self.spec.seed, self.who, "minibatch", epoch)).numpy()
            for epoch in sorted(set((place // len(split)).tolist()))
        }
        return self._batch(split, np.array([orders[p // len(split)][p % len(split)] for p in place.tolist()]))

    def backward(self, batch: Any, *purpose: str | int) -> None:
        if not isinstance(batch, SampledBatch):
            super().backward(batch, *purpose)
            return
        self.work += Work(examples=batch.examples)
        self.model.train()
        with global_seed(*self._purpose("dropout", *purpose)):
            self._noisy_gradient(batch, self.spec.task.loss)
        self.model.eval()

    def _gradients(self, name: str, rows: NDArray[np.int64], loss: Loss, epochs: int) -> tuple[int, Iterator[None]]:
        if self._privacy is None or name != TRAIN:
            return super()._gradients(name, rows, loss, epochs)
        chosen, size = self._split(name), self.training.batch_size
        sample = self._privacy.sample(self._units(chosen, rows), size, epochs)

        def steps() -> Iterator[None]:
            for done in range(sample.steps):
                if done % (sample.steps // epochs) == 0:
                    epoch = done // (sample.steps // epochs)
                    seen = self._drawn(chosen, derive(*self._purpose("drawn", self._trainings, epoch)))
                batch = SampledBatch(sample, seen)
                self.work += Work(examples=batch.examples)
                self._noisy_gradient(batch, loss)
                yield

        return sample.steps, steps()

    def _noisy_gradient(self, batch: SampledBatch, loss: Loss) -> None:
        sample = batch.sample
        losses = (partial(self._loss, loss, batch.seen, rows) for rows in sample.draw())
        noisy_gradient(self.model, losses, sample.clip, sample.noise, sample.expected, sample.rng)

    def _units(self, split: Split, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The rows of each unit of privacy."""
        assert self._privacy is not None
        if self._privacy.plan.unit != "patient":
            return grouped(rows if split.examples is None else split.examples[rows], rows)
        if split.patients is None:
            raise RefusalError("this site has documents that do not say whose they are")
        return grouped(split.patients[rows], rows)

    def _keep_train(self, split: str) -> None:
        """RefusalError where what is asked of the training data has no noise."""
        if self._privacy is not None and split == TRAIN:
            raise RefusalError("of its training data this site tells only what has noise in it (privacy)")

    def outputs(self, split: str) -> NDArray[np.float32]:
        self._keep_train(split)
        return super().outputs(split)

    def asked(self, split: str) -> Asked:
        self._keep_train(split)
        return super().asked(split)

    def label_counts(self, split: str = TRAIN) -> LabelCounts:
        """Under privacy, of the training data: how many units have each label, with noise; at least one of each."""
        if self._privacy is None or split != TRAIN:
            return super().label_counts(split)
        chosen = self._split(split)
        units = self._units(chosen, np.arange(len(chosen), dtype=np.int64))
        counts = self.spec.task.label_counts
        noisy = self._privacy.label_counts([counts(chosen.features, chosen.rows[unit]) for unit in units])
        return LabelCounts(torch.from_numpy(noisy.clip(1)))

    def facts(self, split: str = TRAIN) -> Iterator[tuple[tuple[str, ...], NDArray[np.int64]]]:
        self._keep_train(split)
        return super().facts(split)

    def counts(self, split: str) -> Counts:
        """As a learner's; never on what the site trains on: that tells who is in it."""
        if split not in (VALIDATION, "test"):
            raise RefusalError("a site is scored on its validation and test data alone")
        return super().counts(split)

    def _split(self, name: str) -> Split:
        if name not in self._splits:
            raise RefusalError(f"this site has no {name} data")
        return self._splits[name]

    def holds(self, name: str) -> bool:
        """Whether something was kept under this name."""
        return name in self.kept or name in self._private

    def recall(self, name: str, into: Stateful) -> bool:
        """Load what was kept under this name; False: nothing yet."""
        flat = self.kept.get(name, self._private.get(name))
        if flat is not None:
            put_back(into, rebuild(flat))
        return flat is not None

    def keep(self, name: str, what: Stateful) -> None:
        """Keep it at the site; it counts once the server has the reply."""
        self.kept[name] = flatten(state_of(what))

    def save(self) -> None:
        """Write the site's model and its test outcomes; both stay at the site."""
        if self._models is None:
            return
        save_model(
            self._models / _file_name(self.who), self.spec.task, self.spec.encoder, self.model, "", self.spec.trained
        )
        if TEST in self._splits:
            self.outcomes = {}
            self.counts(TEST)
            save_outcomes(self, self._models.parent)

    def _recall_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.recall("optimizer", optimizer)

    def _keep_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.keep("optimizer", optimizer)


def save_outcomes(learner: Learner, folder: Path) -> None:
    """Write a learner's outcomes to a file in the folder's outcomes/."""
    kept = [Record(learner.who, split, outcomes) for split, outcomes in (learner.outcomes or {}).items()]
    (folder / OUTCOMES).mkdir(parents=True, exist_ok=True)
    write_whole(folder / OUTCOMES / f"{_file_name(learner.who)}.safetensors", to_bytes(kept))


def _file_name(who: str) -> str:
    return quote(who, safe=" ")


def _clip(parameters: Sequence[nn.Parameter], largest: float) -> None:
    """Like torch's own clipping, but gradients below the limit are left alone instead of multiplied by 1."""
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if norm + 1e-6 > largest:
        nn.utils.clip_grads_with_norm_(parameters, largest, norm)
