"""From a config to a federation that can start: corpora read, examples split and partitioned, features made once.

Every process of a run builds the same from the same config; only a learnt vocabulary is an artefact in the run folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from grandrounds.config.schema import Config, SiteSection
from grandrounds.data.corpora import GENERATED, UNLABELLED, Source, check_apart, read_source
from grandrounds.data.documents import Document
from grandrounds.data.labels import LabelMap
from grandrounds.data.masking import mask_overlap
from grandrounds.data.partition import Partition, SiteRow, Unit, partition, share
from grandrounds.errors import ConfigError, DataError, unknown
from grandrounds.federation.contract import Algorithm, Registration
from grandrounds.federation.learner import VALIDATION, LearnerSpec, Split
from grandrounds.federation.outgoing import Step
from grandrounds.federation.payloads import Expected, PublicSet, VocabularyCounts
from grandrounds.federation.policy import Policy
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.runner import SiteData, SiteRunner
from grandrounds.federation.training import Training
from grandrounds.models.word_pieces import by_person
from grandrounds.registry import TASKS
from grandrounds.setup.server import (
    Counting,
    ServerSetup,
    asked,
    documents_of,
    expected_of,
    find_device,
    find_encoder,
    manifest_of,
    paths_of,
    public_set,
    resolved,
    server_splits,
    strip,
    unlabelled_source,
    warmed_up,
)
from grandrounds.simulation.attackers import ATTACKS
from grandrounds.tasks.abilities import KnowsFacts
from grandrounds.tasks.task import Features, Task, no_example, without_patient


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
        )


def prepare(config: Config, base: Path, folder: Path) -> Simulation:
    """Read, split, partition and tokenise; DataError or ConfigError before anything is trained."""
    torch.set_num_threads(config.threads)
    corpora = _Corpora(config, base)
    task = TASKS[config.task["name"]].of(config.task_options(), corpora.training_documents()).at(base)
    examples, left = task.examples(corpora.documents)
    if not examples:
        raise no_example(task, "the corpora hold", left)
    warnings = corpora.warnings + Counter(left)
    warnings.update(without_patient(corpora.training_documents(), config.partition.unit or task.unit))
    rows = _Rows(config, task, corpora, examples)
    if config.data.mask_overlap:
        warnings.update(corpora.mask(config, examples, rows.partition.sites))
        examples = task.examples(corpora.documents)[0]
    if isinstance(task, KnowsFacts):
        examples = task.mark_known(examples, rows.training(config, examples, corpora))
    examples = strip(task, examples, rows.served)
    public = public_set(task, examples, rows.served)
    corpora_encoded = _EncodedCorpora(config, base, folder, task, examples, corpora.documents, rows, public)
    own = corpora_encoded.of(config.model.encoder, config.training)
    algorithm, model = config.make_algorithm(), own.spec.initial_model()
    manifest = manifest_of(model, algorithm)
    table = rows.partition.table(
        [task.answers(example) for example in examples], [str(example.document) for example in examples]
    )
    _check_names(config, rows.partition.sites)
    sites = {}
    for name, members in _pooled(rows.partition.sites, algorithm.pooled).items():
        # Where all data is in one place, no site has anything special.
        about = SiteSection() if algorithm.pooled else config.site(name)
        training = config.training if algorithm.pooled else config.training_at(name)
        theirs = corpora_encoded.of(about.encoder or config.model.encoder, training)
        if config.own_labels:
            theirs = corpora_encoded.own(name, theirs, {"train": members, **rows.at(name)}, corpora)
            shapes = _same_shapes(name, manifest_of(theirs.spec.initial_model(), algorithm), manifest)
            counts, labels = _counts(members, examples, corpora.documents), theirs.spec.task.labels
            sites[name] = SiteData(
                Registration(name, counts, labels, shapes),
                theirs.splits,
                theirs.spec,
                _policy(about, config, base),
                _attack(about),
            )
            continue
        foreign = theirs.spec.encoder is not own.spec.encoder
        shapes = corpora_encoded.manifest(theirs, algorithm) if foreign else manifest
        registration = Registration(name, _counts(members, examples, corpora.documents), task.labels, shapes)
        # The public set is the server's: a site gets it as the federation sends it.
        held = {part: split for part, split in theirs.splits.items() if part != "public"}
        for part, held_rows in {"train": members, **rows.at(name)}.items():
            made = task.rows(theirs.features, np.array(held_rows, dtype=np.int64))
            held[part] = Split(theirs.features, made, documents=documents_of(task, theirs.features, made, examples))
        sites[name] = SiteData(registration, held, theirs.spec, _policy(about, config, base), _attack(about))
    if len(task.labels) > 1:
        _note_single_class(table, warnings)
    expected = expected_of(
        model, manifest, task, (len(public.examples), public.digest) if public else (0, ""), algorithm
    )
    return Simulation(
        own.spec,
        model,
        own.splits,
        public,
        expected,
        table,
        rows.partition.left_out,
        dict(warnings),
        at_sites=rows.at_all_sites(),
        sites=sites,
    )


def held_out(config: Config, base: Path) -> list[Document]:
    """The documents that a run of this config is tested on."""
    corpora = _Corpora(config, base)
    task = TASKS[config.task["name"]].of(config.task_options(), corpora.training_documents()).at(base)
    examples, _ = task.examples(corpora.documents)
    rows = _Rows(config, task, corpora, examples)
    return [corpora.documents[i] for i in sorted({examples[row].document for row in rows.served["test"]})]


@dataclass(frozen=True)
class _EncodedCorpus:
    """How learners with one encoder work, and the data as that encoder reads it."""

    spec: LearnerSpec
    features: Features
    splits: Mapping[str, Split]


class _EncodedCorpora:
    """The corpus, encoded once for each encoder in use; and how learners train with it."""

    def __init__(
        self,
        config: Config,
        base: Path,
        folder: Path,
        task: Task,
        examples: Sequence[Any],
        documents: Sequence[Document],
        rows: _Rows,
        public: PublicSet | None,
    ) -> None:
        self._config, self._base, self._folder = config, base, folder
        self._task, self._examples, self._documents = task, examples, documents
        self._rows, self._public = rows, public
        self._made: dict[str, _EncodedCorpus] = {}
        self._manifests: dict[str, dict[str, tuple[int, ...]]] = {}

    def of(self, encoder: str, training: Training) -> _EncodedCorpus:
        name = resolved(encoder, self._base)
        if name not in self._made:
            self._made[name] = self._make(name)
        made = self._made[name]
        return replace(made, spec=replace(made.spec, training=training))

    def manifest(self, encoded: _EncodedCorpus, algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
        """Shapes of what the algorithm shares; a model is built for them once an encoder."""
        name = encoded.spec.encoder.name
        if name not in self._manifests:
            self._manifests[name] = manifest_of(encoded.spec.initial_model(), algorithm)
        return self._manifests[name]

    def own(
        self, name: str, like: _EncodedCorpus, rows: Mapping[str, Sequence[int]], corpora: _Corpora
    ) -> _EncodedCorpus:
        """A site's, whose label set is that of its own corpus."""
        documents = corpora.documents
        chosen = {part: [self._examples[row] for row in part_rows] for part, part_rows in rows.items()}
        places = [(example.document, example.sentence) for part in chosen.values() for example in part]
        held = sorted({document for document, _ in places})
        learnt = sorted({example.document for part, some in chosen.items() if part != "test" for example in some})
        kind, options = TASKS[self._config.task["name"]], self._config.task_options_at(name)
        task = kind.of(options, [corpora.annotated[i] for i in learnt]).at(self._base)
        found = {(held[e.document], e.sentence): e for e in task.examples([documents[i] for i in held])[0]}
        examples = [found[place] for place in places]
        features = task.features(examples, like.spec.encoder)
        ends, splits = np.cumsum([0, *map(len, rows.values())]), {}
        for part, a, b in zip(rows, ends, ends[1:], strict=False):
            made = task.rows(features, np.arange(a, b))
            splits[part] = Split(features, made, documents=documents_of(task, features, made, examples))
        return _EncodedCorpus(like.spec.with_labels_of(task), features, splits)

    def _make(self, name: str) -> _EncodedCorpus:
        config, task, rows = self._config, self._task, self._rows
        texts = [task.text(self._examples[row]) for row in asked(rows.served)]
        own = name == resolved(config.model.encoder, self._base)
        model = config.model if own else config.model.of_a_site()
        encoder = find_encoder(name, model, self._base, task, texts, self._folder, self._counted)
        features = task.features(self._examples, encoder)
        spec = config.spec(task, encoder, find_device(config.device))
        splits = server_splits(task, self._examples, features, rows.served, self._public)
        if own:
            spec = warmed_up(config, spec, splits, self._folder)
        return _EncodedCorpus(spec, features, splits)

    def _counted(self, count: Counting) -> Mapping[str, int]:
        """What sites would upload for a vocabulary, summed: strings that enough of a site's documents have."""
        least, total = self._config.model.vocabulary_documents, Counter[str]()
        for name, rows in sorted(self._rows.partition.sites.items()):
            texts: dict[int, list[str]] = {}
            for row in rows:
                texts.setdefault(self._examples[row].document, []).append(self._task.text(self._examples[row]))
            owners = (self._documents[i].attributes.get("patient") for i in texts)
            joined = by_person(zip(owners, map("\n".join, texts.values()), strict=True))
            packed = VocabularyCounts(least, count(joined, least)).pack("fp32")
            about = self._config.site(name)
            if about.policy or self._config.federation.policy:
                _policy(about, self._config, self._base).check(packed)
            total.update(VocabularyCounts.unpack(packed, Expected()).counts)
        return total


