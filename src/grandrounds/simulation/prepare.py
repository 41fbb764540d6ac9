"""From a config to a federation that can start: corpora read, examples split and partitioned, features made once.

Every process of a run builds the same from the same config; only a learnt vocabulary is an artefact in the run folder.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import torch
from torch import nn

from grandrounds.config.schema import Config, SiteSection
from grandrounds.data.corpora import GENERATED, UNLABELLED
from grandrounds.data.documents import Document
from grandrounds.data.masking import mask_overlap
from grandrounds.data.partition import SiteRow
from grandrounds.errors import ConfigError, unknown
from grandrounds.federation.contract import Algorithm, Registration
from grandrounds.federation.learner import LearnerSpec, Split
from grandrounds.federation.payloads import Expected, VocabularyCounts
from grandrounds.federation.policy import Policy
from grandrounds.federation.privacy.ledger import SpendingLedger
from grandrounds.federation.privacy.runner import PrivacyRunner
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.privacy.site import check_patients, from_the_seed
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.runner import SiteData, SiteRunner
from grandrounds.federation.training import Training
from grandrounds.models.word_pieces import by_person
from grandrounds.registry import TASKS
from grandrounds.setup.corpora import Corpora
from grandrounds.setup.encoders import Counting, find_encoder, resolved
from grandrounds.setup.examples import EncodedExamples, Examples, Rows
from grandrounds.setup.server import ServerSetup, find_device, manifest_of, set_up, warmed_up
from grandrounds.simulation.assignment import Assignment
from grandrounds.simulation.attackers import MISLABEL, attack_of, mislabelled
from grandrounds.simulation.sources import read_corpora
from grandrounds.tasks.abilities import KnowsFacts, PartlyAnnotated
from grandrounds.tasks.saved import Trained
from grandrounds.tasks.task import Example, no_example, without_patient

PRIVACY = "privacy"
"""The folder of sites' ledgers in a run's."""
if TYPE_CHECKING:  # it needs the package cryptography
    from grandrounds.federation.secure.site import SecureSite


@dataclass(frozen=True)
class Simulation(ServerSetup):
    """A federation on one machine, ready for round 1."""

    sites: Mapping[str, SiteData] = field(default_factory=dict)

    def runner(self, config: Config, folder: Path, memory: int, model: nn.Module | None = None) -> SiteRunner:
        return SiteRunner(
            config.make_algorithm(),
            self.sites,
            self.expected,
            PrivateStore(folder / "private", memory),
            config.federation.compression,
            config.digest(),
            folder / "models",
            PublicSetCache(folder / "public"),
            {} if model is None else {self.spec.model_key: model},
            privacy=privacy_runner(config, folder),
            secure=_secure_sites(config, folder / "secure" if memory == 0 else None),
            error_feedback=config.federation.error_feedback,
        )


def privacy_runner(config: Config, folder: Path) -> PrivacyRunner | None:
    """What simulated sites spend; their noise comes from the seed, so that runs can be repeated."""
    if (plan := config.privacy_plan) is None:
        return None

    return PrivacyRunner(plan, cache(partial(_ledger, folder, plan.unit)), from_the_seed(config.seed))


def spent_by(config: Config, folder: Path) -> Callable[[str], float] | None:
    """Epsilon that a simulated site has spent so far."""
    if (plan := config.privacy_plan) is None:
        return None
    return lambda site: round(_ledger(folder, plan.unit, site).epsilon(plan.settings.delta), 4)


def _ledger(folder: Path, unit: Unit, site: str) -> SpendingLedger:
    return SpendingLedger(folder / PRIVACY / f"{quote(site, safe=' ')}.jsonl", unit, repeatable=True)


def _secure_sites(config: Config, folder: Path | None) -> SecureSite | None:
    """Simulated sites of secure sums; `folder` is where several processes find their secrets."""
    if (settings := config.secure_settings) is None:
        return None
    from grandrounds.federation.secure.randomness import from_the_seed
    from grandrounds.federation.secure.site import SecureSite
    from grandrounds.federation.secure.store import InMemory, OnDisk

    store = InMemory() if folder is None else OnDisk(folder, replies=False)
    return SecureSite(settings, store, from_the_seed(config.seed))


@contextmanager
def _without_collector() -> Iterator[None]:
    """A corpus is millions of objects without cycles, which Python's collector would look through again and again."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@_without_collector()
