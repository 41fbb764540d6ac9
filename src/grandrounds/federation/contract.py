"""What an algorithm sees: a server, a cohort of sites to ask, and their good replies. Where sites run is not its
business.

`round` is server code; methods marked `@on_site` are site code, which the cohort runs where the data is. The kinds of
payload that they take and give are read from their annotations.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, Generic, TypeVar, TypeVarTuple

from torch import Tensor, nn

from grandrounds.errors import ConfigError, unknown
from grandrounds.federation.learner import Server, Site
from grandrounds.federation.payloads import Compression, Parameters, Payload
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.robust import Aggregate, Aggregation
from grandrounds.federation.state import unfrozen
from grandrounds.registry import ALGORITHMS
from grandrounds.tasks.task import Counts

Ts = TypeVarTuple("Ts")
Sent = Payload | tuple[Payload, ...]
"""What a site method returns: a payload, or several."""
R = TypeVar("R", bound=Sent)
Method = TypeVar("Method", bound=Callable[..., Sent])
Kinds = type[Payload] | tuple[type[Payload], ...]
A = TypeVar("A", bound="type[Algorithm]")


@dataclass(frozen=True)
class Registration:
    """What a site registers once, before round 1."""

    site: str
    counts: Mapping[str, int]
    """examples, documents, patients, notes: the only source of weights."""
    labels: Sequence[str]
    manifest: Mapping[str, tuple[int, ...]]
    """The shape of each parameter that the algorithm shares."""
    label_counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    """How often each label occurs, for the report alone; empty where the site's policy does not let it leave."""

    @property
    def digest(self) -> str:
        said = [self.site, dict(self.counts), list(self.labels), {k: list(v) for k, v in self.manifest.items()}]
        return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Reply(Generic[R]):
    """A good reply: lost, late, refused and malformed ones never reach an algorithm."""

    site: Registration
    payload: R
    """A cursor: valid until the next reply."""
    weight: float
    """The site's weight in a mean, by federation.weight_by: a registered count, or 1."""
    aggregation: Aggregation = field(default_factory=Aggregation)
    """What `mean` makes of the replies, by federation.aggregate."""
    sent: Parameters | None = None
    """The weights that the site was last sent in this round; an update is the difference to them."""


class Cohort:
    """The sites of this round, in site order."""

    sites: Sequence[Registration]
    registered: int
    """How many sites the federation has; a round may ask fewer."""

    @property
    def fraction(self) -> float:
        """C: the share of sites that this round asks."""
        return len(self.sites) / self.registered

    def ask(self, method: Callable[[Site, *Ts], R], *message: *Ts) -> Iterator[Reply[R]]:
        """Run the method at every site; replies come in site order, each as soon as it is its turn."""
        return self.ask_each(method, {site.site: message for site in self.sites})

    def ask_each(self, method: Callable[[Site, *Ts], R], messages: Mapping[str, tuple[*Ts]]) -> Iterator[Reply[R]]:
        """The same with a message for each site; sites without one are not asked."""
        raise NotImplementedError