TRAIN_OF = "site "
PARTS = ("test", "public", "validation", UNLABELLED)
"""The server's, in the order in which shares of train are drawn."""


def _made(site: SiteSection, config: Config) -> Sequence[str]:
    """Parts of a site's own corpus that come without files; a test only where the site has a model of its own."""
    parts = ("train", "test") if config.make_algorithm().personal else ("train",)
    return parts if site.generated else ()


def _part_of(site: str, part: str) -> str:
    return f"{TRAIN_OF}{site}" if part == "train" else f"{part} of {site}"


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


class _Corpora:
    """Documents of all parts end to end, and which of them belong to which part."""

    def __init__(self, config: Config, base: Path) -> None:
        self.warnings: Counter[str] = Counter()
        self.documents: list[Document] = []
        self.parts: dict[str, range] = {}
        data = config.data
        labels = LabelMap(data.map_labels)
        maps = [labels]
        if config.own_corpora:
            for name, site in sorted(config.sites.items()):
                own = labels
                if site.map_labels is not None:
                    own = LabelMap(site.map_labels, f"sites.{name}.map_labels")
                    maps.append(own)
                options = data.options if site.options is None else site.options
                for part in ("train", "validation", "test"):
                    paths = getattr(site, part)
                    if (paths is None and part in _made(site, config)) or isinstance(paths, str | list):
                        format = site.format or data.format
                        source = Source(format, paths_of(paths, base), options, data.lenient, own)
                        self._add(_part_of(name, part), source, part)
        elif data.train is not None or data.format in GENERATED:
            self._add("train", data.source(paths_of(data.train, base), labels))
        else:
            raise ConfigError("data.train is missing: name the corpus to train on, or give [sites.<name>] tables")
        for part in ("public", "validation"):
            value = getattr(data, part)
            if not isinstance(value, float | int):
                self._add(part, data.source(paths_of(value, base), labels))
        test = data.test or None
        each = config.own_corpora and all(site.test or "test" in _made(site, config) for site in config.sites.values())
        if isinstance(test, float | int):
            if config.own_corpora:
                raise ConfigError("data.test is a share, and sites have corpora of their own: name a corpus to test on")
        elif test is not None or data.format in GENERATED:
            self._add("test", data.source(paths_of(test, base), labels))
        else:
            if not each:
                raise ConfigError("data.test is missing: name the corpus to test on, or give a share of train")
        if (unlabelled := unlabelled_source(data, base, labels)) is not None:
            others = list(self.documents)
            self._add(UNLABELLED, unlabelled)
            check_apart(self.documents[len(others) :], others)
        for mapped in maps:
            mapped.check()
        self.annotated: Sequence[Document] = self.documents
        """As they were read, with nothing masked."""

    def _add(self, name: str, source: Source, part: str | None = None) -> None:
        documents = read_source(source, part or name, self.warnings)
        self.parts[name] = range(len(self.documents), len(self.documents) + len(documents))
        self.documents += documents

    def mask(self, config: Config, examples: Sequence[Any], sites: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        """Mask what sites share in the sentences that they train on; nothing else changes, nor any sentence's place."""
        trained: dict[str, dict[int, set[int]]] = {}
        for site, rows in sites.items():
            for row in rows:
                trained.setdefault(site, {}).setdefault(examples[row].document, set()).add(examples[row].sentence)
        self.documents, counted = mask_overlap(self.annotated, trained, config.data.mask_overlap, config.seed)
        return counted

    def training_documents(self) -> list[Document]:
        """What the label set is read from: all but a corpus to test on and unlabelled text; of one that is shared out,
        the whole."""
        labelled = (members for part, members in self.parts.items() if part not in ("test", UNLABELLED))
        return [self.documents[i] for members in labelled for i in members]


class _Rows:
    """Which examples are the server's, and which each site's."""

    def __init__(self, config: Config, task: Task, corpora: _Corpora, examples: Sequence[Any]) -> None:

        def units_of(rows: Sequence[int], unit: str) -> list[Unit]:
            made = task.units([examples[row] for row in rows], corpora.documents, unit)
            return [replace(one, examples=tuple(rows[i] for i in one.examples)) for one in made]

        unit = config.partition.unit or task.unit
        by_part: dict[str, Sequence[Unit]] = {}
        for source, members in corpora.parts.items():
            # By themselves: a patient of two corpora must not carry one's examples, say of the test, into the other.
            rows = [row for row, example in enumerate(examples) if example.document in members]
            by_part[source] = units_of(rows, task.whole)
        self._own: dict[str, dict[str, list[int]]] = {name: {} for name in config.sites if config.own_corpora}
        for name in self._own:
            for own in ("validation", "test"):
                if (key := _part_of(name, own)) in by_part:
                    self._own[name][own] = _examples(by_part.pop(key))
        given = {part: list(by_part.pop(part)) for part in PARTS if part in by_part}
        left = dict.fromkeys(by_part, 1.0)
        for part in PARTS:
            shared, of_all = part not in given, getattr(config.data, part)
            given.setdefault(part, [])
            for source, units in by_part.items():
                if not units:
                    continue  # a site without examples has nothing to share, and is left out later
                site = source.removeprefix(TRAIN_OF)
                of_site = getattr(config.sites[site], part, None) if site in self._own else None
                fraction = of_site if isinstance(of_site, float) else float(of_all or 0.0) if shared else 0.0
                # A share of train as it was, though other parts have already been taken out; tests of several
                # seeds are of the same examples.
                seed = 0 if part == "test" else config.seed
                taken, by_part[source] = share(units, fraction / left[source], seed, part)
                left[source] -= fraction
                # Only a site knows its labels, so what it is validated on stays there.
                if isinstance(of_site, float) or (part == VALIDATION and config.own_labels):
                    self._own[site].setdefault(part, _examples(taken))
                else:
                    given[part] += taken
        self.served: Mapping[str, Sequence[int]] = {part: _examples(units) for part, units in given.items()}
        """The server's, by part."""
        if UNLABELLED in corpora.parts and not self.served[UNLABELLED]:
            raise DataError(f"data.unlabelled holds no example of {task.name}: it needs marked mentions to ask about")
        if not self.served["test"] and "test" not in self.at_all_sites():
            raise DataError(f"the test corpus holds no example of {task.name}")
        if config.data.train_share < 1:
            kept = {
                part: share(units, config.data.train_share, config.seed, "train")[0]
                for part, units in by_part.items()
                if units
            }
            by_part = {**by_part, **kept}
        if not any(by_part.values()):
            raise DataError(
                f"no training example is left for the sites: the corpus holds {len(examples)} examples of {task.name}; "
                "check data.train, and the shares data.public and data.validation"
            )
        if task.whole != unit:
            by_part = {part: units_of(_examples(units), unit) for part, units in by_part.items()}
        self.partition = _deal(config, by_part)

    def at(self, site: str) -> Mapping[str, Sequence[int]]:
        """What a site has for itself beside its training data."""
        return {part: rows for part, rows in self._own.get(site, {}).items() if rows}

    def at_all_sites(self) -> frozenset[str]:
        """Parts that every site has for itself."""
        parts = [frozenset(self.at(site)) for site in self._own]
        return frozenset.intersection(*parts) if parts else frozenset()

    def training(self, config: Config, examples: Sequence[Any], corpora: _Corpora) -> list[Document]:
        """The documents that sites train on, and the server's where it trains."""
        served = self.served["public"] if config.model.warm_up or config.needs_public else []
        held = {examples[row].document for rows in (*self.partition.sites.values(), served) for row in rows}
        return [corpora.documents[i] for i in sorted(held)]


def _deal(config: Config, by_part: Mapping[str, Sequence[Unit]]) -> Partition:
    if config.own_corpora:
        sites = {part.removeprefix(TRAIN_OF): tuple(_examples(units)) for part, units in sorted(by_part.items())}
        empty = tuple(name for name, rows in sites.items() if not rows)
        return Partition("sites", {name: rows for name, rows in sites.items() if rows}, empty)
    chosen = config.partition
    return partition(
        by_part["train"],
        chosen.scheme,
        sites=chosen.sites,
        seed=config.seed,
        by=chosen.by,
        alpha=chosen.alpha,
        entropy=chosen.entropy,
        edges=chosen.edges,
    )


def _pooled(sites: Mapping[str, Sequence[int]], pooled: bool) -> Mapping[str, Sequence[int]]:
    """All data at the first site, which keeps its name: so one site's federation draws the same random numbers."""
    return {min(sites): sorted(row for rows in sites.values() for row in rows)} if pooled else sites


def _counts(rows: Sequence[int], examples: Sequence[Any], documents: Sequence[Document]) -> dict[str, int]:
    held = {examples[row].document for row in rows}
    counts = {"examples": len(rows), "notes": len(held)}
    patients = {documents[i].attributes.get("patient") for i in held}
    return counts if None in patients else {**counts, "patients": len(patients)}


def _examples(units: Sequence[Unit]) -> list[int]:
    return sorted(row for unit in units for row in unit.examples)


def _policy(about: SiteSection, config: Config, base: Path) -> Policy:
    path = about.policy or config.federation.policy
    return Policy.load(base / path) if path else Policy()


def _attack(about: SiteSection) -> Step | None:
    return ATTACKS.get(about.attack)


def _note_single_class(table: Sequence[SiteRow], warnings: Counter[str]) -> None:
    single = sum(len(row.labels) == 1 for row in table)
    if single:
        warnings["sites whose examples are all of one class"] = single
