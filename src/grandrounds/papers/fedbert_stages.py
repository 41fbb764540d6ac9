"""Federated BERT's two stages as configs: pre-training on notes, then fine-tuning on a corpus of mentions.

Overrides that begin with `pretraining.` are of the first stage, those without a section of both, all others of the
second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grandrounds.config.schema import SHAPES, Config
from grandrounds.data.corpora import SYNTHETIC
from grandrounds.errors import ConfigError
from grandrounds.papers.corpora import SENTENCES, PaperCorpus
from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.protocol import Left
from grandrounds.papers.settings import TRAINING, At, Said, Tell

FIRST = "pretraining."
CYCLES = f"{FIRST}federation.rounds"
SEED = f"{FIRST}seed"
ENDING = (f"{FIRST}federation.early_stopping", f"{FIRST}federation.stop_at_f1")
USED_CYCLE = 10
BERT_BASE = "google-bert/bert-base-cased"
SCRATCH = ("new", "tiny")
MIMIC, MTSAMPLES, SYNTHETIC_NOTES = "mimic-iii", "mtsamples", "synthetic-notes"
START, CENTRALIZED, FEDERATED = "none", "centralized", "federated"


@dataclass(frozen=True)
class NotesCorpus:
    """Notes to pre-train on, how they are partitioned, and what a BERT from scratch is like on them."""

    corpus: PaperCorpus
    partition: Mapping[str, Any]
    weight_by: str
    size: Mapping[str, Any]
    encoder: str = "new"
    """Where --encoder names none."""
    training: Mapping[str, Any] = field(default_factory=lambda: {"batch_size": 8, "learning_rate": 5e-4})
    """Of a BERT from scratch."""


NOTES = {
    MIMIC: NotesCorpus(
        PaperCorpus(
            MIMIC,
            "MIMIC-III's discharge summaries",
            "mimic-notes",
            "mimic-iii/NOTEEVENTS.csv",
            0.02,
            validation=0.02,
            nearest=MTSAMPLES,
        ),
        {"scheme": "iid", "unit": "patient", "sites": 5},
        "patients",
        {"layers": 4, "width": 256, "heads": 4, "pieces": 30_000, "dropout": 0.0},
        BERT_BASE,
    ),
    MTSAMPLES: NotesCorpus(
        PaperCorpus(
            MTSAMPLES,
            "mtsamples",
            "notes-json",
            "text/mtsamples.jsonl",
            0.1,
            validation=0.1,
        ),
        {"scheme": "by", "by": "specialty", "sites": 5},
        "notes",
        {"layers": 4, "width": 256, "heads": 4, "pieces": 8000, "dropout": 0.0},
        training={"batch_size": 4, "learning_rate": 3e-4, "schedule": "linear", "warmup": 0.05},
    ),
    SYNTHETIC_NOTES: NotesCorpus(
        PaperCorpus(
            SYNTHETIC_NOTES,
            "synthetic notes",
            SYNTHETIC,
            options={"hospitals": 5, "notes": 60, "seed": 2},
            validation=0.1,
        ),
        {"scheme": "by", "by": "hospital"},
        "patients",
        {"layers": 2, "width": 128, "heads": 4, "pieces": 2000, "dropout": 0.0},
    ),
}


@dataclass(frozen=True)
class Stages:
    """What a target runs on: notes, and where it needs them, mentions. A `Place` of the protocol."""

    notes: str
    entities: PaperCorpus | None = None
    nearest: str = SYNTHETIC

    @property
    def title(self) -> str:
        notes = NOTES[self.notes].corpus.title
        return notes if self.entities is None else f"{self.entities.title} after {notes}"

    def missing(self, data: Path | None) -> str | None:
        corpora = [NOTES[self.notes].corpus, *([self.entities] if self.entities else [])]
        needed = [corpus for corpus in corpora if corpus.format != SYNTHETIC]
        return "; ".join(filter(None, (corpus.missing(data) for corpus in needed))) or None


def _pubtator(part: str) -> str:
    return f"cdr/pubtator/CDR_{part}Set.PubTator.txt"


STAGES = {
    "i2b2-2010": Stages(MIMIC, SENTENCES["i2b2"], "cdr"),
    "i2b2-2012": Stages(
        MIMIC,
        PaperCorpus(
            "i2b2-2012",
            "i2b2 2012",
            "i2b2-2012",
            "i2b2-2012/train",
            "i2b2-2012/test",
        ),
        "cdr",
    ),
    "cdr": Stages(
        MTSAMPLES,
        PaperCorpus(
            "cdr",
            "CDR",
            "pubtator",
            _pubtator("Training"),
            _pubtator("Test"),
            validation=_pubtator("Development"),
            source="cdr-pubtator",
        ),
    ),
    SYNTHETIC: Stages(
        SYNTHETIC_NOTES,
        PaperCorpus(SYNTHETIC, "the synthetic corpus", SYNTHETIC, options={"hospitals": 5, "notes": 30}),
    ),
    MIMIC: Stages(MIMIC, nearest=MTSAMPLES),
    MTSAMPLES: Stages(MTSAMPLES),
    SYNTHETIC_NOTES: Stages(SYNTHETIC_NOTES),
}


def overrides(corpus: str, given: Overrides) -> Overrides:
    """Those of the corpus's stage."""
    for key in ENDING:
        if given.get(key):
            raise ConfigError(f"'{key}' may end pre-training before the cycle whose encoder is used; give {CYCLES}")
    if corpus not in NOTES:
        for key in SHAPES:
            if f"model.{key}" in given:
                raise ConfigError(f"'model.{key}' is of the encoder that is pre-trained: give {FIRST}model.{key}")
        return {key: value for key, value in given.items() if not key.startswith(FIRST)}
    return {
        key.removeprefix(FIRST): value
        for key, value in given.items()
        if (key.startswith(FIRST) or "." not in key) and key not in (CYCLES, SEED)
    }


