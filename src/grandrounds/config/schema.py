"""A run's config: TOML with `key=value` overrides, validated before anything is computed.

Unknown keys are refused, and the nearest known one is suggested.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

import tomli_w
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grandrounds.config.overrides import parse_override
from grandrounds.config.validation import explained, leaves, unknown_key
from grandrounds.data.corpora import GENERATED, Source
from grandrounds.data.documents import Document
from grandrounds.data.labels import LabelMap
from grandrounds.data.partition import SCHEMES, UNITS
from grandrounds.data.structural_entropy import READINGS
from grandrounds.errors import ConfigError, unknown
from grandrounds.federation.contract import Algorithm, make_algorithm
from grandrounds.federation.learner import LearnerSpec
from grandrounds.federation.payloads import Compression
from grandrounds.federation.privacy import combinations as with_privacy
from grandrounds.federation.privacy.accounting import check_installed
from grandrounds.federation.privacy.settings import Plan, Privacy, Unit
from grandrounds.federation.privacy.site import noise_of
from grandrounds.federation.robust import Aggregate, Rule
from grandrounds.federation.secure import combinations as with_secure
from grandrounds.federation.secure.noise import SharedNoise
from grandrounds.federation.secure.settings import SecureSettings
from grandrounds.federation.training import ServerTraining, Training
from grandrounds.models.encoder import Encoder
from grandrounds.models.lora import Lora
from grandrounds.registry import ALGORITHMS, FORMATS, TASKS, load_modules, not_registered
from grandrounds.tasks.abilities import Distillable, OwnLabels, PartlyAnnotated, PrivateParts, require
from grandrounds.tasks.task import ExtractionTask, Task

Paths = str | list[str]
SHAPES = ("layers", "width", "heads", "pieces", "dropout")
"""Options of [model] that are of the encoder `new`, and the first of a pretrained one, too."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(Section):
    """[data]: where the text is. Paths are relative to the config, or to --data."""

    format: str = "json"
    """The format of the files, such as pubtator, brat or conll; synthetic needs no files."""
    train: Paths | None = None
    """A file, a folder or a list: what is partitioned over simulated sites."""
    train_share: float = Field(1.0, gt=0, le=1)
    """The share of train that sites get, after public and validation are taken out; drawn by the seed."""
    mask_overlap: float = Field(0.0, ge=0, le=1)
    """The share of entities common to several sites that is masked in their training data, drawn by the seed; only in
    simulations."""
    public: float | Paths = 0.0
    """A share of train, or a file: the server's labelled set."""
    validation: float | Paths = 0.0
    """A share of train, or a file: chooses the best round. Without it the last round counts."""
    test: float | Paths | None = None
    """A file, or a share of train, the same for every seed: what the model is scored on."""
    unlabelled: float | Paths = 0.0
    """Unlabelled text for the public set: a share of train, which is taken from the sites, or a file."""
    unlabelled_format: str | None = None
    """The format of that file, if it differs from `format`."""
    unlabelled_options: dict[str, Any] | None = None
    """Options that differ for it. A generated format, such as synthetic, needs only these and no file."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The reader's own options."""
    lenient: bool = False
    """Leave out what breaks the format, and count it, instead of refusing the corpus."""
    map_labels: dict[str, str] = Field(default_factory=dict)
    """Other names for types of mentions and relations, or "" to drop them; the same for every task."""

    def source(self, paths: Sequence[Path], labels: LabelMap) -> Source:
        """The corpus of these files, read as this section says."""
        return Source(self.format, paths, self.options, self.lenient, labels)

    @property
    def unlabelled_corpus(self) -> bool:
        """Whether unlabelled text comes as a corpus of its own."""
        if isinstance(self.unlabelled, str | list):
            return True
        said = self.unlabelled_format is not None or self.unlabelled_options is not None
        return said and (self.unlabelled_format or self.format) in GENERATED

    @property
    def has_unlabelled(self) -> bool:
        return self.unlabelled_corpus or bool(self.unlabelled)


