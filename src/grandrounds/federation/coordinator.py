"""The server's side of every exchange: who is asked, which replies are good, what travelled, which versions hold.

Only good replies reach an algorithm. Lost, refused and malformed ones are named and counted; with fewer than
`min_replies` the round is abandoned. Any other exception stops the run: a bug must not look like a lost site.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from grandrounds.errors import ConfigError, GrandRoundsError, foreign
from grandrounds.federation.audit import Audit, log_payload
from grandrounds.federation.contract import Algorithm, Cohort, Kinds, Registration, Reply, declared_kinds
from grandrounds.federation.differences import Downlink
from grandrounds.federation.exchange import Answer, Ask, Transport, Work
from grandrounds.federation.payloads import Expected, Packed, Parameters, Payload, PayloadError, PublicSet, unpack
from grandrounds.federation.privacy.updates import SiteNoise
from grandrounds.federation.robust import Aggregation, Rule
from grandrounds.federation.secure.settings import MASKED, SecureSettings, fresh_attempt, masked_kinds
from grandrounds.federation.shares import weights

if TYPE_CHECKING:  # the rest of it needs the package cryptography
    from grandrounds.federation.secure.coordinator import Message, SecureSum


ALL_SITES = "all sites"
"""Whose reply a secure sum is."""
UNKNOWN_VERSION = "it calls its private state by a name that the server did not give"


class AbandonedError(GrandRoundsError):
    """Too few good replies: the round does not count."""


@dataclass
class Traffic:
    """What a round cost and whom it lost."""

    bytes_up: int = 0
    bytes_down: int = 0
    replies: int = 0
    work: Work = field(default_factory=Work)
    """Of the sites, as they tell."""
    lost: dict[str, str] = field(default_factory=dict)
    norms: dict[str, float] = field(default_factory=dict)
    """Of sites' updates, the largest of the round, where federation.aggregate asks for them."""
    outliers: dict[str, float] = field(default_factory=dict)
    """Sites with an update far larger than the median, and how many times as large."""
    clipped: int = 0
    """Values beyond the range of fixed point, in secure sums."""
    rounding: float = 0.0
    """How far the mean of a secure sum can be from that of the numbers before they were rounded, at most."""
    noise: float = 0.0
    """The deviation of the noise in the mean of a secure sum, as a multiple of what was agreed on; the least."""


@dataclass
class Ledger:
    """Which version of private state each site is at; `pinned` are those that checkpoints name."""

    versions: dict[str, str] = field(default_factory=dict)
    pinned: list[Mapping[str, str]] = field(default_factory=list)
    holding: set[str] = field(default_factory=set)
    """Sites that have the public set."""

    def needed(self, site: str) -> tuple[str, ...]:
        return tuple(sorted({versions[site] for versions in self.pinned if site in versions}))


@dataclass(frozen=True)
class Federation:
    """What stays the same from round to round."""

    algorithm: Algorithm
    transport: Transport
    ledger: Ledger
    expected: Expected
    audit: Audit
    config: str
    weight_by: str
    min_replies: int = 1
    largest_share: float = 0.5
    """Of one site in a mean over three or more."""
    rule: Rule = field(default_factory=Rule)
    """What `mean` makes of replies."""
    registered: int = 0
    """How many sites there are."""
    site_noise: Callable[[int, int], SiteNoise] | None = None
    """By round and exchange, where whole sites are private."""
    public: PublicSet | None = None
    """What sites may look at beside their own data."""
    watch: Callable[[str], None] = lambda site: None
    """Called for each site that has answered."""
    downlink: Downlink | None = None
    """How weights go down in bytes; None: as they are."""
    secure: SecureSettings | None = None
    """How what is averaged is summed without the server's seeing a single upload; None: it is not."""
    attempt: Callable[[int, int], str] = fresh_attempt
    """The name of an attempt to sum in this round and exchange."""

    def cohort(self, sites: Sequence[Registration], round: int, read_only: bool = False) -> RoundCohort:
        return RoundCohort(self, sites, round, read_only)


