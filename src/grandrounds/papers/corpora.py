"""The corpora that papers use: where they lie under --data, how to obtain them, and what is counted in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grandrounds.config.schema import Config
from grandrounds.data.corpora import GENERATED, SYNTHETIC, SYNTHETIC_BAGS, read_source
from grandrounds.data.documents import Document
from grandrounds.data.labels import LabelMap
from grandrounds.data.partition import partition
from grandrounds.papers.sources import SOURCES
from grandrounds.reports.plots import PartitionRows
from grandrounds.setup.corpora import paths_of
from grandrounds.tasks.document_re import DocumentExample

_DOCRED = (
    "6 17 19 20 22 25 26 27 30 31 35 36 37 39 40 50 54 57 58 69 86 102 108 112 118 123 127 131 136 137 140 150 155 "
    "156 159 161 162 166 170 171 172 175 176 178 179 190 194 205 206 241 264 272 276 279 355 361 364 400 403 449 "
    "463 488 495 527 551 569 570 571 576 577 580 582 585 607 674 676 706 710 737 740 749 800 807 840 937 1001 1056 "
    "1198 1336 1344 1365 1366 1376 1412 1441 3373"
)
DOCRED = [f"P{number}" for number in _DOCRED.split()]
"""Its 96 relations, some of which a part may lack."""


class Place(Protocol):
    """What a target runs on."""

    @property
    def title(self) -> str: ...
    @property
    def nearest(self) -> str:
        """What may stand in for it."""

    def missing(self, data: Path | None) -> str | None:
        """A sentence that says how to get it; None where it is there."""


@dataclass(frozen=True)
class PaperCorpus:
    """A corpus by the name that `--corpus` knows it by."""

    name: str
    title: str
    format: str
    train: str | tuple[str, ...] | None = None
    test: str | float | None = None
    """A file, or a share of train."""
    options: Mapping[str, Any] = field(default_factory=dict)
    validation: str | float | None = None
    """A file, or a share of train."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """What of [task] is the corpus's own."""
    nearest: str = SYNTHETIC
    """What may stand in for it."""
    source: str | None = None
    """Under which name `SOURCES` has it, if not its own."""

    def section(self) -> dict[str, Any]:
        """[data] of a config."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        given = {part: list(v) if isinstance(v, tuple) else v for part, v in parts.items() if v is not None}
        return {"format": self.format, **given, "options": dict(self.options)}

    def missing(self, data: Path | None) -> str | None:
        trains = self.train if isinstance(self.train, tuple) else [self.train]
        paths = [path for path in (*trains, self.validation, self.test) if isinstance(path, str)]
        if all(data is not None and (data / path).exists() for path in paths):  # made here: there are none
            return None
        where = "--data is not given" if data is None else "it is not under --data"
        files = " and ".join(filter(None, [", ".join(paths[:-1]), *paths[-1:]]))
        how, form = SOURCES[self.source or self.name]
        return f"{self.title} is missing ({where}): {how} {files} under the folder that --data names ({form})"


def _named(*corpora: PaperCorpus) -> dict[str, PaperCorpus]:
    return {corpus.name: corpus for corpus in corpora}


SENTENCES = _named(
    PaperCorpus(
        "i2b2",
        "i2b2 2010",
        "i2b2-2010",
        "i2b2-2010/train",
        "i2b2-2010/test",
    ),
    PaperCorpus("gad", "GAD", "biobert-tsv", "gad/1/train.tsv", "gad/1/test.tsv"),
    PaperCorpus("eu-adr", "EU-ADR", "biobert-tsv", "eu-adr/1/train.tsv", "eu-adr/1/test.tsv"),
    PaperCorpus(SYNTHETIC, "the synthetic corpus", SYNTHETIC, options={"hospitals": 6, "notes": 60}),
)


def _eog(name: str, title: str, filtered: str, nearest: str = SYNTHETIC) -> PaperCorpus:
    train, dev, test = (f"{name}/eog/{part}{filtered}.data" for part in ("train", "dev", "test"))
    return PaperCorpus(name, title, "eog", train, test, validation=dev, task={"pairs": name}, nearest=nearest)


def _chemdisgene(name: str, what: str, only: str, head: str, tail: str) -> PaperCorpus:
    """Of its text only dev and test are near at hand, so the one is learnt from."""
    return PaperCorpus(
        name,
        f"ChemDisGene ({what} pairs, related or not, trained on its dev part)",
        "chemdisgene",
        "chemdisgene/dev_abstracts.txt.gz",
        "chemdisgene/test_abstracts.txt.gz",
        {"only": only},
        validation=0.1,
        task={"pairs": [[head, tail]]},
        source="chemdisgene",
    )


DOCUMENTS = _named(
    _eog("cdr", "CDR", "_filter"),
    PaperCorpus(
        "chr",
        "CHR",
        "pubtator",
        "chr/train.pubtator",
        "chr/test.pubtator",
        {"joined": "same"},
        validation="chr/dev.pubtator",
        task={"pairs": "chr"},
        nearest="chemdisgene-gene",
    ),
    _eog("gda", "GDA", "", "chemdisgene-disease"),
    PaperCorpus(
        "docred",
        "DocRED",
        "docred",
        "docred/train_annotated.json",
        "docred/dev.json",
        validation=0.1,
        task={"pairs": "docred", "labels": DOCRED},
        nearest="re-docred",
    ),
    _chemdisgene("chemdisgene-gene", "chemical-gene", "chem_gene", "Chemical", "Gene"),
    _chemdisgene("chemdisgene-disease", "gene-disease", "gene_disease", "Gene", "Disease"),
    PaperCorpus(
        "re-docred",
        "Re-DocRED (trained on its dev part)",
        "docred",
        "re-docred/dev_revised.json",
        "re-docred/test_revised.json",
        validation=0.1,
        task={"pairs": "docred", "labels": DOCRED},
    ),
    PaperCorpus(SYNTHETIC, "the synthetic corpus", SYNTHETIC, options={"hospitals": 6, "notes": 60}, validation=0.2),
)

BAGS = _named(
    PaperCorpus(
        "nyt10",
        "NYT10",
        "opennre",
        "nyt10/nyt10_train.txt",
        "nyt10/nyt10_test.txt",
        validation=0.1,
        nearest="gids",
    ),
    PaperCorpus(
        "mirgene",
        "MIRGENE",
        "opennre",
        "mirgene/train.jsonl",
        "mirgene/test.jsonl",
        {"head_type": "miRNA", "tail_type": "gene"},
        validation=0.1,
        nearest="bere-dti",
    ),
    PaperCorpus(
        "bere-dti",
        "BERE's drugs and targets (trained on its validation part)",
        "bere",
        "bere-dti/valid.json",
        "bere-dti/test.json",
        validation=0.2,
        task={"precision_at": [10, 50]},
        nearest=SYNTHETIC_BAGS,
    ),
    PaperCorpus(
        "gids",
        "GIDS (its dev part, of whose pairs a fifth is tested on)",
        "nre",
        "gids/dev.tsv",
        0.2,
        validation=0.1,
        task={"precision_at": [50, 100]},
        nearest=SYNTHETIC_BAGS,
    ),
    PaperCorpus(
        SYNTHETIC_BAGS,
        "the corpus of synthetic bags",
        SYNTHETIC_BAGS,
        validation=0.1,
        task={"precision_at": [50, 100, 200]},
        nearest=SYNTHETIC_BAGS,
    ),
)

CORPORA = {**SENTENCES, **DOCUMENTS, **BAGS}


def label_counts(config: Config, base: Path) -> dict[str, Counter[str]]:
    """How many examples of each label the task finds in train and test."""
    documents = _parts(config, base)
    task = config.make_task(documents["train"])
    return {part: Counter(e.label for e in task.examples(documents[part])[0]) for part in ("train", "test")}


@dataclass(frozen=True)
class PairCounts:
    """What a part of a corpus asks about."""

    documents: int
    positive: int
    negative: int


def pair_counts(config: Config, base: Path) -> dict[str, PairCounts]:
    """Of document_re, in each part that has files of its own."""
    parts = _parts(config, base)
    task = config.make_task([d for part in parts.values() for d in part])
    counted = {}
    for part, documents in parts.items():
        examples = [example for example in task.examples(documents)[0] if isinstance(example, DocumentExample)]
        related = Counter(bool(answers) for example in examples for answers in example.gold)
        counted[part] = PairCounts(len(documents), related[True], related[False])
    return counted


def partitioned(config: Config, base: Path, name: str) -> PartitionRows:
    """All of train as the config partitions it."""
    documents = _parts(config, base)["train"]
    task = config.make_task(documents)
    examples = task.examples(documents)[0]
    chosen = config.partition
    found = partition(
        task.units(examples, documents, chosen.unit or task.unit),
        chosen.scheme,
        sites=chosen.sites,
        seed=config.seed,
        entropy=chosen.entropy,
        edges=chosen.edges,
    )
    rows = found.table([task.answers(example) for example in examples], [str(example.document) for example in examples])
    return PartitionRows(rows, found.left_out, name)


def _parts(config: Config, base: Path) -> dict[str, tuple[Document, ...]]:
    data = config.data
    given = {"train": data.train, "validation": data.validation, "test": data.test}
    files = {part: paths for part, paths in given.items() if not isinstance(paths, float | int)}
    if data.format not in GENERATED:
        files = {part: paths for part, paths in files.items() if paths}
    return {
        part: read_source(data.source(paths_of(paths, base), LabelMap(data.map_labels)), part, Counter())
        for part, paths in files.items()
    }