class Partitioning(Section):
    """[partition]: how train is partitioned over simulated sites."""

    scheme: str = "iid"
    """iid, by (an attribute), dirichlet (skewed labels), quantity (skewed sizes), time, structural_entropy."""
    sites: int | None = Field(None, ge=1)
    """The number of sites; with the scheme "by" there is one for each value of the attribute."""
    by: str | None = None
    """With the scheme "by", the attribute that names a document's site; with "time", the one that has its date, by
    default `date`."""
    alpha: float | None = Field(None, gt=0)
    """Alpha of the Dirichlet distribution: the smaller, the more skewed the labels, or with "quantity" the sizes."""
    entropy: str | None = None
    """Which H, with structural_entropy: "paper" (default) or "code", as in FedLCC's public code."""
    edges: list[float] | None = None
    """The boundaries of H between sites, instead of equal widths."""
    unit: str | None = None
    """What is never split between sites: example, sentence, document, patient, pair."""


class Model(Section):
    """[model]: what is trained."""

    encoder: str = "tiny"
    """A hub name, a folder, "tiny" or "new" from scratch, or "words", one vector per word, for convolutions."""
    vectors: str | None = None
    """Word vectors, GloVe text or word2vec binary, for the encoder `words`."""
    vocabulary: str | None = None
    """Where the vocabulary comes from. For `words`: "public", the public text, "vectors", those of model.vectors, or
    "both", the default if there are vectors. For `new`: "public". For both encoders also a file with one word or word
    piece per line or, in a simulation, "sites": learnt from the sites' counts, as `grandrounds vocabulary` does between
    hosts. For a pretrained encoder in masked_lm, the text that gives a new head the frequencies of word pieces:
    "public" or, in a simulation, "sites"."""
    vocabulary_documents: int = Field(5, ge=1)
    """With "sites": a string is counted if it occurs in at least this many of a site's documents."""
    most_words: int = Field(50_000, ge=100)
    """How many of the vectors' words to use, the first of the file, which are the most common; all of them are sent."""
    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Attention dropout instead of the encoder's own; 0 saves up to 40% of a step on a CPU, where it is slow."""
    freeze: list[str] = Field(default_factory=list)
    """Parts that are not trained and so are not sent, by a name that their parameters contain, such as "embeddings".
    The rows of a table of word pieces that training has changed show which word pieces a site's text has."""
    layers: int | None = Field(None, ge=1)
    """Layers of the encoder `new`, by default 4; of a pretrained encoder the first ones to use, by default all."""
    width: int | None = Field(None, ge=8)
    """The width of the encoder `new`, by default 256. The next three are also for `new`."""
    heads: int | None = Field(None, ge=1)
    """Attention heads; by default one per 64 of the width."""
    pieces: int | None = Field(None, ge=100)
    """The number of word pieces to learn from public text; by default 8000."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """By default 0.1, as in BERT."""
    warm_up: int = Field(0, ge=0)
    """Epochs on the server's public set before round 1; every learner starts from the result. It helps `tiny`, which is
    not pretrained."""
    parameter_efficient: Literal["off", "lora"] = "off"
    """Low-rank adapters: the encoder is frozen; only the adapters and the head are trained and sent."""
    lora_rank: int = Field(8, ge=1)
    """The rank of each adapter."""
    lora_alpha: float = Field(16.0, gt=0, allow_inf_nan=False)
    """Adapters are scaled by alpha / rank."""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the adapters' input."""
    lora_modules: list[str] = Field(["query", "value"], min_length=1)
    """The linear layers of the encoder that get an adapter, by the end of their name; `query`, `key` and `value` also
    work for DistilBERT and DeBERTa, which use other names."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "parameter_efficient" not in self.model_fields_set:  # an arm of a comparison may say 'off'
            for key, field in Model.model_fields.items():
                if key.startswith("lora_") and getattr(self, key) != field.default:
                    raise ConfigError(f"model.{key} is for adapters: set model.parameter_efficient = 'lora' too")
        return self

    def of_a_site(self) -> Model:
        """For an encoder of a site's own: shapes are the federation's encoder's."""
        return self.model_copy(update=dict.fromkeys(SHAPES))

    def lora(self) -> Lora | None:
        if self.parameter_efficient == "off":
            return None
        return Lora(self.lora_rank, self.lora_alpha, self.lora_dropout, tuple(self.lora_modules))


