"""A host of sites: answers asks by running `@on_site` methods on local data with one working model.

A simulation hosts all sites, a worker process some of them, a hospital one: its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from grandrounds.federation.contract import Registration, make_algorithm, site_method
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.learner import Practice, Site, Split
from grandrounds.federation.payloads import Compression, Expected, Packed, unpack
from grandrounds.federation.policy import Policy, RefusalError
from grandrounds.federation.private import MissingVersionError, PrivateStore


@dataclass(frozen=True)
class Resident:
    """A site with its data."""

    registration: Registration
    splits: Mapping[str, Split]
    policy: Policy = field(default_factory=Policy)


class Host:
    def __init__(
        self,
        practice: Practice,
        residents: Mapping[str, Resident],
        expected: Expected,
        private: PrivateStore,
        compression: Compression,
        config: str,
        models: Path | None,
        model: nn.Module | None = None,
    ) -> None:
        self._given = model
        self._practice, self._residents, self._expected = practice, residents, expected
        self._private, self._compression, self._config, self._models = private, compression, config, models

    def answer(self, ask: Ask) -> Answer:
        """Run the method; a refusal is an answer, any other exception is a bug and stops the run."""
        try:
            packed, version = self._run(ask)
        except (RefusalError, MissingVersionError) as refusal:
            return Answer(ask.site, lost=f"refused: {refusal}")
        return Answer(ask.site, packed, version)

    def flush(self) -> None:
        self._private.flush()

    def _run(self, ask: Ask) -> tuple[Packed, str | None]:
        if ask.config != self._config:
            raise RefusalError("the shared config at this site is another one")
        resident = self._residents[ask.site]
        private = self._private.read(ask.site, ask.start)
        site = Site(
            registration=resident.registration,
            practice=self._practice,
            splits=resident.splits,
            model=self._working_model,
            start=lambda: self._start,
            private=private,
            models=self._models,
            round=ask.round,
            exchange=ask.exchange,
        )
        method = site_method(make_algorithm(ask.algorithm, ask.options), ask.method)
        message = [unpack(part, self._expected) if isinstance(part, Packed) else part for part in ask.message]
        packed = method(site, *message).pack(self._compression)
        resident.policy.check(packed)
        version = ask.start
        if site.kept and ask.commit is not None:
            version = ask.commit
            self._private.write(ask.site, version, {**private, **site.kept})
        self._private.retain(ask.site, {v for v in (ask.start, version, *ask.needed) if v is not None})
        return packed, version

    @cached_property
    def _working_model(self) -> nn.Module:
        return self._practice.initial_model() if self._given is None else self._given

    @cached_property
    def _start(self) -> Mapping[str, Tensor]:
        """A site's own start; most algorithms load the server's weights instead and never need it."""
        return self._practice.initial_model().state_dict()
