"""One registry for algorithms, tasks and formats: built-ins by name, then entry points, then what `imports` register.

A name is known before its code is loaded: `grandrounds --help` lists algorithms without importing torch. Others' code
comes in under names of its own. A module that `imports = ["my_package"]` names registers it, by `@algorithm(name)`, or
by `TASKS.register(name, task, __name__)` and the like; or an installed package has an entry point for it:

    [project.entry-points."grandrounds.algorithms"]
    feddyn = "grandrounds_feddyn:FedDyn"
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Generic, TypeVar

from grandrounds.errors import ConfigError, GrandRoundsError, near, unknown

if TYPE_CHECKING:
    from grandrounds.data.formats.source import Format
    from grandrounds.federation.contract import Algorithm
    from grandrounds.tasks.task import Task

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """By name; what a name stands for is imported when it is first asked for."""

    def __init__(self, kind: str, built_in: Mapping[str, str]) -> None:
        self.kind, self._built_in = kind, built_in
        self._registered: dict[str, T] = {}
        self._places: dict[str, str] = {}
        self._from_packages: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._registered:
            return self._registered[name]
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            self._registered[name] = getattr(importlib.import_module(module), attribute)
            return self._registered[name]
        if name not in self._from_packages:
            self._from_packages[name] = self._load(self._installed[name])
        return self._from_packages[name]

    def __setitem__(self, name: str, value: T) -> None:
        self._registered[name] = value

    def __delitem__(self, name: str) -> None:
        del self._registered[name]
        self._places.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._built_in, *self._installed, *self._registered)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._registered or name in self._installed

    def register(self, name: str, value: T, where: str) -> None:
        """Add what a module brings; `where` is its import path, so that no other module can take the name."""
        if self._built_in.get(name, where) != where:
            raise ConfigError(f"'{where}' registers the {self.kind} '{name}', which is built in; give it another name")
        if self._places.setdefault(name, where) != where:
            raise ConfigError(
                f"'{where}' registers the {self.kind} '{name}', which '{self._places[name]}' has registered already"
            )
        self._registered[name] = value

    def named(self, name: str) -> T:
        """What stands under the name, or a sentence with the nearest known one."""
        if name not in self:
            raise ConfigError(not_registered(self.kind, name, self))
        return self[name]

    def at_hand(self, name: str) -> bool:
        """Whether it is built in, or a module that was imported has registered it: an entry point alone does not count.
        A site takes names from its coordinator, who must not decide what the site loads."""
        return name in self._built_in or name in self._registered

    def _load(self, point: EntryPoint) -> T:
        package = "" if point.dist is None else f" of the package '{point.dist.name}'"
        try:
            loaded: T = point.load()
        except Exception as error:  # whatever somebody else's module raises
            raise GrandRoundsError(f"the {self.kind} '{point.name}'{package} can't be loaded: {error}") from error
        if getattr(loaded, "name", None) != point.name:
            raise GrandRoundsError(f"the entry point '{point.name}'{package} is not a {self.kind} of that name")
        return loaded

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=f"grandrounds.{self.kind}s")}


def _places(room: str, attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: f"grandrounds.{room}.{place}" for name, place in attributes.items()}


ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    _places(
        "algorithms",
        {
            "centralized": "centralized:Centralized",
            "ditto": "ditto:Ditto",
            "fedatt": "fedatt:FedAtt",
            "fedavg": "fedavg:FedAvg",
            "feddf": "feddf:FedDF",
            "feded": "feded:FedED",
            "fedlcc": "fedlcc:FedLCC",
            "fedner": "fedner:FedNER",
            "fedopt": "fedopt:FedOpt",
            "fedper": "fedper:FedPer",
            "fedprox": "fedprox:FedProx",
            "flora": "flora:FLoRA",
            "lazy_mil": "lazy_mil:LazyMIL",
            "local_only": "local_only:LocalOnly",
            "moon": "moon:Moon",
            "scaffold": "scaffold:Scaffold",
            "validation_only": "validation_only:ValidationOnly",
        },
    ),
)
TASKS: Registry[type[Task]] = Registry(
    "task",
    _places(
        "tasks",
        {
            "sentence_re": "sentence_re:SentenceRE",
            "joint": "joint:Joint",
            "document_re": "document_re:DocumentRE",
            "distant_re": "distant_re:DistantRE",
            "ner": "ner:NER",
            "masked_lm": "masked_lm:MaskedLM",
        },
    ),
)
FORMATS: Registry[Format] = Registry(
    "format",
    _places(
        "data.formats",
        {
            "pubtator": "pubtator:FORMAT",
            "chemdisgene": "chemdisgene:FORMAT",
            "brat": "brat:FORMAT",
            "conll": "conll:FORMAT",
            "biobert-tsv": "biobert_tsv:FORMAT",
            "i2b2-2010": "i2b2_2010:FORMAT",
            "docred": "docred:FORMAT",
            "eog": "eog:FORMAT",
            "opennre": "opennre:FORMAT",
            "nre": "nre:FORMAT",
            "bere": "bere:FORMAT",
            "chemprot": "chemprot:FORMAT",
            "bioc": "bioc_xml:FORMAT",
            "bioc-json": "bioc_json:FORMAT",
            "pubannotation": "pubannotation:FORMAT",
            "json": "documents_json:FORMAT",
            "text": "text:FORMAT",
            "lines": "lines:FORMAT",
            "ade": "ade:FORMAT",
            "cadec": "cadec:FORMAT",
            "smm4h": "smm4h:FORMAT",
            "i2b2-2012": "i2b2_2012:FORMAT",
            "mimic-notes": "mimic_notes:FORMAT",
            "notes-json": "notes_json:FORMAT",
        },
    ),
)


def not_registered(kind: str, name: str, known: Iterable[str]) -> str:
    """A sentence on an unknown name; unless it looks misspelt, with what to do if it is the user's own."""
    names = list(known)
    said = unknown(kind, name, names)
    if near(name, names, 0.8):
        return said
    own = f"To use {'an' if kind == 'algorithm' else 'a'} {kind} of your own, name its module with --import"
    return f"{said}{'' if said.endswith('?') else '.'} {own}"


def load_modules(names: Iterable[str]) -> None:
    """Import modules that register algorithms, tasks or formats."""
    for name in names:
        try:
            importlib.import_module(name)
        except ConfigError:
            raise
        except Exception as error:  # whatever somebody else's module raises
            raise ConfigError(
                f"imports: the module '{name}' can't be imported ({error}); install its package, or put its folder on "
                "PYTHONPATH"
            ) from error