class Rounds(Section):
    """[federation]: rounds, sites and messages."""

    rounds: int = Field(10, ge=1)
    """The number of rounds; more can be added to a finished run with --resume."""
    fraction: float = Field(1.0, gt=0, le=1)
    """The share of sites asked in each round."""
    min_replies: int = Field(1, ge=1)
    """With fewer good replies a round is abandoned and all states are restored."""
    weight_by: Literal["examples", "uniform", "patients", "notes"] | None = None
    """What the weights of sites in a mean are proportional to; by default as in the algorithm's paper."""
    largest_share: float = Field(0.5, gt=0, le=1)
    """The most that one site may weigh in a mean over three or more sites. A larger share is clipped, and a message
    says so; 1 clips nothing."""
    aggregate: Aggregate = "mean"
    """What becomes of the sites' replies: their weighted mean, or a rule that a few wrong or hostile sites can't lead
    away. "norm_bound": the weighted mean of updates that are cut to a largest norm; "median" and "trimmed": for each
    number the median, or the mean without the extremes; "krum": Multi-Krum, the mean of the replies nearest to their
    neighbours. The last three count every site alike."""
    byzantine: float = Field(0.2, ge=0, lt=0.5)
    """The share of replies that is assumed to be wrong: "trimmed" leaves it out at each end, "krum" altogether."""
    krum_keep: int | None = Field(None, ge=1)
    """How many replies "krum" averages; by default all but the share above. 1 is Krum."""
    norm_bound: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The largest norm of an update with "norm_bound"; by default the median of those that came, times the next key."""
    norm_multiple: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Times the median norm."""
    outlier: float = Field(10.0, gt=1, allow_inf_nan=False)
    """With any rule but "mean", an update of more than so many times the median norm is logged as an outlier."""
    leave_out_after: int = Field(3, ge=0)
    """A site is asked no more once it was an outlier in so many rounds, and the log says so; 0: it is always asked.
    Half of the sites at least are always asked."""
    compression: Compression = "fp32"
    """The compression of uploads. With "int8" weights and gradients travel as differences in a byte each, weights on
    their way down, too."""
    error_feedback: bool = True
    """With "int8": what rounding takes from weights or gradients stays at the site, and is added to its next upload."""
    secure: bool = False
    """Secure aggregation: what is averaged leaves a site masked, and the coordinator learns the weighted mean alone.
    Needs `grandrounds[secure]`."""
    secure_threshold: float = Field(0.5, ge=0.5, lt=1)
    """More than this share of the sites that began a secure sum must be there at its end, or the round is abandoned. Of
    n sites, let t be the first number above this share: t of them must collude to open another's upload, or 2 t - n
    with a coordinator that lies about who stayed. 0.67 stands a third of the sites."""
    evaluate_every: int = Field(1, ge=1)
    """Rounds between evaluations."""
    evaluate_on: list[Literal["validation", "test"]] = ["validation", "test"]
    """What each evaluation scores; the test is scored at the end in any case."""
    early_stopping: int = Field(0, ge=0)
    """Stop after this many evaluations without a better validation F1, or AUC if answers are ranked; 0: never."""
    stop_at_f1: float = Field(0.0, ge=0, le=1)
    """Stop once the test F1 reaches this, to count the rounds to a target as papers do; 0: never."""
    checkpoint_every: int = Field(1, ge=1)
    """Rounds between checkpoints, from which --resume continues."""
    keep_models: bool = False
    """Save the model of each round beside the selected one: models/round-00001 and so on; round-00000 is the start."""
    deadline: float = Field(3600.0, gt=0)
    """Between hosts: seconds that a site has to answer."""
    absence: float = Field(180.0, gt=0)
    """Between hosts: seconds that a site may be disconnected before an exchange continues without it."""
    share_model: bool = True
    """Between hosts: after the last round, send each site the selected model, unless sites have models of their own."""
    policy: str | None = None
    """A policy file for every simulated site."""

    def rule(self) -> Rule:
        return Rule(
            aggregate=self.aggregate,
            byzantine=self.byzantine,
            krum_keep=self.krum_keep,
            norm_bound=self.norm_bound,
            norm_multiple=self.norm_multiple,
            outlier=self.outlier,
        )


class RaySection(Section):
    """With runtime = "ray"."""

    address: str = "local"
    """The cluster: "auto" is the one of this machine, HOST:PORT another; "local" starts one here, for this run alone.
    Corpora, encoder and run folder must be at the same paths on every node."""