class Algorithm:
    """A frozen dataclass whose fields are its options. It has no state, since every site builds its own instance."""

    name: ClassVar[str]
    pooled: ClassVar[bool] = False
    """All sites' data at one simulated site."""
    personal: ClassVar[bool] = False
    """Each site ends with a model of its own, which `finish` saves there."""
    public_at_sites: ClassVar[bool] = False
    """Sites look at the public set, so it is sent to each of them, once."""
    needs_secret: ClassVar[bool] = False
    """Sites share a secret that the server must not know (`site.secret`); they agree on it before round 1."""
    needs: ClassVar[Sequence[type]] = ()
    """Abilities that its task must have (grandrounds.tasks.abilities), such as `Bagged`; other tasks are refused."""
    trains_server: ClassVar[bool] = False
    """The server trains on its public set, for server.epochs of the config."""
    server_epochs: ClassVar[int | None] = None
    """The server's epochs unless the config sets them; None: as many as at sites."""
    ranks_may_differ: ClassVar[bool] = False
    """Low-rank adapters of sites may have ranks of their own."""
    weight_by: ClassVar[str] = "examples"
    """What the paper weighs a mean by, unless federation.weight_by says otherwise."""

    def abilities(self) -> Sequence[type]:
        """What its task needs with these options."""
        return self.needs

    def shared(self, name: str) -> bool:
        """Whether a parameter must agree between sites and may travel."""
        return True

    def changes_frozen(self, name: str) -> bool:
        """Whether its rounds change this parameter of the server's model, though it takes no gradient."""
        return False

    def labels_may_differ(self) -> bool:
        """Whether nothing that depends on a label set travels."""
        return False

    def tensors(self, shared: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of what it sends as `Tensors`, given those of the parameters that it shares and of adapters:
        what comes is checked against them before it is used."""
        return {}

    def fitted(self, private: Mapping[str, Sequence[str]]) -> Algorithm:
        """This algorithm for a task whose model may keep these parts private, by the name of the split; there are none
        unless the task has `PrivateParts`."""
        return self

    def check(self, parameters: Collection[str]) -> None:
        """ConfigError where options name what the model does not have."""

    def not_averaged(self) -> str:
        """Why the server must see single replies; empty: all that a round asks sites for goes through `mean`, and
        nothing counts replies. Then federation.secure can hide them: `mean` gets one, which is the sites' mean."""
        return "it does not say that everything its rounds ask for is averaged (Algorithm.not_averaged)"

    def not_robust(self, rule: Aggregate) -> str:
        """Why this federation.aggregate would have no effect; empty: all that a round averages goes through `mean`."""
        return ""

    def exchanges(self) -> int:
        """How often a round asks a site at most: a site refuses what goes beyond."""
        return 8

    def counts_labels(self) -> bool:
        """Whether each round asks sites for `site.label_counts()`: under [privacy] a share of epsilon goes to them."""
        return False

    def encodings(self) -> Sequence[Compression]:
        """How its uploads may be compressed."""
        return ("fp32", "fp16", "int8")

    def protected(self) -> Algorithm:
        """This algorithm as it is by default under [privacy]."""
        return self

    def unaccounted(self, unit: Unit) -> str:
        """Under [privacy]: why some upload has no accountant, as the end of a sentence; empty if all have. Under
        "example" and "patient" all have that are made of public data, of models that `site.train()` trained and of
        gradients that `site.backward(site.minibatch(...))` left; under "site" weights and votes that go through `mean`.
        """
        return "nobody has said what its uploads tell of a site's data (Algorithm.unaccounted)"

    def start(self, server: Server, cohort: Cohort) -> None:
        """Before round 1: add to server.state what must persist between rounds."""

    def round(self, server: Server, cohort: Cohort) -> None:
        """One round, at the server: ask sites, and make of their replies what the model learns."""
        raise NotImplementedError

    def diagnose(self, server: Server, cohort: Cohort) -> Mapping[str, float]:
        """After a round that was not abandoned: named numbers that show how it went, for its line in metrics.jsonl and
        the report; asking sites here is read-only."""
        return {}

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        """Counts by learner; asking sites here is read-only."""
        return {"server": server.counts(split)}

    def finish(self, server: Server, everyone: Cohort) -> None:
        """After the last round, with the selected state in place; read-only."""


def changing(model: nn.Module, algorithm: Algorithm) -> dict[str, Tensor]:
    """What of the server's model rounds may change."""
    state, trained = model.state_dict(), unfrozen(model)
    return {name: value for name, value in state.items() if name in trained or algorithm.changes_frozen(name)}


@typing.dataclass_transform(frozen_default=True)
def algorithm(name: str) -> Callable[[A], A]:
    """Make a class a registered algorithm: a frozen dataclass, found by its name."""

    def register(cls: A) -> A:
        dataclass(frozen=True)(cls)
        cls.name = name
        ALGORITHMS.register(name, cls, f"{cls.__module__}:{cls.__qualname__}")
        return cls

    return register


def on_site(method: Method) -> Method:
    """Mark a method that runs at a site."""
    method.__on_site__ = True  # type: ignore[attr-defined]  # functions do take attributes
    return method


def site_method(made: Algorithm, name: str) -> Callable[..., Sent]:
    """The bound method of that name, which must be marked: a message can't call anything else."""
    method: Any = getattr(made, name, None)
    if not getattr(method, "__on_site__", False):
        raise ConfigError(f"algorithm '{made.name}' has no site method '{name}'")
    return typing.cast("Callable[..., Sent]", method)


def declared_kinds(method: Callable[..., Sent]) -> Kinds:
    """The kind of payload that a site method gives by its annotation, or the kinds where it is a tuple."""
    given = typing.get_type_hints(inspect.unwrap(getattr(method, "__func__", method)))["return"]
    return typing.cast("Kinds", typing.get_args(given) if typing.get_origin(given) is tuple else given)


def sent_kinds(made: Algorithm) -> set[type[Payload]]:
    """All that its site methods give."""
    found: set[type[Payload]] = set()
    for _, method in inspect.getmembers(type(made), inspect.isfunction):
        if getattr(method, "__on_site__", False):
            kinds = declared_kinds(method)
            found |= set(kinds if isinstance(kinds, tuple) else (kinds,))
    return found


def make_algorithm(name: str, options: Mapping[str, Any]) -> Algorithm:
    """The algorithm with these options; names and keys that are unknown are refused with the nearest known one."""
    cls: Any = ALGORITHMS.named(name)
    known = [field.name for field in dataclasses.fields(cls)]
    for key in options:
        if key not in known:
            if not known:
                raise ConfigError(f"algorithm '{name}' has no options; remove '{key}'")
            raise ConfigError(f"algorithm '{name}': {unknown('option', key, known)}")
    made: Algorithm = _validated(cls, options)
    return made


def _validated(cls: Any, options: Mapping[str, Any]) -> Any:
    from pydantic import TypeAdapter, ValidationError

    hints = typing.get_type_hints(cls, include_extras=True)
    checked = {}
    for key, value in options.items():
        try:
            checked[key] = TypeAdapter(hints[key]).validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ConfigError(f"algorithm.{key} = {value!r}: {problem[0].lower()}{problem[1:]}") from error
    return cls(**checked)