def check_of_notes(corpus: str, options: ReproduceOptions) -> None:
    """Where only the first stage runs, nothing may be meant for the second."""
    for key in options.overrides:
        if "." in key and not key.startswith(FIRST):
            raise ConfigError(f"'{key}' is of fine-tuning, which '{corpus}' has none of; give {FIRST}{key}")


def content(corpus: str, options: ReproduceOptions) -> dict[str, Any]:
    if options.encoder_place == "words":
        raise ConfigError("--encoder words has no transformer to pre-train; name a BERT, 'new' or 'tiny'")
    if corpus in NOTES:
        return _pretraining(NOTES[corpus], options)
    stages = STAGES[corpus]
    assert stages.entities is not None, corpus
    return _tuning(stages.entities, options.encoder_place or NOTES[stages.notes].encoder, options)


def cycles(options: ReproduceOptions) -> int:
    """How many pre-training has; the last one's encoder is used."""
    asked = options.overrides.get(CYCLES, USED_CYCLE)
    if type(asked) is not int or asked < 1:  # true is an int too
        raise ConfigError(f"{CYCLES} = {asked!r}; it must be a whole number, at least 1")
    return asked


def one_seed(options: ReproduceOptions) -> int | None:
    """Of pre-training that is done once, for every seed of fine-tuning; None: each has its own."""
    asked = options.overrides.get(SEED)
    if asked is not None and (type(asked) is not int or asked < 0):
        raise ConfigError(f"{SEED} = {asked!r}; it must be a whole number")
    return asked


def pretraining_arms(options: ReproduceOptions) -> dict[str, Overrides]:
    """Each keeps the encoder of every cycle, and of the start, which both have in common."""
    kept = {"federation.rounds": cycles(options), "federation.keep_models": True}
    return {
        CENTRALIZED: {"algorithm.name": "centralized", "training.optimizer_state": "keep", **kept},
        FEDERATED: {"algorithm.name": "fedavg", **kept},
    }


def encoder(notes: str, pretraining: str, cycle: int, options: ReproduceOptions) -> Left:
    """After a cycle; before the first one there is but one."""
    if pretraining == START:
        return Left(notes, FEDERATED, "models/round-00000", one_seed(options))
    return Left(notes, pretraining, f"models/round-{cycle:05d}", one_seed(options))


def tuning_arm(tuning: str, start: Left, options: ReproduceOptions) -> Overrides:
    if tuning == FEDERATED:
        return {"algorithm.name": "fedavg", "model.encoder": start}
    return {
        "algorithm.name": "centralized",
        "model.encoder": start,
        "training.optimizer_state": "keep",
        "federation.rounds": _centralized(options.rounds),
    }


def _centralized(cycles: int) -> int:
    """Centralised fine-tuning takes as many epochs as the paper's does for so many cycles: 4 for 6."""
    return max(1, round(cycles * 4 / 6))


def _pretraining(notes: NotesCorpus, options: ReproduceOptions) -> dict[str, Any]:
    named = options.encoder_place or notes.encoder
    scratch = named in SCRATCH
    # From what sites count, `new` learns its word pieces, and a new head over a pretrained encoder how common they are.
    counted = {} if named in (BERT_BASE, "tiny") else {"vocabulary": "sites"}
    size = notes.size if named == "new" else {}
    return {
        "task": {"name": "masked_lm", "length": 128, "next_sentence": True},
        "data": {**notes.corpus.section(), "public": 0.1 if named == "tiny" else 0.0},
        "partition": dict(notes.partition),
        "model": {"encoder": named, **counted, **size},
        "training": {"epochs": 1, **(notes.training if scratch else {"batch_size": 32, "learning_rate": 5e-5})},
        "federation": {"rounds": cycles(options), "weight_by": notes.weight_by, "evaluate_on": ["validation"]},
        "algorithm": {"name": "fedavg"},
    }


