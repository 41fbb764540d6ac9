"""A hospital's side of a federation between hosts: its own data, and the handler that answers for it.

Text, paths and what is special about a site stay in this process and in the site's own files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import ValidationError

from grandrounds.config.validation import explained
from grandrounds.data.corpora import Source
from grandrounds.data.documents import Document
from grandrounds.data.labels import LabelMap
from grandrounds.deployment.enrolment import Enrolment
from grandrounds.deployment.final_model import MODEL, FinalModelFolder
from grandrounds.deployment.handler import HEAD, MessageHandler
from grandrounds.deployment.heads import check_log, read_heads
from grandrounds.deployment.keys import read_private
from grandrounds.deployment.ledger import SiteLedger
from grandrounds.deployment.peers import Peers, PeerSigner
from grandrounds.deployment.spending import open_privacy, registered
from grandrounds.deployment.terms import tokenizer_digest
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.audit import Audit
from grandrounds.federation.contract import Registration
from grandrounds.federation.files import LOCK, lock
from grandrounds.federation.learner import VALIDATION, LearnerSpec
from grandrounds.federation.payloads import LabelCounts
from grandrounds.federation.policy import Policy, RefusalError
from grandrounds.federation.privacy.site import check_patients
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.runner import SiteData, SiteRunner
from grandrounds.federation.secure.randomness import from_the_system
from grandrounds.federation.secure.site import SecureSite
from grandrounds.federation.secure.store import OnDisk
from grandrounds.federation.training import Training
from grandrounds.models.encoder import Encoder
from grandrounds.setup.corpora import Corpora
from grandrounds.setup.examples import examples_by_part
from grandrounds.setup.server import expected_of, find_device, manifest_of
from grandrounds.tasks.abilities import PartlyAnnotated


@dataclass(frozen=True)
class Holding:
    """A site's data, checked: what it found is said before anything is joined."""

    documents: Sequence[Document]
    site_data: SiteData
    warnings: Mapping[str, int]
    labels: Mapping[str, int]


def read_holding(
    enrolment: Enrolment,
    data: Sequence[Path],
    format: str,
    test: Sequence[Path] = (),
    validation: Sequence[Path] = (),
) -> Holding:
    """The site's corpus as the task and the site's encoder see it."""
    terms, site = enrolment.terms, enrolment.site
    torch.set_num_threads(terms.config.threads)
    corpora = Corpora()
    renamed = terms.config.data.map_labels if site.map_labels is None else site.map_labels
    labels = LabelMap(renamed, "map_labels")
    for part, paths in (("train", data), (VALIDATION, validation), ("test", test)):
        if paths:
            corpora.add(part, Source(format, paths, site.options, site.lenient, labels))
    if site.map_labels is not None:
        labels.check()
    spec = _spec(enrolment, corpora.labelled())
    examples, rows = examples_by_part(spec.task, corpora)
    splits = examples.encode(spec.encoder).splits(rows)
    counts = examples.counts(rows["train"]) | {part: len(some) for part, some in rows.items() if part != "train"}
    counted = Counter(label for row in rows["train"] for label in spec.task.answers(examples.all[row]))
    manifest = manifest_of(spec.initial_model(), terms.config.make_algorithm())
    if site.encoder is not None and manifest:
        raise ConfigError(
            f"site.toml names an encoder of this site's own, but '{terms.config.algorithm['name']}' shares weights: "
            "all sites need the same one"
        )
    check_patients(terms.config.privacy_plan, splits["train"].patients is not None, site.name)
    registration = Registration(site.name, counts, spec.task.labels, manifest)
    policy = Policy.load(enrolment.folder / site.policy) if site.policy else Policy()
    documents = [corpora.documents[i] for i in corpora.parts["train"]]
    return Holding(documents, SiteData(registration, splits, spec, policy), dict(corpora.warnings), counted)


def open_handler(enrolment: Enrolment, holding: Holding, say: Callable[[str], None]) -> MessageHandler:
    """Ready to join: what the coordinator may ask is answered from here."""
    holding = replace(holding, site_data=registered(enrolment, holding.site_data))
    state, terms, site_data = enrolment.state, enrolment.terms, holding.site_data
    about = {
        "terms": terms.digest,
        "tokenizer": tokenizer_digest(site_data.spec.encoder),
        "own_encoder": enrolment.site.encoder is not None,
        "torch": torch.__version__,
        "label_counts": told_labels(enrolment, holding),
        "public": sorted(path.stem for path in (state / "public").glob("*.safetensors")),
    }
    log, config = state / "audit.jsonl", terms.config
    key = read_private(enrolment.key)
    for noted in read_heads(state / HEAD).values():
        check_log(log, noted, key.public_key())
    audit = Audit(log)
    audit.write(event="policy", policy=site_data.policy.note())  # for whoever reads the log later
    rounds = config.federation
    always = rounds.fraction == 1 and (rounds.aggregate == "mean" or not rounds.leave_out_after)
    ledger = SiteLedger(log, rounds.rounds, config.make_algorithm(), rounds.checkpoint_every, always)
    comes = config.shares_model and site_data.policy.receive_model
    final_model = FinalModelFolder(terms, state / MODEL) if comes else None
    runner = make_runner(enrolment, holding, say)
    return MessageHandler(runner, site_data.registration, about, audit, key, state, ledger, say, final_model)