def prepare(config: Config, base: Path, folder: Path) -> Simulation:
    """Read, split, partition and tokenise; DataError or ConfigError before anything is trained."""
    torch.set_num_threads(config.threads)
    corpora, examples, assignment = _assigned(config, base)
    annotated, examples = corpora.documents, _adapted(config, examples, assignment, corpora.warnings)
    encoded = _EncodedCorpora(config, base, folder, examples, annotated, assignment)
    own, algorithm = encoded.of(config.model.encoder, config.training), config.make_algorithm()
    server = set_up(own.spec, own.splits, examples.public_set(assignment.served), algorithm, corpora.warnings)
    parts = assignment.partition
    _check_names(config, parts.sites)
    held = _pooled(parts.sites, algorithm.pooled)
    sites = {name: encoded.site(name, rows, server, algorithm) for name, rows in held.items()}
    table = parts.table(examples.answers(), [str(example.document) for example in examples.all])
    server = replace(
        server,
        table=table,
        left_out=parts.left_out,
        warnings={**server.warnings, **_single_class(table, len(examples.task.labels))},
        at_sites=assignment.at_all_sites(),
    )
    return Simulation(**vars(server), sites=sites)


def check_partition(config: Config, base: Path) -> None:
    """DataError or ConfigError where the corpus can't be read, or partitioned so."""
    _assigned(config, base)


def held_out(config: Config, base: Path) -> list[Document]:
    """The documents that a run of this config is tested on."""
    corpora, examples, assignment = _assigned(config, base)
    return [corpora.documents[i] for i in sorted({examples.all[row].document for row in assignment.served["test"]})]


def _assigned(config: Config, base: Path) -> tuple[Corpora, Examples, Assignment]:
    corpora = read_corpora(config, base)
    labelled = corpora.labelled()
    task = config.make_task(labelled, base)
    found, left_out = task.examples(corpora.documents)
    if not found:
        raise no_example(task, "the corpora hold", left_out)
    corpora.warnings.update(left_out)
    corpora.warnings.update(without_patient(labelled, config.partition.unit or task.unit))
    examples = Examples(task, corpora.documents, found)
    return corpora, examples, Assignment(config, corpora.parts, examples)


def _adapted(config: Config, examples: Examples, assignment: Assignment, warnings: Counter[str]) -> Examples:
    """The examples, in which what sites share is masked, known facts are marked and unlabelled text has no label; no
    sentence's place changes."""
    task = examples.task
    if config.data.mask_overlap:
        trained: dict[str, dict[int, set[int]]] = {}
        for site, rows in assignment.partition.sites.items():
            for example in (examples.all[row] for row in rows):
                trained.setdefault(site, {}).setdefault(example.document, set()).add(example.sentence)
        masked, counted = mask_overlap(examples.documents, trained, config.data.mask_overlap, config.seed)
        warnings.update(counted)
        examples = Examples(task, masked, task.examples(masked)[0])
    wrong = {
        row for site, rows in assignment.partition.sites.items() if config.site(site).attack == MISLABEL for row in rows
    }
    if wrong and not config.make_algorithm().pooled:
        documents = mislabelled(task, examples.documents)
        others = task.examples(documents)[0]
        examples = replace(examples, all=[others[row] if row in wrong else one for row, one in enumerate(examples.all)])
    if isinstance(task, PartlyAnnotated):
        examples = replace(examples, all=_as_annotated(task, config, examples.all, assignment))
    if isinstance(task, KnowsFacts):
        examples = replace(examples, all=task.mark_known(examples.all, assignment.training_documents(examples)))
    return examples.without_labels(assignment.served[UNLABELLED])


