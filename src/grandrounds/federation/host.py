"""A host of sites: answers asks by running `@on_site` methods on local data with one working model.

A simulation hosts all sites, a worker process some of them, a hospital one: its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from grandrounds.federation.contract import Algorithm, Registration, make_algorithm, site_method
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.learner import Practice, Site, Split
from grandrounds.federation.payloads import Compression, Expected, Packed, PredictedLabels, Predictions, unpack
from grandrounds.federation.policy import Policy, RefusalError
from grandrounds.federation.private import MissingVersionError, PrivateStore
from grandrounds.federation.rows import Tables
from grandrounds.federation.shelf import MissingPublicError, Shelf

NO_SECRET = b"sites that are simulated have nothing to hide from each other"


@dataclass(frozen=True)
class Resident:
    """A site with its data."""

    registration: Registration
    splits: Mapping[str, Split]
    practice: Practice
    """The federation's, or with an encoder of the site's own."""
    policy: Policy = field(default_factory=Policy)
    poisoned: bool = False
    """In a simulation: an attacker, whose predictions say another class than they mean."""


class Host:
    def __init__(
        self,
        algorithm: Algorithm,
        residents: Mapping[str, Resident],
        expected: Expected,
        private: PrivateStore,
        compression: Compression,
        config: str,
        models: Path | None,
        shelf: Shelf,
        working: Mapping[str, nn.Module] | None = None,
        secret: Callable[[], bytes] = lambda: NO_SECRET,
    ) -> None:
        self._shelf, self._secret = shelf, secret
        self._algorithm, self._residents, self._expected = algorithm, residents, expected
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

    def _run(self, ask: Ask) -> Answer:
        if ask.config != self._config:
            raise RefusalError("the shared config at this site is another one")
        if make_algorithm(ask.algorithm, ask.options) != self._algorithm:
            raise RefusalError("this site takes part in another algorithm, or with other options")
        if ask.public not in ("", self._expected.public[1]):
            raise RefusalError(f"the public set is version {self._expected.public[1] or 'none'}, not {ask.public:.16}")
        resident = self._residents[ask.site]
        private = self._private.read(ask.site, ask.start)
        site = Site(
            registration=resident.registration,
            practice=resident.practice,
            splits=self._splits(resident, ask),
            model=self._working_model(resident.practice),
            start=lambda: self._start(resident.practice),
            private=private,
            models=self._models,
            round=ask.round,
            exchange=ask.exchange,
            secret=self._secret,
            tables=self._tables.setdefault(resident.practice.model_key, Tables(lambda: self._start(resident.practice))),
        )
        method = site_method(self._algorithm, ask.method)
        message = [unpack(part, self._expected) if isinstance(part, Packed) else part for part in ask.message]
        payload = method(site, *message)
        if resident.poisoned and isinstance(payload, Predictions | PredictedLabels):
            payload = payload.misleading()
        packed = payload.pack(self._compression)
        resident.policy.check(packed)
        version = ask.start
        if site.kept and ask.commit is not None:
            version = ask.commit
            self._private.write(ask.site, version, {**private, **site.kept})
        self._private.retain(ask.site, {v for v in (ask.start, version, *ask.needed) if v is not None})
        return Answer(ask.site, packed, version, work=site.work)

    def _splits(self, resident: Resident, ask: Ask) -> Mapping[str, Split]:
        if not ask.public:
            return resident.splits
        if ask.public_set is not None:
            self._shelf.put(ask.public_set, ask.public)
        return {**resident.splits, "public": self._shelf.split(ask.public, resident.practice)}

    def _working_model(self, practice: Practice) -> nn.Module:
        """One for all sites with this encoder and these labels."""
        name = practice.model_key
        if name not in self._working:
            self._working[name] = practice.initial_model()
        return self._working[name]

    def _start(self, practice: Practice) -> Mapping[str, Tensor]:
        """A site's own start; most algorithms load the server's weights instead and never need it."""
        name = practice.model_key
        if name not in self._starts:
            self._starts[name] = practice.initial_model().state_dict()
        return self._starts[name]