class SiteSection(Section):
    """[sites.<name>]: a simulated site with its own corpus. If no table has a corpus: settings of sites of the
    partition, by name or pattern ("site-0*")."""

    train: Paths | None = None
    """The site's own corpus."""
    validation: float | Paths | None = None
    """The same for choosing the best round."""
    test: float | Paths | None = None
    """A file, or a share of its train, on which the site's own model is tested; for algorithms that give each site its
    own model."""
    format: str | None = None
    """The format of its files, if it differs. A generated one (`synthetic`) needs no train and has its own test."""
    options: dict[str, Any] | None = None
    """Options of the reader, instead of data.options."""
    map_labels: dict[str, str] | None = None
    """Instead of data.map_labels: a site may call the same things otherwise."""
    task: dict[str, Any] = Field(default_factory=dict)
    """Settings of [task] that differ here: what of it is annotated (`joint`) or, for algorithms that let label sets
    differ, labels, a tag scheme."""
    policy: str | None = None
    """A policy file for this site."""
    encoder: str | None = None
    """The site's own encoder, for algorithms that share no weights."""
    lora_rank: int | None = Field(None, ge=1)
    """The rank of this site's adapters instead of model.lora_rank, for `flora`."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Settings of [training] that differ here: another encoder may need another learning rate."""
    attack: Literal["none", "mislead", "unbounded", "scale", "flip", "substitute", "noise", "reverse", "mislabel"] = (
        "none"
    )
    """Simulate an attacker: what it uploads is not what it computed, or, with "mislabel", it trains on wrong labels."""

    @property
    def generated(self) -> bool:
        return self.format in GENERATED

    @property
    def has_corpus(self) -> bool:
        return self.train is not None or self.generated


