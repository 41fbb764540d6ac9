"""What only some tasks can do. A task has an ability if it has its methods; code that needs one asks for it by type.

An algorithm lists what it needs in `needs`, and `require` checks it before anything is computed. The first sentence of
an ability's docstring is how `require` speaks of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError
from grandrounds.registry import TASKS

if TYPE_CHECKING:
    from grandrounds.tasks.task import Example, Features, Reading, Task

Rows = NDArray[np.int64]
Outputs = NDArray[np.float32]


IMPOSSIBLE = -1e4
"""The logit of a class that is no answer to a question."""


class Response(NamedTuple):
    """What a model says of a batch in training."""

    logits: Tensor
    """[questions, classes]: of each row in turn; IMPOSSIBLE where a class is no answer."""
    loss: Tensor
    """What the labels of the rows that have one say of it: the cross-entropy, 0 where none has."""


@runtime_checkable
class Distillable(Protocol):
    """A task whose answers on shared text can be averaged and distilled. Each row of its features asks one or more
    questions, with one class each."""

    def without_label(self, example: Any) -> Example:
        """The example with nothing but its questions."""

    def classes(self) -> int:
        """How many a question has at most."""

    def questions(self, features: Any, rows: Rows) -> Rows:
        """How many each row asks, whatever its labels."""

    def respond(self, model: nn.Module, batch: Any) -> Response:
        """One forward pass."""


@runtime_checkable
class SingleLabel(Distillable, Protocol):
    """A task with one class per example."""

    def class_of(self, example: Any) -> int:
        """NO_CLASS where it has no label."""


@runtime_checkable
class Bagged(Protocol):
    """A task with a bag of sentences for each fact. An algorithm may choose among the sentences of a bag."""

    def bags(self, features: Any, rows: Rows) -> Sequence[Rows]:
        """The rows that must be in one training batch, as places in `rows`."""

    def facts(self, features: Any, rows: Rows) -> Iterator[tuple[tuple[str, ...], Rows]]:
        """Each fact under a name that is the same at all sites, with the places in `rows` of its sentences."""

    def confidence(self, model: nn.Module, batch: Any) -> Tensor:
        """[rows, 1]: the probability of each sentence's own relation."""


@runtime_checkable
class Localized(Protocol):
    """A task whose model has a localized context for each pair."""

    def localized_context(self, reading: Reading) -> Tensor:
        """[pairs, width]: zero where the two entities attend to nothing in common."""


@runtime_checkable
class Calibrated(Protocol):
    """A task whose decision threshold is chosen on validation data."""

    def calibrate(self, model: nn.Module, outputs: Outputs, features: Any, rows: Rows) -> Outputs:
        """Set the model's threshold from its outputs on validation data; returns the outputs with that threshold."""

    def uncalibrate(self, model: nn.Module) -> None:
        """Reset the threshold: `calibrate` starts from there."""


@runtime_checkable
class OwnLabels(Protocol):
    """A task whose label set may differ between sites, where an algorithm allows it."""

    def label_parts(self) -> Sequence[str]:
        """The model's parts whose shapes depend on the label set."""


@runtime_checkable
class PartlyAnnotated(Protocol):
    """A task that can learn from a site that annotates less than others. Its sites share one task otherwise."""

    @classmethod
    def site_options(cls) -> Collection[str]:
        """The options that say what is annotated, which each site may set for itself."""

    def as_annotated(self, example: Any, options: Any) -> Example:
        """The example, of a site with these options."""

    def annotated_as(self, options: Any) -> Self:
        """The task of a site with these options; all others are the federation's."""


@runtime_checkable
class PrivateParts(Protocol):
    """A task that names the parts of its model that may stay at a site."""

    @classmethod
    def private_parts(cls, options: Any, encoder: str) -> Mapping[str, Sequence[str]]:
        """Parts by the name of the split; `default` is the one used unless the config names another."""


@runtime_checkable
class Redrawn(Protocol):
    """A task whose features are partly random, such as masks."""

    def redraw(self, features: Any, rows: Rows, seed: int) -> Features:
        """The features as a learner with these rows sees them in one epoch; the seed 0 is for tests."""


@runtime_checkable
class SplitsText(Protocol):
    """A task that splits text into sentences and words itself. A trained model does so as its training data were."""

    def as_trained(self) -> Self:
        """The task for documents that do not say where their sentences or words are. In training these are split by
        rules that are the same at all sites."""


@runtime_checkable
class KnowsFacts(Protocol):
    """A task that also scores without the facts of the training data."""

    def mark_known(self, examples: Sequence[Any], training: Iterable[Document]) -> Sequence[Any]:
        """The examples, with the answers marked that the training data state."""


def require(who: str, ability: type, task: type[Task]) -> None:
    """ConfigError unless the task has the ability that `who` (an algorithm or an option) needs."""
    if issubclass(task, ability):
        return
    others = " or ".join(name for name in TASKS if TASKS.at_hand(name) and issubclass(TASKS[name], ability))
    needed = (ability.__doc__ or ability.__name__).partition(".")[0]
    advice = f": set task.name = {others}" if others else ""
    raise ConfigError(f"{who} needs {needed[0].lower()}{needed[1:]}, and '{task.name}' is not one{advice}")
