"""One exchange between the server and its sites, whatever carries it: asks out, answers back in site order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol, Self

from grandrounds.errors import foreign
from grandrounds.federation.payloads import Packed, PayloadError

MOST_WORK = 1 << 53
"""Steps, or examples: what JSON's numbers can say."""
Plain = str | int | float | bool


class Work(NamedTuple):
    """What training took: steps of an optimizer, and examples (sentences, documents, rows) that gradients are of."""

    steps: int = 0
    examples: int = 0

    def __add__(self, other: Work) -> Work:  # type: ignore[override]  # of a tuple it would be a longer one
        return Work(self.steps + other.steps, self.examples + other.examples)

    def __sub__(self, other: Work) -> Work:
        return Work(self.steps - other.steps, self.examples - other.examples)


@dataclass(frozen=True)
class Ask:
    """What a site gets: which method to run on what, and which private state to start from."""

    site: str
    algorithm: str
    options: Mapping[str, Any]
    method: str
    round: int
    exchange: int
    message: tuple[Packed | Plain, ...]
    config: str
    """Digest of the shared config: a site with another one refuses."""
    start: str | None
    """The version of private state to start from; None: nothing kept yet."""
    commit: str | None
    """How the version that this ask makes is called; None: read-only."""
    needed: tuple[str, ...]
    """Versions that a checkpoint still names."""
    public: str = ""
    """Digest of the public set that the method may look at; empty: none."""
    public_set: Packed | None = None
    """The set itself, for a site that does not hold it yet."""
    phase: str = ""
    """Of a secure sum: keys, shares, masked, agree, unmask; empty: the answer comes as it is."""
    attempt: str = ""
    """Which secure sum."""

    @property
    def payloads(self) -> list[Packed]:
        """All that goes down with it."""
        return [part for part in (self.public_set, *self.message) if isinstance(part, Packed)]

    @property
    def where(self) -> dict[str, Any]:
        """Its place in a log."""
        return {"round": self.round, "exchange": self.exchange, "site": self.site}

    def note(self, put: Callable[[Packed], str | int]) -> dict[str, Any]:
        """JSON of it; each payload goes where `put` says."""
        note = {part.name: getattr(self, part.name) for part in fields(self)}
        note["public_set"] = None if self.public_set is None else put(self.public_set)
        note["message"] = [{"payload": put(part)} if isinstance(part, Packed) else part for part in self.message]
        return note

    @classmethod
    def of(cls, note: Mapping[str, Any], get: Callable[[Any], Packed]) -> Self:
        """The ask of a note, with its payloads got from where they were put."""
        message = (get(part["payload"]) if isinstance(part, dict) else part for part in note["message"])
        public_set = None if note["public_set"] is None else get(note["public_set"])
        return cls(**{**note, "message": tuple(message), "public_set": public_set, "needed": tuple(note["needed"])})


@dataclass(frozen=True)
class Answer:
    """What came back: payloads as they stood on the wire, or why there are none."""

    site: str
    payloads: tuple[Packed, ...] = ()
    version: str | None = None
    """The private state after this ask; the old one where nothing was kept."""
    lost: str | None = None
    """refused, late, cut off: in one sentence without any of the site's data."""
    lacks_public: bool = False
    """It was refused for want of the public set."""
    work: Work = field(default_factory=Work)
    """What training for it took."""
    arrived: float | None = None
    """When it came, where that is known: answers wait for their turn, in the order of the sites."""

    def note(self) -> dict[str, Any]:
        """JSON of all but the payload."""
        return {"version": self.version, "lost": self.lost, "lacks_public": self.lacks_public, "work": [*self.work]}

    @classmethod
    def of(cls, site: str, payloads: tuple[Packed, ...], note: Mapping[str, Any]) -> Self:
        """The answer of a note; PayloadError where it is none."""
        version, lost, lacks_public, work = (note[key] for key in ("version", "lost", "lacks_public", "work"))
        plain = version is None or isinstance(version, str), lost is None or isinstance(lost, str)
        if not all(plain) or bool(payloads) == (lost is not None):
            raise PayloadError("an answer is a payload, or a reason why there is none")
        if len(work) != len(Work._fields) or not all(type(n) is int and 0 <= n < MOST_WORK for n in work):
            raise PayloadError("the work of an answer is a number of steps and a number of examples")
        lost = None if lost is None else foreign(lost)  # a site's words, which are logged and shown
        return cls(site, payloads, version, lost, bool(lacks_public), Work(*work))

    @property
    def considered(self) -> bool:
        """Whether the ask reached the site: it answered, or refused to."""
        return bool(self.payloads) or (self.lost or "").startswith("refused")


class Transport(Protocol):
    """Where sites run."""

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        """An answer for every ask, in the order of the asks."""
        ...

    def flush(self) -> None:
        """Before a checkpoint: whatever private state it will name is safe."""
        ...

    def close(self) -> None: ...