class Config(Section):
    seed: int = 1
    """All random draws are derived from it."""
    imports: list[str] = []
    """Modules that register your own algorithms, tasks or formats; workers import them, too."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where models are trained; auto uses a GPU if there is one."""
    threads: int = Field(1, ge=1)
    """Threads per process; part of what makes results repeatable to the bit."""
    workers: int = Field(1, ge=1)
    """Processes that simulate sites; the result has the same bits for any number."""
    runtime: Literal["processes", "ray"] = "processes"
    """Where they run: on this machine, or on a Ray cluster. The result has the same bits. Needs `grandrounds[ray]`."""
    ray: RaySection = RaySection()
    task: dict[str, Any] = Field(default_factory=lambda: {"name": "sentence_re"})
    """The name of the task, and its own options."""
    data: Data = Data()
    partition: Partitioning = Partitioning()
    sites: dict[str, SiteSection] = Field(default_factory=dict)
    model: Model = Model()
    training: Training = Training()
    server: ServerTraining = ServerTraining()
    federation: Rounds = Rounds()
    algorithm: dict[str, Any] = Field(default_factory=lambda: {"name": "fedavg"})
    """The name of the algorithm, and its own options."""
    privacy: Privacy = Privacy()
    compare: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """[compare.<name>]: overrides for that arm of `compare`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        formats = [*FORMATS, *GENERATED]
        _known("data.format", self.data.format, formats, "format")
        for name, site in self.sites.items():
            _known(f"sites.{name}.format", site.format or self.data.format, formats, "format")
        self._check_generated()
        self._check_shares()
        self._check_unlabelled()
        _known("partition.scheme", self.partition.scheme, SCHEMES)
        _known("partition.entropy", self.partition.entropy or "paper", READINGS)
        _known("partition.unit", self.partition.unit or "example", UNITS)
        _known("task.name", self.task.get("name", ""), TASKS, "task")
        self.task_options()
        self._check_algorithm()
        if self.runtime != "ray" and self.ray != RaySection():
            raise ConfigError("ray.address has no effect without runtime = 'ray'")
        for name, site in self.sites.items():
            self.training_at(name)
            for key in ("format", "options", "map_labels", "validation", "test"):
                if getattr(site, key) is not None and not site.has_corpus:
                    raise ConfigError(f"sites.{name}.{key} is of the site's own corpus: give sites.{name}.train too")
            self._check_own(name, site)
        lacking = [name for name, site in self.sites.items() if not site.has_corpus]
        if lacking and len(lacking) < len(self.sites):
            raise ConfigError(f"sites.{lacking[0]} has no train, as other sites do: give every site a corpus, or none")
        return self

    def _check_generated(self) -> None:
        """Else the notes that train would be made again and taken for another corpus."""
        for part in ("public", "validation"):
            if self.data.format in GENERATED and isinstance(getattr(self.data, part), str | list):
                raise ConfigError(
                    f"data.{part} names a file, and '{self.data.format}' has none; give a share of train, such as "
                    f"data.{part} = 0.1"
                )

    def _check_shares(self) -> None:
        of_data = {f"data.{part}": getattr(self.data, part) for part in ("public", "validation", "test", "unlabelled")}
        sites = [
            {f"sites.{name}.{part}": getattr(site, part) for part in ("validation", "test")}
            for name, site in self.sites.items()
        ]
        for own in ({}, *sites):
            given = {
                key: share for key, share in {**of_data, **own}.items() if isinstance(share, float | int) and share
            }
            if any(share < 0 for share in given.values()) or sum(given.values()) >= 1:
                shares = ", ".join(f"{key} = {share:g}" for key, share in given.items())
                raise ConfigError(f"{shares}: shares of train must be positive and together below 1")

    def _check_unlabelled(self) -> None:
        data = self.data
        format, named = data.unlabelled_format or data.format, isinstance(data.unlabelled, str | list)
        _known("data.unlabelled_format", format, [*FORMATS, *GENERATED], "format")
        for key in ("unlabelled_format", "unlabelled_options"):
            if getattr(data, key) is None:
                continue
            if not named and data.unlabelled:
                raise ConfigError(f"data.{key} is about a corpus, and data.unlabelled is a share: leave it out")
            if not data.unlabelled_corpus:
                raise ConfigError(f"data.{key} is about a corpus: name it in data.unlabelled")
        if named and format in GENERATED:
            raise ConfigError(f"data.unlabelled names a file, and '{format}' has none: set data.unlabelled_format")
        if data.has_unlabelled and data.public == 0:
            raise ConfigError("data.unlabelled adds to the server's labelled set: set data.public to a share or a file")
        task = TASKS.get(str(self.task.get("name")))
        if data.has_unlabelled and task is not None:
            require("data.unlabelled", Distillable, task)

    def _check_own(self, name: str, site: SiteSection) -> None:
        """What only a site with a model of its own can have."""
        algorithm = self.make_algorithm()
        if (site.validation or site.test) and not algorithm.personal:
            raise ConfigError(
                f"sites.{name} has data of its own to be tested on, but '{algorithm.name}' makes one model for all; "
                "give data.test, or take fedner or local_only"
            )
        if not self.own_labels and site.task.keys() - {"name", *self.site_options}:
            raise ConfigError(
                f"sites.{name}.task is different, but '{algorithm.name}' needs one task for all; "
                "with task.name = ner or joint, fedner and local_only let it differ"
            )
        if site.lora_rank is not None:
            self.check_own_rank(f"sites.{name}.lora_rank")
        self.task_options_at(name)

    def check_own_rank(self, key: str) -> None:
        """ConfigError where no site may have a rank of its own."""
        if self.model.parameter_efficient == "off":
            raise ConfigError(f"{key} is for adapters: set model.parameter_efficient = 'lora' too")
        algorithm = self.make_algorithm()
        if not (algorithm.ranks_may_differ or algorithm.pooled):
            raise ConfigError(f"{key}: '{algorithm.name}' needs adapters of one rank; take flora, or leave it out")

    @property
    def own_labels(self) -> bool:
        """Whether each site has the label set of its own corpus."""
        return self.own_corpora and self.labels_may_differ

    @property
    def labels_may_differ(self) -> bool:
        return issubclass(TASKS[self.task["name"]], OwnLabels) and self.make_algorithm().labels_may_differ()

    @property
    def site_options(self) -> Collection[str]:
        """Options of the task that each site may set for itself, whatever the algorithm."""
        task = TASKS[self.task["name"]]
        return task.site_options() if issubclass(task, PartlyAnnotated) else ()

    @property
    def own_corpora(self) -> bool:
        """Whether sites come with corpora, instead of one being partitioned."""
        return any(site.has_corpus for site in self.sites.values())

    def table_of(self, name: str) -> str | None:
        """The [sites] table that speaks of this site: of its own name, else the longest pattern that fits."""
        fits = [pattern for pattern in self.sites if fnmatchcase(name, pattern)]
        return name if name in self.sites else max(fits, key=lambda pattern: (len(pattern), pattern), default=None)

    def site(self, name: str) -> SiteSection:
        """What the config says of this site."""
        table = self.table_of(name)
        return SiteSection() if table is None else self.sites[table]

    def training_at(self, name: str) -> Training:
        own = self.site(name).training
        try:
            return Training(**{**self.training.model_dump(), **own}) if own else self.training
        except ValidationError as error:
            raise explained(error, Training, f"sites.{name}.training.") from error

    def server_training(self) -> Training:
        """How the server trains: as sites do, but for [server] and what the algorithm's paper has."""
        algorithm = self.make_algorithm()
        own = {} if algorithm.server_epochs is None else {"epochs": algorithm.server_epochs}
        return self.server.over(self.training.model_copy(update=own))

    def spec(
        self,
        task: Task,
        encoder: Encoder,
        device: torch.device,
        training: Training | None = None,
        start: Path | None = None,
    ) -> LearnerSpec:
        """How learners work; `training` is a site's own."""
        sites = self.training if training is None else training
        return LearnerSpec(
            *(task, encoder, sites, self.server_training(), self.federation.rounds, self.seed, device, start),
            freeze=tuple(self.model.freeze),
        )

    def task_options(self) -> Any:
        return self._task_options(self.task, "task.")

    def task_options_at(self, name: str) -> Any:
        """Of a site whose task may differ."""
        return self._task_options({**self.task, **self.site(name).task}, f"sites.{name}.task.")

    def _task_options(self, options: Mapping[str, Any], prefix: str) -> Any:
        if options["name"] != self.task["name"]:
            raise ConfigError(f"{prefix}name: all sites have the same kind of task, {self.task['name']}")
        try:
            return TASKS[self.task["name"]].Options(**options)
        except ValidationError as error:
            model = TASKS[self.task["name"]].Options
            raise explained(
                error, model, prefix, further=[*leaves(Config), *_options({"algorithm": self.algorithm})]
            ) from error

    def make_task(self, documents: Iterable[Document], base: Path = Path()) -> Task:
        """The task with the label set of these documents; files that its options name start at `base`."""
        return TASKS[self.task["name"]].of(self.task_options(), documents).at(base)

    def make_algorithm(self) -> Algorithm:
        options = dict(self.algorithm)
        made, task = make_algorithm(str(options.pop("name", "")), options), TASKS[self.task["name"]]
        made = made if self.privacy.unit == "none" else made.protected()
        if issubclass(task, PrivateParts):
            return made.fitted(task.private_parts(self.task_options(), self.model.encoder))
        return made.fitted({})

    def _check_algorithm(self) -> None:
        own, elsewhere = _options({"algorithm": self.algorithm}), [*leaves(Config), *_options({"task": self.task})]
        for key in self.algorithm.keys() - {"name"}:
            if f"algorithm.{key}" not in own and any(leaf.endswith(f".{key}") for leaf in elsewhere):
                raise unknown_key(f"algorithm.{key}", own, elsewhere)
        algorithm, compression = self.make_algorithm(), self.federation.compression
        if compression not in algorithm.encodings():
            fitting = " or ".join(algorithm.encodings())
            raise ConfigError(
                f"federation.compression = '{compression}', but what '{algorithm.name}' uploads travels as {fitting}"
            )
        if compression != "int8" and not self.federation.error_feedback:
            raise ConfigError("federation.error_feedback has no effect without federation.compression = 'int8'")
        rule = self.federation.aggregate
        if rule != "mean" and (why := algorithm.not_robust(rule)):
            raise ConfigError(f"federation.aggregate = '{rule}' has no effect with '{algorithm.name}': {why}")
        if self.federation.secure:
            self._check_secure(algorithm)
        task = TASKS[self.task["name"]]
        for ability in algorithm.abilities():
            require(f"'{algorithm.name}'", ability, task)
        if self.data.mask_overlap and not (issubclass(task, ExtractionTask) and task.finds == "mentions"):
            raise ConfigError(
                f"data.mask_overlap hides mentions from a task that finds them, and '{task.name}' does not: "
                "set task.name = ner"
            )
        if self.needs_public and self.data.public == 0:
            raise ConfigError(f"'{algorithm.name}' needs the server's public set: set data.public to a share or a file")
        if self.server.epochs == 0 and algorithm.server_epochs != 0 and algorithm.trains_server:
            raise ConfigError(f"server.epochs = 0: '{algorithm.name}' learns at the server; give 1 or more")
        if self.server.epochs is not None and not algorithm.trains_server:
            raise ConfigError(
                f"server.epochs has no effect: the server of '{algorithm.name}' does not train on its public set; "
                "leave it out"
            )
        if self.federation.keep_models and algorithm.personal:
            raise ConfigError(
                f"federation.keep_models needs one shared model; '{algorithm.name}' trains one per site: leave it out"
            )
        if self.federation.stop_at_f1:
            require("federation.stop_at_f1", ExtractionTask, task)
        if self.federation.stop_at_f1 and "test" not in self.federation.evaluate_on:
            raise ConfigError("federation.stop_at_f1 is about the test F1: add 'test' to federation.evaluate_on")
        if self.privacy.unit != "none":
            self._check_privacy(algorithm, self.privacy.unit)
        for name, site in self.sites.items():
            if site.attack in ("mislead", "unbounded") and not algorithm.public_at_sites:
                raise ConfigError(
                    f"sites.{name}.attack = '{site.attack}' is on predictions, and '{algorithm.name}' sends none; take "
                    "'scale', 'flip' or 'substitute', or algorithm.name = feded"
                )
            if site.attack == "mislabel" and self.own_labels:
                raise ConfigError(
                    f"sites.{name}.attack = 'mislabel' exchanges labels of one label set, and here each site has its "
                    "own: leave it out"
                )

    def _check_privacy(self, algorithm: Algorithm, unit: Unit) -> None:
        check_installed()
        wanted = with_privacy.Combination(
            unit,
            algorithm=algorithm.name,
            unaccounted=algorithm.unaccounted(unit),
            personal=algorithm.personal,
            compression=self.federation.compression,
            aggregate=self.federation.aggregate,
            exact_scores=self.privacy.exact_scores,
            noisy_registration=self.privacy.noisy_registration,
            task=self.task["name"],
            next_sentence=bool(self.task.get("next_sentence")),
            vocabulary=self.model.vocabulary,
            rounds=self.federation.rounds,
            fraction=self.federation.fraction,
            votes=algorithm.public_at_sites,
        )
        if why := with_privacy.refusal(wanted):
            raise ConfigError(why)

    @property
    def privacy_plan(self) -> Plan | None:
        """How often a site may draw noise; None: there is no privacy."""
        if self.privacy.unit == "none":
            return None
        rounds, algorithm = self.federation, self.make_algorithm()
        counts = algorithm.counts_labels()
        return Plan.of(self.privacy, rounds.rounds, rounds.fraction, algorithm.exchanges(), counts)

    def _check_secure(self, algorithm: Algorithm) -> None:
        rounds = self.federation
        wanted = with_secure.Combination(algorithm.name, algorithm.not_averaged(), rounds.compression, rounds.aggregate)
        if why := with_secure.refusal(wanted):
            raise ConfigError(why)
        if not find_spec("cryptography"):
            raise ConfigError("federation.secure needs cryptography; pip install 'grandrounds[secure]'")

    @property
    def secure_settings(self) -> SecureSettings | None:
        """What coordinator and sites agree on about secure sums; None: there are none."""
        rounds = self.federation
        if not rounds.secure:
            return None
        weight_by = rounds.weight_by or self.make_algorithm().weight_by
        return SecureSettings(weight_by, rounds.largest_share, rounds.secure_threshold, self._shared_noise())

    def _shared_noise(self) -> SharedNoise | None:
        """That sites add together, since under secure sums no server can add it to what each of them sends."""
        if (plan := self.privacy_plan) is None or plan.unit != "site":
            return None
        return SharedNoise(noise_of(plan, 1.0, plan.rounds), plan.settings.clip)

    @property
    def needs_public(self) -> bool:
        """Whether the server must have a public set."""
        algorithm = self.make_algorithm()
        return algorithm.public_at_sites or (algorithm.trains_server and self.server_training().epochs > 0)

    @property
    def shares_model(self) -> bool:
        """Whether sites get the selected model after the last round."""
        return self.federation.share_model and not self.make_algorithm().personal

    def digest(self) -> str:
        return sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()

    def decisive(self) -> dict[str, Any]:
        """All that the result depends on: not how many processes compute it, nor how long it may go on,
        unless learning rates follow a schedule, or noise must last for all rounds."""
        content = self.complete()
        for key in ("workers", "runtime", "ray", "compare", "imports"):
            content.pop(key)
        for key in ("checkpoint_every", "keep_models", "deadline", "absence", "share_model"):
            content["federation"].pop(key)
        if not self.training.needs_end and self.privacy.unit == "none":
            content["federation"].pop("rounds")
        return content

    def complete(self) -> dict[str, Any]:
        """With every option of the task and the algorithm, so that a later default changes no run in retrospect."""
        algorithm: Any = self.make_algorithm()
        content = self.model_dump()
        content["task"] = self.task_options().model_dump()
        content["algorithm"] = {"name": algorithm.name, **asdict(algorithm)}
        return content

    def to_toml(self) -> str:
        return tomli_w.dumps(without_none(self.complete()))