def _as_annotated(
    task: PartlyAnnotated, config: Config, examples: Sequence[Example], assignment: Assignment
) -> Sequence[Example]:
    """The examples, of which those of a site have what it annotates."""
    made = list(examples)
    for site, rows in assignment.partition.sites.items():
        options = config.task_options_at(site)
        for row in chain(rows, *assignment.at(site).values()):
            made[row] = task.as_annotated(made[row], options)
    return made


@dataclass(frozen=True)
class _Encoded:
    """How learners with one encoder work, and the data as that encoder reads it."""

    spec: LearnerSpec
    examples: EncodedExamples
    splits: Mapping[str, Split]
    """The server's."""


class _EncodedCorpora:
    """The corpus, encoded once for each encoder in use; and how learners train with it."""

    def __init__(
        self,
        config: Config,
        base: Path,
        folder: Path,
        examples: Examples,
        annotated: Sequence[Document],
        assignment: Assignment,
    ) -> None:
        """`annotated` are the documents as they were read, with nothing masked."""
        self._config, self._base, self._folder = config, base, folder
        self._examples, self._annotated, self._assignment = examples, annotated, assignment
        self._made: dict[str, _Encoded] = {}
        self._manifests: dict[str, dict[str, tuple[int, ...]]] = {}

    def of(self, encoder: str, training: Training) -> _Encoded:
        name = resolved(encoder, self._base)
        if name not in self._made:
            self._made[name] = self._make(name)
        made = self._made[name]
        return replace(made, spec=replace(made.spec, training=training))

    def site(self, name: str, members: Sequence[int], server: ServerSetup, algorithm: Algorithm) -> SiteData:
        """A simulated site. Where all data is in one place, no site has anything special."""
        config = self._config
        about = SiteSection() if algorithm.pooled else config.site(name)
        training = config.training if algorithm.pooled else config.training_at(name)
        theirs = self.of(about.encoder or config.model.encoder, training)
        spec, shapes = theirs.spec, server.expected.manifest
        rows = {"train": members, **self._assignment.at(name)}
        if config.own_labels:
            own = self._own_labels(name, rows)
            spec = replace(spec.with_labels_of(own.task), trained=_trained(config, about))
            shapes = _same_shapes(name, manifest_of(spec.initial_model(), algorithm), shapes)
            encoded, ends = own.encode(spec.encoder), [0]
            for some in rows.values():
                ends.append(ends[-1] + len(some))
            splits = {part: encoded.split(range(a, b)) for part, a, b in zip(rows, ends, ends[1:], strict=False)}
        else:
            if spec.encoder is not server.spec.encoder:
                shapes = self._manifest(spec, algorithm)
            spec = spec if about.lora_rank is None else spec.with_rank(about.lora_rank)
            # The public set is the server's: a site gets it as the federation sends it.
            splits = {part: split for part, split in theirs.splits.items() if part != "public"}
            splits |= {part: theirs.examples.split(some) for part, some in rows.items()}
        check_patients(config.privacy_plan, splits["train"].patients is not None, name)
        policy, counts = self._policy(about) or Policy(), self._examples.counts(members)
        if (privacy := privacy_runner(config, self._folder)) is not None:
            counts = privacy.registered(name, config.digest(), counts, policy)
        registration = Registration(name, counts, spec.task.labels, shapes)
        return SiteData(registration, splits, spec, policy, attack_of(about.attack))

    def _manifest(self, spec: LearnerSpec, algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
        """Shapes of what the algorithm shares; a model is built for them once an encoder."""
        name = spec.encoder.name
        if name not in self._manifests:
            self._manifests[name] = manifest_of(spec.initial_model(), algorithm)
        return self._manifests[name]

    def _own_labels(self, name: str, rows: Rows) -> Examples:
        """These examples, part after part, of a site whose label set is that of its own corpus."""
        chosen = {part: [self._examples.all[row] for row in some] for part, some in rows.items()}
        places = [(example.document, example.sentence) for some in chosen.values() for example in some]
        held = sorted({document for document, _ in places})
        learnt = sorted({example.document for part, some in chosen.items() if part != "test" for example in some})
        kind, options = TASKS[self._config.task["name"]], self._config.task_options_at(name)
        task = kind.of(options, [self._annotated[i] for i in learnt]).at(self._base)
        documents = [self._examples.documents[i] for i in held]
        found = {(held[e.document], e.sentence): e for e in task.examples(documents)[0]}
        return Examples(task, documents, [found[place] for place in places])

    def _make(self, name: str) -> _Encoded:
        config, examples, served = self._config, self._examples, self._assignment.served
        own = name == resolved(config.model.encoder, self._base)
        model = config.model if own else config.model.of_a_site()
        texts = examples.public_texts(served)
        encoder = find_encoder(name, model, self._base, examples.task, texts, self._folder, self._counted)
        encoded = examples.encode(encoder)
        spec = replace(config.spec(examples.task, encoder, find_device(config.device)), trained=_trained(config))
        splits = encoded.server_splits(served, examples.public_set(served))
        if own:
            spec = warmed_up(config, spec, splits, self._folder)
        return _Encoded(spec, encoded, splits)

    def _counted(self, count: Counting) -> Mapping[str, int]:
        """What sites would upload for a vocabulary, summed: strings that enough of a site's documents have."""
        least, total, examples = self._config.model.vocabulary_documents, Counter[str](), self._examples
        for name, rows in sorted(self._assignment.partition.sites.items()):
            texts: dict[int, list[str]] = {}
            for example in (examples.all[row] for row in rows):
                texts.setdefault(example.document, []).append(examples.task.text(example))
            owners = (examples.documents[i].attributes.get("patient") for i in texts)
            joined = by_person(zip(owners, map("\n".join, texts.values()), strict=True))
            packed = VocabularyCounts(least, count(joined, least)).pack("fp32")
            if (policy := self._policy(self._config.site(name))) is not None:
                policy.check(packed)
            total.update(VocabularyCounts.unpack(packed, Expected()).counts)
        return total

    def _policy(self, about: SiteSection) -> Policy | None:
        path = about.policy or self._config.federation.policy
        return Policy.load(self._base / path) if path else None


def _same_shapes(
    site: str, theirs: Mapping[str, tuple[int, ...]], elsewhere: Mapping[str, tuple[int, ...]]
) -> Mapping[str, tuple[int, ...]]:
    for name, shape in elsewhere.items():
        if theirs.get(name) != shape:
            raise ConfigError(
                f"'{name}' is shared, but has the shape {theirs.get(name)} at '{site}' and {shape} elsewhere: "
                "name what it is a part of in algorithm.private"
            )
    return theirs


def _check_names(config: Config, sites: Iterable[str]) -> None:
    taken = {config.table_of(name) for name in sites}
    for table in config.sites:
        if config.own_corpora or table in taken:
            continue
        if any(fnmatchcase(name, table) for name in sites):
            raise ConfigError(f"[sites.{table}] has no effect: every site that it fits has a table that fits it better")
        raise ConfigError(f"[sites.{table}] fits no site: {unknown('site', table, sites)}")


def _trained(config: Config, site: SiteSection | None = None) -> Trained | None:
    """How train is read, or a site's own; several corpora may each be read in their own way."""
    if config.own_corpora and site is None:
        return None
    format = config.data.format if site is None else site.format or config.data.format
    options = config.data.options if site is None or site.options is None else site.options
    return None if format in GENERATED else Trained(format, options)


def _pooled(sites: Mapping[str, Sequence[int]], pooled: bool) -> Mapping[str, Sequence[int]]:
    """All data at the first site, which keeps its name: so one site's federation draws the same random numbers."""
    return {min(sites): sorted(row for rows in sites.values() for row in rows)} if pooled else sites


def _single_class(table: Sequence[SiteRow], classes: int) -> dict[str, int]:
    single = sum(len(row.labels) == 1 for row in table) if classes > 1 else 0
    return {"sites whose examples are all of one class": single} if single else {}