def _tuning(entities: PaperCorpus, encoder: str, options: ReproduceOptions) -> dict[str, Any]:
    section, scratch = entities.section(), encoder in SCRATCH
    return {
        "task": {"name": "ner", "tagger": "bert", "scheme": "BIO", "crf": False},
        "data": {**section, "validation": section.get("validation", 0.1)},
        "partition": {"scheme": "iid", "unit": "document", "sites": 5},
        "training": {"epochs": 1, "batch_size": 32, "learning_rate": 5e-4 if scratch else 2e-5},
        "federation": {"rounds": options.rounds, "weight_by": "notes", "evaluate_on": ["validation"]},
        "algorithm": {"name": "fedavg"},
    }


def _reported(tell: Mapping[str, Tell], task: str, stage: str) -> dict[str, Tell]:
    def of_stage(one: Tell) -> Tell:
        def here(config: Config) -> object:
            return one(config) if config.task["name"] == task else None

        return At(one.key, whole=here) if isinstance(one, At) else here

    return {f"{stage}: {name}": of_stage(one) for name, one in tell.items()}


_BOTH: dict[str, Tell] = {
    "silos": At("partition.sites", whole=lambda config: config.partition.sites or f"one a {config.partition.by}"),
    "split by": At("partition.unit", whole=lambda config: config.partition.by or config.partition.unit),
    "weights": At("federation.weight_by"),
    "epochs a cycle": At("training.epochs"),
    "batch size": At("training.batch_size"),
    **TRAINING,
}
_OF_NOTES: dict[str, Tell] = {
    "encoder": At("model.encoder", whole=lambda config: _describe_size(config)),
    "word pieces of a row": At("task.length"),
    "next sentences": At("task.next_sentence", lambda on: "yes" if on else "no"),
    "dropout": At("model.dropout", lambda share: OWN if share is None else share),
    **_BOTH,
    "cycles": lambda config: config.federation.rounds,
}
_OF_ENTITIES: dict[str, Tell] = {
    **_BOTH,
    "cycles": At("federation.rounds", whole=lambda config: _describe_length(config)),
}
OWN = "the encoder's own"
SETTINGS = {**_reported(_OF_NOTES, "masked_lm", "pre-training"), **_reported(_OF_ENTITIES, "ner", "fine-tuning")}


def _of_bert(text: str, *values: object) -> Said:
    """The paper leaves it to BERT's article, whose public code does not always agree with it."""
    return Said(f"BERT's own: {text}", values)


STATED = {
    "pre-training: encoder": Said("BERT base", ("bert-base-cased", "bert-base-uncased")),
    "pre-training: word pieces of a row": _of_bert("128, at last 512; in its code 128", 128),
    "pre-training: next sentences": _of_bert("yes", "yes"),
    "pre-training: silos": 5,
    "pre-training: split by": "patient",
    "pre-training: weights": "patients",
    "pre-training: epochs a cycle": 1,
    "pre-training: batch size": _of_bert("256; in its code 32", 32, 256),
    "pre-training: dropout": _of_bert("0.1", 0.1, OWN),
    "pre-training: positions": _of_bert("random", "random", OWN),
    "pre-training: attention": _of_bert("random", "random", OWN),
    "pre-training: optimizer": _of_bert("Adam with decoupled weight decay", "adamw"),
    "pre-training: learning rate": _of_bert("1e-4; in its code 5e-5", 1e-4, 5e-5),
    "pre-training: schedule of the rate": _of_bert("linear", "linear"),
    "pre-training: warm-up of the rate": _of_bert("10,000 steps, 1% of the run", "1% of the run"),
    "pre-training: weight decay": _of_bert("0.01", 0.01),
    "pre-training: gradients clipped to a norm of": _of_bert("1 in its code", 1),
    "pre-training: cycles": Said("15, of which cycle 10 is used", (10, 15)),
    "fine-tuning: silos": 5,
    "fine-tuning: split by": Said("note", ("note", "document")),
    "fine-tuning: weights": "notes",
    "fine-tuning: epochs a cycle": 1,
    "fine-tuning: batch size": 32,
    "fine-tuning: learning rate": 2e-5,
    "fine-tuning: cycles": "6; centralised: 4 epochs",
}


def _describe_size(config: Config) -> str:
    model = config.model
    if model.encoder == "tiny":
        return model.encoder
    if model.encoder != "new":
        first = "" if model.layers is None else f", the first {model.layers} layers"
        return f"{Path(model.encoder).name}, pretrained{first}"
    return f"new, {model.layers or 4} layers x {model.width or 256}"


def _describe_length(config: Config) -> str:
    epochs = _centralized(config.federation.rounds) * config.training.epochs
    return f"{config.federation.rounds}; centralised: {epochs} epochs"