def load_config(path: Path, overrides: Iterable[str] | Mapping[str, Any] = (), imports: Sequence[str] = ()) -> Config:
    """The config in a TOML file, after `section.key=value` overrides, with further modules to import."""
    changes = dict(overrides if isinstance(overrides, Mapping) else map(parse_override, overrides))
    content = _read(path)
    given = changes.get("imports", content.get("imports", []))
    if imports and isinstance(given, list):
        changes["imports"] = [*given, *imports]
    return make_config(content, changes)


def read_settings(config: Config, path: Path) -> Config:
    """The config with the [compare.<name>] tables of another file, which outweigh its own."""
    given = _read(path)
    if given.keys() != {"compare"} or not isinstance(given["compare"], dict):
        raise ConfigError(f"'{path}' must hold [compare.NAME] tables and nothing else, as a search's chosen.toml does")
    content = config.model_dump(exclude_none=True)
    for name, own in given["compare"].items():
        content["compare"][name] = {**content["compare"].get(name, {}), **own}
    return make_config(content)


def with_sections(config: Config, path: Path) -> Config:
    """The config with the sections of another file in place of its own; [compare.<name>] tables are added to them."""
    content, given = config.model_dump(exclude_none=True), _read(path)
    if not isinstance(arms := given.pop("compare", {}), dict):
        raise ConfigError(f"'{path}': compare must hold [compare.NAME] tables")
    content |= given
    content["compare"] |= arms
    return make_config(content)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no config '{path}'; check the path") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"config '{path}' can't be read: {error}") from error


