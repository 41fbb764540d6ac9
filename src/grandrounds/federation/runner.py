"""A runner of sites: answers asks by running `@on_site` methods on local data with one working model.

A simulation hosts all sites, a worker process some of them, a hospital one: its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from grandrounds.federation.contract import Algorithm, Registration, declared_kinds, make_algorithm, site_method
from grandrounds.federation.differences import named, update
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.learner import LearnerSpec, Site, Split
from grandrounds.federation.outgoing import Attack, Leaving, Step, allowed_by, pack, send
from grandrounds.federation.payloads import (
    Compression,
    Done,
    Expected,
    Gradients,
    Packed,
    Parameters,
    Payload,
    Scores,
    unpack,
)
from grandrounds.federation.policy import Policy, RefusalError
from grandrounds.federation.privacy.runner import PrivacyRunner
from grandrounds.federation.privacy.site import SitePrivacy
from grandrounds.federation.privacy.updates import clipped
from grandrounds.federation.private import MissingVersionError, PrivateStore
from grandrounds.federation.public_sets import MissingPublicError, PublicSetCache
from grandrounds.federation.rows import Tables
from grandrounds.federation.secure.settings import MASKED, masked_kinds
from grandrounds.federation.state import TensorState

if TYPE_CHECKING:  # it needs the package cryptography
    from grandrounds.federation.secure.site import SecureSite

JUDGING = frozenset({Scores, Done})
"""Kinds that tell how good a model is, or that something is done."""
TAKEN = "taken by rounding"
"""What a site keeps for its next upload in bytes, by the method and the place in its reply."""
NO_SECRET = b"sites that are simulated have nothing to hide from each other"


@dataclass(frozen=True)
class SiteData:
    """A site with its data."""

    registration: Registration
    splits: Mapping[str, Split]
    spec: LearnerSpec
    """The federation's, or with an encoder of the site's own."""
    policy: Policy = field(default_factory=Policy)
    attack: Attack | None = None


class SiteRunner:
    def __init__(
        self,
        algorithm: Algorithm,
        sites: Mapping[str, SiteData],
        expected: Expected,
        private: PrivateStore,
        compression: Compression,
        config: str,
        models: Path | None,
        public_sets: PublicSetCache,
        working: Mapping[str, nn.Module] | None = None,
        secret: Callable[[], bytes] = lambda: NO_SECRET,
        privacy: PrivacyRunner | None = None,
        secure: SecureSite | None = None,
        error_feedback: bool = True,
    ) -> None:
        """`secure`: what is averaged leaves masked, and not otherwise. `error_feedback`: what rounding to bytes takes
        is added to the next upload."""
        self._error_feedback = error_feedback
        self._public_sets, self._secret, self._privacy, self._secure = public_sets, secret, privacy, secure
        self._algorithm, self._sites, self._expected = algorithm, sites, expected
        self._working = dict(working or {})
        self._starts: dict[str, Mapping[str, Tensor]] = {}
        self._tables: dict[str, Tables] = {}
        self._private, self._compression, self._config, self._models = private, compression, config, models

    def answer(self, ask: Ask) -> Answer:
        """Run the method; a refusal is an answer, any other exception is a bug and stops the run."""
        try:
            return self._run(ask)
        except (RefusalError, MissingVersionError) as refusal:
            lacks_public = isinstance(refusal, MissingPublicError)
            return Answer(ask.site, lost=f"refused: {refusal}", lacks_public=lacks_public)

    def flush(self) -> None:
        self._private.flush()

    @property
    def algorithm(self) -> Algorithm:
        return self._algorithm

    def check(self, ask: Ask) -> None:
        """RefusalError where it is not an ask of this federation."""
        if ask.config != self._config:
            raise RefusalError("the shared config at this site is another one")
        ours = self._algorithm  # compared before anything of that name is looked up: a name could load a package
        if ask.algorithm != ours.name or make_algorithm(ours.name, ask.options) != ours:
            raise RefusalError("this site takes part in another algorithm, or with other options")
        if ask.public not in ("", self._expected.public[1]):
            raise RefusalError(f"the public set is version {self._expected.public[1] or 'none'}, not {ask.public:.16}")

    def _run(self, ask: Ask) -> Answer:
        self.check(ask)
        if self._masks(ask):
            return self._run_masked(ask)
        if (before := self._replied(ask)) is not None:
            return before
        return self._run_method(ask, lambda place, received: [])

    def _masks(self, ask: Ask) -> bool:
        """Whether it is of a secure sum; RefusalError where it should be, or should not."""
        secure = self._secure is not None and masked_kinds(declared_kinds(site_method(self._algorithm, ask.method)))
        if secure != bool(ask.phase):
            raise RefusalError(
                "by the terms what is averaged leaves this site masked only"
                if secure
                else "by the terms this answer is not part of a secure sum"
            )
        return secure

    def _run_masked(self, ask: Ask) -> Answer:
        assert self._secure is not None
        if ask.phase == MASKED:
            return self._secure.masked(ask, self._expected, self._run_method)
        site_data = self._sites[ask.site]
        reply = self._secure.answer(ask, site_data.registration, site_data.policy.least_sites)
        return Answer(ask.site, (send(reply, [pack("fp32"), allowed_by(site_data.policy)]),), ask.start)

    def _run_method(self, ask: Ask, hide: Callable[[int, Sequence[object]], Sequence[Step]]) -> Answer:
        """`hide` gives the steps that mask a part of the reply, by its place in it and the message."""
        site_data = self._sites[ask.site]
        private = self._private.read(ask.site, ask.start)
        privacy = self._privacy_of(ask, site_data)
        site = Site(
            registration=site_data.registration,
            spec=site_data.spec,
            splits=self._splits(site_data, ask),
            model=self._working_model(site_data.spec),
            start=lambda: self._start(site_data.spec),
            private=private,
            models=self._models,
            round=ask.round,
            exchange=ask.exchange,
            secret=self._secret,
            least_batch=site_data.policy.least_batch,
            privacy=privacy if privacy is not None and privacy.by_gradient else None,
            tables=self._tables_of(site_data.spec),
        )
        method = site_method(self._algorithm, ask.method)
        message = self._unpacked(ask, site_data.spec)
        reply = method(site, *message)
        attacks = [] if site_data.attack is None else [site_data.attack(message)]
        before = [*attacks, *self._clip(ask, privacy, message)]
        after = [pack(self._compression), allowed_by(site_data.policy)]
        parts = reply if isinstance(reply, tuple) else (reply,)
        packed = tuple(
            send(part, [*before, *hide(place, message), *self._rounding(ask, site, place, message), *after])
            for place, part in enumerate(parts)
        )
        version = ask.start
        if site.kept and ask.commit is not None:
            version = ask.commit
            self._private.write(ask.site, version, {**private, **site.kept})
        self._private.retain(ask.site, {v for v in (ask.start, version, *ask.needed) if v is not None})
        answer = Answer(ask.site, packed, version, work=site.work)
        masked = bool(ask.phase)  # and kept so, with the secrets of its attempt
        if self._privacy is not None and privacy is not None and privacy.drawn and not masked:
            self._privacy.keep(ask, answer)
        return answer

    def _unpacked(self, ask: Ask, spec: LearnerSpec) -> list[object]:
        """What came with the ask, checked; RefusalError where weights differ from a start that is not this site's."""
        expected = self._expected
        for part in ask.message:
            if isinstance(part, Packed) and isinstance(since := part.header.get("since"), str):
                start, names = self._tables_of(spec), named(part)
                if not start.start.keys() >= {*names} or since != start.digest_of(names):
                    raise RefusalError("this site does not start with the server's weights: does it have its encoder?")
                expected = replace(expected, base=start.start)
        return [unpack(part, expected) if isinstance(part, Packed) else part for part in ask.message]

    def _rounding(self, ask: Ask, site: Site, place: int, message: Sequence[object]) -> Sequence[Step]:
        """Where weights and gradients travel in bytes: the step that rounds them, and keeps what that takes."""
        if self._compression != "int8":
            return []
        got = next((part.values for part in message if isinstance(part, Parameters)), {})
        name, tables, spec = f"{TAKEN}: {ask.method} {place}", self._expected.tables, site.spec

        def step(leaving: Leaving) -> Leaving:
            if not isinstance(leaving, Parameters | Gradients):
                return leaving
            base = {**self._start(spec), **got} if isinstance(leaving, Parameters) else {}
            before = TensorState()
            if self._error_feedback:
                site.recall(name, before)
            seeds = spec.seed, site.who, site.round, site.exchange, place
            packed, taken = update(leaving, base, tables, before, *seeds)
            if self._error_feedback:
                site.keep(name, TensorState(taken))
            return packed

        return [step]

    def _tables_of(self, spec: LearnerSpec) -> Tables:
        return self._tables.setdefault(spec.model_key, Tables(lambda: self._start(spec)))

    def _privacy_of(self, ask: Ask, site_data: SiteData) -> SitePrivacy | None:
        if self._privacy is None:
            return None
        return self._privacy.at(ask, site_data.registration.counts, site_data.policy)

    def _clip(self, ask: Ask, privacy: SitePrivacy | None, message: Sequence[object]) -> list[Step]:
        """Where whole sites are private, what leaves is paid for and clipped, unless it only judges a model."""
        if privacy is None or privacy.by_gradient or JUDGING.issuperset(self._kinds(ask)):
            return []
        privacy.update()
        return [lambda leaving: clipped(leaving, message, privacy.plan.settings.clip)]

    def _kinds(self, ask: Ask) -> Sequence[type[Payload]]:
        kinds = declared_kinds(site_method(self._algorithm, ask.method))
        return kinds if isinstance(kinds, tuple) else (kinds,)

    def _replied(self, ask: Ask) -> Answer | None:
        """The answer that this ask had before, if the private state that goes with it is still here."""
        answer = None if self._privacy is None else self._privacy.reply(ask)
        if answer is None:
            return None
        try:
            self._private.read(ask.site, answer.version)
        except MissingVersionError:
            return None
        return answer

    def _splits(self, site_data: SiteData, ask: Ask) -> Mapping[str, Split]:
        if not ask.public:
            return site_data.splits
        if ask.public_set is not None:
            self._public_sets.put(ask.public_set, ask.public)
        return {**site_data.splits, "public": self._public_sets.split(ask.public, site_data.spec)}

    def _working_model(self, spec: LearnerSpec) -> nn.Module:
        """One for all sites with this encoder and these labels."""
        name = spec.model_key
        if name not in self._working:
            self._working[name] = spec.initial_model()
        return self._working[name]

    def _start(self, spec: LearnerSpec) -> Mapping[str, Tensor]:
        """A site's own start; most algorithms load the server's weights instead and never need it."""
        name = spec.model_key
        if name not in self._starts:
            self._starts[name] = spec.initial_model().state_dict()
        return self._starts[name]
