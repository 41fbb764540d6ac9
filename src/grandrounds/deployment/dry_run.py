"""What would leave a site, seen before it joins: a round played at home, with the site's own data and no network.

The coordinator is played here, on the terms that the site was enrolled with. Its public set is not here, so as many
of the site's own examples stand in for it; names, shapes and kinds are those of the real thing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from grandrounds.deployment.enrolment import Enrolment
from grandrounds.deployment.site import Holding
from grandrounds.federation.audit import Audit
from grandrounds.federation.coordinator import AbandonedError, Federation, Ledger
from grandrounds.federation.differences import Downlink
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.learner import Server
from grandrounds.federation.payloads import Packed
from grandrounds.federation.policy import Policy, RefusalError
from grandrounds.federation.privacy.runner import PrivacyRunner
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.rows import table_names
from grandrounds.federation.runner import SiteRunner
from grandrounds.federation.secure.site import SecureSite
from grandrounds.federation.secure.store import InMemory
from grandrounds.setup.examples import Examples
from grandrounds.setup.server import asked, expected_of, manifest_of
from grandrounds.tasks.abilities import Distillable
from grandrounds.tasks.task import Features, Task

FEW = 8
"""Examples to train on: the shape of an upload does not depend on how many."""
PEERS = ("another site", "a third site")
"""Who stands in for the others of a secure sum."""


@dataclass(frozen=True)
class Upload:
    """Something that would leave."""

    when: str
    method: str
    kind: str
    bytes: int
    tensors: Mapping[str, tuple[int, ...]]
    fields: Sequence[str]
    refused: str
    """What the site's policy says to it; empty: nothing."""
    place: int = 0
    """In a reply of several payloads."""


def dry_run(enrolment: Enrolment, holding: Holding, privacy: PrivacyRunner | None = None) -> list[Upload]:
    """One start, one round, one evaluation and one end of the enrolled algorithm, as this site would answer. `privacy`
    is what the noise is paid from, by the terms."""
    terms, site_data = enrolment.terms, holding.site_data
    config, algorithm = terms.config, terms.config.make_algorithm()
    spec = terms.spec(config.training, site_data.spec.device)
    examples = Examples(terms.task, holding.documents, terms.task.examples(holding.documents)[0])
    encoded = examples.encode(spec.encoder)
    rows = _asking(terms.task, encoded.features, len(examples.all), terms.public[0])
    stand_in = examples.public_set({"public": rows if terms.public[0] else ()})
    digest = "" if stand_in is None else stand_in.digest
    split = replace(encoded.split(rows), digest=digest)
    model = spec.initial_model()
    expected = expected_of(model, manifest_of(model, algorithm), terms.task, asked(terms.task, split), algorithm)
    few = replace(site_data.splits["train"], rows=site_data.splits["train"].rows[:FEW])
    played = replace(site_data, splits={**site_data.splits, "train": few}, policy=Policy())
    sites = {site_data.registration.site: played}
    if secure := config.secure_settings:  # which takes several: the others hold what this one does
        for peer in PEERS:
            sites[peer] = replace(played, registration=replace(site_data.registration, site=peer))
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        runner = SiteRunner(
            algorithm,
            sites,
            replace(expected, manifest=site_data.registration.manifest),
            PrivateStore(state / "states"),
            config.federation.compression,
            terms.digest,
            state / "models",
            PublicSetCache(state / "public"),
            privacy=privacy,
            secure=SecureSite(secure, InMemory()) if secure else None,
            error_feedback=config.federation.error_feedback,
        )
        server = Server(spec, dict.fromkeys(("public", "validation", "test"), split), model)
        listener = _Listener(runner, site_data.policy, site_data.registration.site)
        federation = Federation(
            algorithm,
            listener,
            Ledger(),
            expected,
            Audit(state / "audit.jsonl"),
            terms.digest,
            config.federation.weight_by or algorithm.weight_by,
            largest_share=config.federation.largest_share,
            downlink=Downlink.of(algorithm, config.federation.compression, server.start, expected.tables, config.seed),
            public=stand_in if algorithm.public_at_sites else None,
            secure=secure,
        )
        everyone = [one.registration for one in sites.values()]
        listener.when = "before round 1"
        algorithm.start(server, cohort := federation.cohort(everyone, 0))
        cohort.finish()
        listener.when = "a round"
        server.begin(1)
        algorithm.round(server, cohort := federation.cohort(everyone, 1))
        cohort.finish()
        algorithm.diagnose(server, federation.cohort(everyone, 1, read_only=True))
        listener.when = "an evaluation"
        for part in ("validation", "test"):
            try:
                algorithm.evaluate(server, federation.cohort(everyone, 1, read_only=True), part)
            except AbandonedError:
                continue  # the site has no such data, and would say so
        listener.when = "the end"
        algorithm.finish(server, cohort := federation.cohort(everyone, 1, read_only=True))
        cohort.finish()
    return listener.seen


def _asking(task: Task, features: Features, examples: int, questions: int) -> list[int]:
    """Examples, some more than once, that ask about as many questions; at least one."""
    asks = np.ones(examples, dtype=np.int64)
    if isinstance(task, Distillable):
        asks = task.questions(features, np.arange(examples))
    wanted = max(questions, 1)
    times = -(-wanted // int(asks.sum()))
    enough = int(np.searchsorted(np.tile(asks, times).cumsum(), wanted)) + 1
    return [row % examples for row in range(enough)]


def tables_of_words(enrolment: Enrolment, uploads: Sequence[Upload]) -> list[str]:
    """Tables with a row for each word piece that would leave: the rows that training changes show which pieces a site's
    text has."""
    terms = enrolment.terms
    model = terms.spec(terms.config.training, torch.device("cpu")).initial_model()
    pieces, sent = len(terms.encoder.tokenizer), {name for upload in uploads for name in upload.tensors}
    return [name for name in table_names(model) if name in sent and model.get_parameter(name).shape[0] >= pieces]


class _Listener:
    """A transport that writes down what passes."""

    def __init__(self, runner: SiteRunner, policy: Policy, site: str) -> None:
        self.when, self.seen = "", list[Upload]()
        self._runner, self._policy, self._site = runner, policy, site

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        for ask in asks:
            answer = self._runner.answer(ask)
            for place, part in enumerate(answer.payloads if ask.site == self._site else ()):
                self._write_down(ask, part, place)
            yield answer

    def flush(self) -> None: ...
    def close(self) -> None: ...

    def _write_down(self, ask: Ask, packed: Packed, place: int) -> None:
        refused = ""
        try:
            self._policy.check(packed)
        except RefusalError as problem:
            refused = str(problem)
        shapes = {name: tuple(tensor.shape) for name, tensor in packed.tensors.items()}
        upload = Upload(
            self.when, ask.method, packed.kind, packed.nbytes, shapes, sorted(packed.header), refused, place
        )
        # How many rows of an embedding leave depends on the words of a batch: the largest seen is shown.
        for line, other in enumerate(self.seen):
            if _alike(upload, other):
                self.seen[line] = max(upload, other, key=lambda one: one.bytes)
                return
        self.seen.append(upload)


def _alike(one: Upload, other: Upload) -> bool:
    """But for how large they are."""
    plain = [replace(upload, bytes=0, tensors={}) for upload in (one, other)]
    return plain[0] == plain[1] and one.tensors.keys() == other.tensors.keys()