def make_config(content: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Config:
    merged: dict[str, Any] = json.loads(json.dumps(content))  # a deep copy of plain TOML
    for key, value in (overrides or {}).items():
        _set(merged, key, copy.deepcopy(value))  # a later override may reach into it
    if isinstance(named := merged.get("imports", []), list):
        load_modules(map(str, named))  # before names are looked up
    try:
        return Config(**merged)
    except ValidationError as error:
        raise explained(error, Config, "", SiteSection, _options(merged)) from error


def _options(content: Mapping[str, Any]) -> list[str]:
    """The keys that the task and the algorithm have, where they are named."""
    task, algorithm = (content.get(section) for section in ("task", "algorithm"))
    found = list[str]()
    if isinstance(task, dict) and (named := TASKS.get(str(task.get("name")))) is not None:
        found += [f"task.{name}" for name in named.Options.model_fields]
    if isinstance(algorithm, dict) and (made := ALGORITHMS.get(str(algorithm.get("name")))) is not None:
        options: Any = made
        found += [f"algorithm.{option.name}" for option in fields(options)]
    return found


def _set(content: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise ConfigError(f"'{key}' can't be set: '{section}' is not a section")
    content[last] = value


def _known(key: str, name: str, known: Iterable[str], kind: str | None = None) -> None:
    if str(name) not in known:
        said = not_registered(kind, str(name), known) if kind else unknown("name", str(name), known)
        raise ConfigError(f"{key}: {said}")


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value