class RoundCohort(Cohort):
    """A cohort for one round. An ask whose replies nobody read is finished before the next one."""

    def __init__(self, federation: Federation, sites: Sequence[Registration], round: int, read_only: bool) -> None:
        self.sites = sorted(sites, key=lambda site: site.site)
        self.registered = federation.registered or len(self.sites)
        self.traffic = Traffic()
        self.exchange = 0
        self._federation, self._round, self._read_only = federation, round, read_only
        self._by_name = {site.site: site for site in self.sites}
        self._weights = weights(self.sites, federation.weight_by, federation.largest_share)
        self._aggregation = Aggregation(federation.rule, self._hear_norms, self._noised)
        self._sent: dict[str, Parameters] = {}
        self._bases: dict[int, Mapping[str, Tensor]] = {}
        self._open: Iterator[Any] = iter(())

    def ask_each(self, method: Any, messages: Mapping[str, tuple[Any, ...]]) -> Iterator[Any]:
        self.finish()
        self.exchange += 1
        strangers = messages.keys() - self._by_name.keys()
        if strangers:
            raise KeyError(f"{min(strangers)} is not of this cohort")
        self._sent |= {site: part for site, parts in messages.items() for part in parts if isinstance(part, Parameters)}
        self._messages, self._bases = messages, {}
        packed: dict[int, Packed] = {}  # what goes to all sites is packed, and its digest taken, once
        if (public := self._federation.public) is not None:
            packed[id(public)] = public.pack("fp32")
        asks = [
            self._ask(method, site.site, messages[site.site], packed) for site in self.sites if site.site in messages
        ]
        secure = self._federation.secure is not None and masked_kinds(declared_kinds(method))
        self._open = self._one_reply(method, asks) if secure else self._replies(method, asks)
        return self._open

    def finish(self) -> None:
        """Read what is left of the last ask."""
        for _ in self._open:
            pass

    def _ask(self, method: Any, site: str, message: tuple[Any, ...], packed: dict[int, Packed]) -> Ask:
        for part in message:
            if isinstance(part, Payload) and id(part) not in packed:
                packed[id(part)] = self._pack(part, len(packed))
        algorithm, ledger, public = self._federation.algorithm, self._federation.ledger, self._federation.public
        return Ask(
            site=site,
            algorithm=algorithm.name,
            options=dataclasses.asdict(algorithm),  # type: ignore[call-overload]  # @algorithm made it a dataclass
            method=method.__name__,
            round=self._round,
            exchange=self.exchange,
            message=tuple(packed.get(id(part), part) for part in message),
            config=self._federation.config,
            start=ledger.versions.get(site),
            commit=None if self._read_only else f"{self._round:05d}.{self.exchange}",
            needed=ledger.needed(site),
            public="" if public is None else public.digest,
            public_set=None if site in ledger.holding else packed.get(id(public)),
        )

    def _pack(self, part: Payload, place: int) -> Packed:
        if isinstance(part, Parameters) and (down := self._federation.downlink) is not None:
            return down.pack(part, self._round, self.exchange, place)
        return part.pack("fp32")

    def _expected(self, site: str) -> Expected:
        """Of a site's reply."""
        expected, down = self._federation.expected, self._federation.downlink
        if down is None:
            return expected
        sent = next((part for part in self._messages[site] if isinstance(part, Parameters)), None)
        if id(sent) not in self._bases:
            self._bases = {id(sent): down.base(sent)}  # most exchanges send all sites the same
        return replace(expected, base=self._bases[id(sent)])

    def _replies(self, method: Any, asks: Sequence[Ask]) -> Iterator[Reply[Any]]:
        kinds, good, failed = declared_kinds(method), 0, list[str]()
        for ask, answer in self._exchanged(asks):
            try:
                reply = self._checked(ask, answer, kinds)
            except PayloadError as problem:
                self.reject(ask, f"rejected: {foreign(str(problem))}")
                continue
            except Exception as bug:  # whatever one site's reply leads to, the others' round goes on
                self.reject(ask, f"failed: its reply can't be used ({type(bug).__name__})")
                reply = None
            finally:
                self._federation.watch(answer.site)
            if (lost := self.traffic.lost.get(answer.site, "")).startswith("failed: "):
                failed.append(lost)
            if reply is not None:
                good += 1
                self.traffic.replies += 1
                yield reply
        self._check_bug(method, asks, failed)
        if good < min(self._federation.min_replies, len(asks)):
            raise self._abandoned(f"{good} good replies, {self._federation.min_replies} are needed")

    def _exchanged(self, asks: Sequence[Ask]) -> Iterator[tuple[Ask, Answer]]:
        """Answers that can be measured, counted and logged, each with its ask."""
        sent = {ask.site: ask for ask in asks}
        for ask in asks:
            for part in ask.payloads:
                log_payload(self._federation.audit, ask.where, "down", part)
        for answer in self._federation.transport.exchange(asks):
            answer = measurable(answer)
            self._record(sent[answer.site], answer)
            yield sent[answer.site], answer

    def _check_bug(self, method: Any, asks: Sequence[Ask], failed: Sequence[str]) -> None:
        """A bug must not look like lost sites; but what one site says of itself must not stop the others' run."""
        if asks and len(failed) == len(asks) >= min(2, self.registered):
            raise GrandRoundsError(
                f"round {self._round}, '{method.__name__}': every site {failed[0]}; mend that and go on with --resume"
            )

    def _abandoned(self, why: str) -> AbandonedError:
        reasons = "; ".join(f"{site} {reason}" for site, reason in sorted(self.traffic.lost.items()))
        return AbandonedError(f"round {self._round} was abandoned: {why} ({reasons})")

    def _one_reply(self, method: Any, asks: Sequence[Ask]) -> Iterator[Reply[Any]]:
        """The sites' mean, of whose single uploads the server sees nothing."""
        from grandrounds.federation.secure.total import GivenUpError

        kinds = declared_kinds(method)
        try:
            found = self._secure_sum(kinds, asks)
        except GivenUpError as problem:
            failed = [why for ask in asks if (why := self.traffic.lost.get(ask.site, "")).startswith("failed: ")]
            self._check_bug(method, asks, failed)
            raise self._abandoned(str(problem)) from problem
        if len(found.stayed) < min(self._federation.min_replies, len(asks)):
            raise self._abandoned(f"{len(found.stayed)} good replies, {self._federation.min_replies} are needed")
        self.traffic.replies += len(found.stayed)
        self.traffic.clipped += found.clipped
        self.traffic.rounding = max(self.traffic.rounding, found.rounding)
        self.traffic.noise = min(self.traffic.noise or found.noise, found.noise)
        payload = found.payloads if isinstance(kinds, tuple) else found.payloads[0]
        some = self._by_name[found.stayed[0]]
        yield Reply(Registration(ALL_SITES, {}, some.labels, some.manifest), payload, float(found.weight))

    def _secure_sum(self, kinds: Kinds, asks: Sequence[Ask]) -> SecureSum:
        from grandrounds.federation.secure.coordinator import secure_sum
        from grandrounds.federation.secure.masks import Place

        federation = self._federation
        assert federation.secure is not None
        attempt = federation.attempt(self._round, self.exchange)
        return secure_sum(
            _Talk(self, {ask.site: replace(ask, attempt=attempt) for ask in asks}),
            [self._by_name[ask.site] for ask in asks],
            {ask.site: ask.message for ask in asks},
            kinds,
            federation.expected,
            federation.secure,
            Place(federation.config, self._round, self.exchange, attempt),
        )

    def talk(self, phase: str, asks: Sequence[Ask]) -> Iterator[tuple[str, tuple[Packed, ...]]]:
        """One exchange of a secure sum: what came of each site that answered."""
        if phase != MASKED:  # the algorithm's method does not run
            asks = [replace(ask, public="", public_set=None) for ask in asks]
        for ask, answer in self._exchanged([replace(ask, phase=phase) for ask in asks]):
            if phase == MASKED:
                self._federation.watch(answer.site)
            if not answer.payloads:
                self.traffic.lost[answer.site] = f"{answer.lost or 'lost'} (in the phase '{phase}' of a secure sum)"
                continue
            if answer.version not in (None, ask.start, ask.commit):
                self.reject(ask, f"rejected: {UNKNOWN_VERSION}")
                continue
            if phase == MASKED and answer.version is not None and not self._read_only:
                self._federation.ledger.versions[answer.site] = answer.version
            yield answer.site, answer.payloads

    def reject(self, ask: Ask, why: str) -> None:
        self.traffic.lost[ask.site] = why
        self._federation.audit.write(**ask.where, event=why)

    def _checked(self, ask: Ask, answer: Answer, kinds: Kinds) -> Reply[Any] | None:
        if not answer.payloads:
            self.traffic.lost[answer.site] = answer.lost or "lost"
            return None
        if answer.version not in (ask.start, ask.commit):
            raise PayloadError(UNKNOWN_VERSION)
        declared = kinds if isinstance(kinds, tuple) else (kinds,)
        if len(answer.payloads) != len(declared):
            raise PayloadError(f"{len(answer.payloads)} payloads came where {len(declared)} were declared")
        expected = self._expected(answer.site)
        parts = tuple(unpack(part, expected, kind) for part, kind in zip(answer.payloads, declared, strict=True))
        if any(isinstance(part, Parameters) and part.rows for part in parts):
            raise PayloadError("weights come whole from a site; only the server sends rows of them")
        payload = parts if isinstance(kinds, tuple) else parts[0]
        if answer.version is not None and not self._read_only:
            self._federation.ledger.versions[answer.site] = answer.version
        site = self._by_name[answer.site]
        return Reply(site, payload, self._weights[answer.site], self._aggregation, self._sent.get(answer.site))

    def _noised(self, mean: Any, largest: float) -> Any:
        if self._federation.site_noise is None:
            return mean
        return self._federation.site_noise(self._round, self.exchange).add(mean, largest)

    def _hear_norms(self, norms: Mapping[str, float]) -> None:
        for known, new in ((self.traffic.norms, norms), (self.traffic.outliers, self._federation.rule.outliers(norms))):
            known.update({site: max(value, known.get(site, 0.0)) for site, value in new.items()})

    def _record(self, ask: Ask, answer: Answer) -> None:
        """Count and log what crossed the wire, good or not."""
        where = ask.where if answer.arrived is None else {**ask.where, "arrived": round(answer.arrived, 3)}
        self.traffic.bytes_down += sum(part.nbytes for part in ask.payloads)
        holding = self._federation.ledger.holding
        if answer.lacks_public:
            holding.discard(ask.site)  # it will be sent again
        elif ask.public and answer.considered:
            holding.add(ask.site)
        if not answer.payloads:
            self._federation.audit.write(**where, event=answer.lost)
        else:
            self.traffic.bytes_up += sum(part.nbytes for part in answer.payloads)
            self.traffic.work += answer.work
            for place, part in enumerate(answer.payloads):
                log_payload(self._federation.audit, where, "up", part, None if place else answer.work)


