"""Sets of three platforms, each with a corpus, entity types and a test of its own, and what is counted in them.

The order is that of the paper's: the first is CADEC or stands in its place, then the ADE corpus, then SMM4H.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config
from grandrounds.data.corpora import SYNTHETIC, Source, read_source
from grandrounds.data.documents import Document
from grandrounds.data.masking import overlapping
from grandrounds.papers.corpora import PaperCorpus
from grandrounds.registry import TASKS
from grandrounds.setup.corpora import paths_of

ROLES = ("CADEC", "ADE Corpus", "SMM4H")
"""As the paper's tables call its platforms."""
THEIRS, AT_HAND = "cadec-ade-smm4h", "three-platforms"
LEARNT_WORDS = 0.1
"""Without word vectors, the share of every train that is the server's, to learn the words from."""


@dataclass(frozen=True)
class Platforms:
    title: str
    corpora: Sequence[PaperCorpus]
    batches: Sequence[int]
    """N_i of the paper's N = 64, by which a platform alone takes as many steps an epoch as all of them together."""
    iterations: int
    """Of a round: as many as make the epochs."""
    epochs: int = 1
    """Of a round."""
    public: str | float = LEARNT_WORDS
    """The server's text: the words that a tagger knows."""
    vectors: str | None = None
    """Word vectors to begin with, if they are there."""
    nearest: str = SYNTHETIC

    def missing(self, data: Path | None) -> str | None:
        sentences = [corpus.missing(data) for corpus in self.corpora]
        if isinstance(self.public, str):
            text = PaperCorpus("server-text", "the server's text", "conll", self.public)
            sentences.append(text.missing(data))
        return "; ".join(filter(None, sentences)) or None

    def tables(self) -> dict[str, Any]:
        """[sites] of a config."""
        return {
            corpus.name: {**corpus.section(), "training": {"batch_size": batch}}
            for corpus, batch in zip(self.corpora, self.batches, strict=True)
        }

    def of_role(self, role: str) -> PaperCorpus:
        return self.corpora[ROLES.index(role)]

    def called(self, role: str) -> str:
        """The platform of this role, openly where it is another one."""
        title = self.of_role(role).title
        return title if self.of_role(role) is PLATFORMS[THEIRS].of_role(role) else f"{title}, in the place of {role}"


ADE = PaperCorpus(
    "ade",
    "ADE corpus",
    "ade",
    ("ade-corpus/DRUG-AE.rel", "ade-corpus/DRUG-DOSE.rel"),
    0.2,
)


def _synthetic(number: int, name: str, *types: str) -> PaperCorpus:
    options = {"hospitals": 1, "notes": 60, "first": number, "types": list(types)}
    return PaperCorpus(name, f"{name} (synthetic)", SYNTHETIC, options=options)


PLATFORMS = {
    THEIRS: Platforms(
        "the set of CADEC, the ADE corpus and SMM4H",
        (
            PaperCorpus(
                "cadec",
                "CADEC",
                "cadec",
                "cadec",
                0.2,
            ),
            ADE,
            PaperCorpus(
                "smm4h",
                "SMM4H",
                "smm4h",
                "smm4h/train.tsv",
                0.2,
            ),
        ),
        batches=(34, 20, 10),
        iterations=160,
        nearest=AT_HAND,
    ),
    AT_HAND: Platforms(
        "the set of PsyTAR, the ADE corpus and BC5CDR",
        (
            PaperCorpus(
                "psytar",
                "PsyTAR",
                "conll",
                ("psytar/train.txt", "psytar/dev.txt"),
                "psytar/test.txt",
            ),
            ADE,
            PaperCorpus(
                "bc5cdr",
                "BC5CDR",
                "conll",
                "bc5cdr-ner/train.tsv",
                "bc5cdr-ner/test.tsv",
            ),
        ),
        batches=(23, 17, 24),
        iterations=173,
        public="bc5cdr-ner/devel.tsv",
        vectors="vocab/glove.6B.50d.head.txt",
    ),
    SYNTHETIC: Platforms(
        "the set of three synthetic hospitals",
        (
            _synthetic(1, "st-anne", "problem", "test"),
            _synthetic(2, "riverside", "problem", "treatment"),
            _synthetic(3, "northgate", "treatment"),
        ),
        batches=(22, 22, 20),
        iterations=40,
        epochs=3,
    ),
}


@dataclass(frozen=True)
class Counted:
    """What a platform holds, train and test together."""

    sentences: int
    types: Sequence[str]
    mentions: int
    names: frozenset[str]
    """Of its entities, as they are written."""


def count_platforms(config: Config, base: Path) -> dict[str, Counted]:
    """Of each platform."""
    counted = {}
    for name in config.sites:
        documents = _documents(config, name, base)
        task = TASKS["ner"].of(config.task_options_at(name), documents)
        counted[name] = Counted(
            len(task.examples(documents)[0]),
            task.labels[1:],
            sum(len(document.mentions) for document in documents),
            frozenset(" ".join(d.surface(mention).split()) for d in documents for mention in d.mentions),
        )
    return counted


def shared_names(counted: Mapping[str, Counted], alike: Callable[[str], str] = str) -> int:
    """How many entities several platforms have."""
    return len(overlapping(map(alike, platform.names) for platform in counted.values()))


def _documents(config: Config, name: str, base: Path) -> list[Document]:
    site = config.sites[name]
    found: list[Document] = []
    for part, paths in (("train", site.train), ("test", site.test)):
        if isinstance(paths, str | list) or (paths is None and site.generated):
            source = Source(site.format or config.data.format, paths_of(paths, base), site.options or {})
            found += read_source(source, part, Counter())
    return found