def told_labels(enrolment: Enrolment, holding: Holding) -> dict[str, int]:
    """How often each label occurs, for the coordinator's report: where the policy lets that leave, and nobody asked for
    differential privacy, which exact counts would break."""
    if enrolment.terms.config.privacy_plan is not None or not holding.site_data.policy.allows(LabelCounts.kind):
        return {}
    known = holding.site_data.registration.labels
    return {label: count for label, count in sorted(holding.labels.items()) if label in known}


@contextmanager
def alone(enrolment: Enrolment) -> Iterator[None]:
    """One process at a time serves a site: two would write the same log and states."""
    held = lock(enrolment.state / LOCK)
    if held is None:
        raise GrandRoundsError(f"another process serves this site already, from '{enrolment.state}'; stop it first")
    with held:
        yield


def make_runner(enrolment: Enrolment, holding: Holding, say: Callable[[str], None]) -> SiteRunner:
    terms, state, site_data = enrolment.terms, enrolment.state, holding.site_data
    algorithm, model = terms.config.make_algorithm(), site_data.spec.initial_model()
    return SiteRunner(
        algorithm,
        {site_data.registration.site: site_data},
        expected_of(model, site_data.registration.manifest, site_data.spec.task, terms.public, algorithm),
        PrivateStore(state / "states", memory=0),
        terms.config.federation.compression,
        terms.digest,
        state / "models",
        PublicSetCache(state / "public"),
        {site_data.spec.model_key: model},
        lambda: _secret(state),
        privacy=open_privacy(enrolment),
        secure=_secure_site(enrolment, say),
        error_feedback=terms.config.federation.error_feedback,
    )


def _secure_site(enrolment: Enrolment, say: Callable[[str], None]) -> SecureSite | None:
    """The site in secure sums, if the terms have them: keys of the system's randomness, secrets on the site's disk."""
    if (settings := enrolment.terms.config.secure_settings) is None:
        return None
    key = read_private(enrolment.key)
    peers = Peers(enrolment.state / "peers.json", enrolment.site.name, key.public_key(), say)
    return SecureSite(settings, OnDisk(enrolment.state / "secure"), from_the_system, PeerSigner(key, peers))


def with_policy(holding: Holding, policy: Policy) -> Holding:
    return replace(holding, site_data=replace(holding.site_data, policy=policy))


def _spec(enrolment: Enrolment, documents: Sequence[Document]) -> LearnerSpec:
    terms, site = enrolment.terms, enrolment.site
    try:
        training = Training(**{**terms.config.training.model_dump(), **site.training})
    except ValidationError as error:
        raise explained(error, Training, f"{enrolment.folder / 'site.toml'}: training.") from error
    spec = terms.spec(training, find_device(site.device))
    if terms.config.labels_may_differ:
        spec = spec.with_labels_of(terms.task_at(site.task, documents))
    elif isinstance(terms.task, PartlyAnnotated) and site.task.keys() <= {"name", *terms.config.site_options}:
        spec = replace(spec, task=terms.task.annotated_as(terms.options_at(site.task)))
    elif site.task:
        raise ConfigError(
            f"{enrolment.folder / 'site.toml'}: task is this site's own, but '{terms.config.algorithm['name']}' needs "
            "one task for all"
        )
    if site.lora_rank is not None:
        terms.config.check_own_rank(f"{enrolment.folder / 'site.toml'}: lora_rank")
        spec = spec.with_rank(site.lora_rank)
    if site.encoder is None:
        return spec
    folder = enrolment.folder / site.encoder
    own = Encoder.find(str(folder) if folder.is_dir() else site.encoder, terms.task.markers)
    dropout = terms.config.model.attention_dropout
    own = own if dropout is None else own.dropping_attention(dropout)
    return replace(spec, encoder=own, start=None)


def _secret(state: Path) -> bytes:
    try:
        return (state / "secret").read_bytes()
    except OSError as error:
        raise RefusalError("the sites' shared secret has not reached this site yet") from error