@dataclass(frozen=True)
class _Talk:
    """The sites of a secure sum."""

    cohort: RoundCohort
    asks: Mapping[str, Ask]

    def ask(self, phase: str, messages: Mapping[str, Message]) -> Iterator[tuple[str, tuple[Packed, ...]]]:
        asks = [replace(self.asks[site], message=messages[site]) for site in sorted(messages)]
        return self.cohort.talk(phase, asks)

    def reject(self, site: str, why: str) -> None:
        self.cohort.reject(self.asks[site], foreign(why))


def measurable(answer: Answer) -> Answer:
    """The answer, or its rejection where its bytes can't even be counted for the log."""
    try:
        for part in answer.payloads:
            part.nbytes, part.digest  # noqa: B018  # both are kept
    except Exception as error:
        return Answer(answer.site, lost=f"rejected: a payload can't be measured ({type(error).__name__})")
    return answer


def check_registrations(
    sites: Sequence[Registration], labels: Sequence[str] | None, manifest: Mapping[str, tuple[int, ...]]
) -> None:
    """Before round 1: every site has the server's labels, unless they may differ, and the shapes of what it shares."""
    for site in sites:
        if labels is not None and list(site.labels) != list(labels):
            theirs = foreign(", ".join(site.labels))
            raise ConfigError(f"site '{site.site}' has the labels {theirs}; the server has {', '.join(labels)}")
        if site.manifest is not manifest and site.manifest != manifest:
            names = sorted(site.manifest.keys() | manifest.keys())
            name = next(name for name in names if site.manifest.get(name) != manifest.get(name))
            theirs = foreign(f"{name!r} with shape {site.manifest.get(name)}")
            raise ConfigError(
                f"site '{site.site}' shares {theirs}, the server with {manifest.get(name)}; do both have the same "
                "encoder?"
            )
