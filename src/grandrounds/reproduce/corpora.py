"""The corpora that papers use: where they lie under --data, and how to obtain them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grandrounds.data.corpora import SYNTHETIC, Source, read_source
from grandrounds.data.documents import Document
from grandrounds.experiment.config import Config
from grandrounds.tasks import TASKS

BIOBERT = "take BioBERT's relation-extraction archive (github.com/dmis-lab/biobert) and put"


@dataclass(frozen=True)
class PaperCorpus:
    """A corpus by the name that `--corpus` knows it by."""

    name: str
    title: str
    format: str
    train: str | None = None
    test: str | None = None
    how: str = ""
    """How to obtain it, after '<title> is not there: '."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def section(self) -> dict[str, Any]:
        """[data] of a config."""
        paths = {part: path for part, path in (("train", self.train), ("test", self.test)) if path}
        return {"format": self.format, **paths, "options": dict(self.options)}

    def missing(self, data: Path | None) -> str | None:
        """A sentence that says how to get it; None where it is there."""
        paths = [path for path in (self.train, self.test) if path]
        if all(data is not None and (data / path).exists() for path in paths):
            return None
        where = "--data is not given" if data is None else "it is not under --data"
        return f"{self.title} is missing ({where}): {self.how} {' and '.join(paths)} under the folder that --data names"


CORPORA: dict[str, PaperCorpus] = {
    corpus.name: corpus
    for corpus in (
        PaperCorpus(
            "i2b2",
            "i2b2 2010",
            "i2b2-2010",
            "i2b2-2010/train",
            "i2b2-2010/test",
            "sign the data use agreement at the n2c2 portal of Harvard's DBMI (portal.dbmi.hms.harvard.edu) and put "
            "its folders of .txt, .con and .rel files in",
        ),
        PaperCorpus("gad", "GAD", "biobert-tsv", "gad/1/train.tsv", "gad/1/test.tsv", BIOBERT),
        PaperCorpus("eu-adr", "EU-ADR", "biobert-tsv", "eu-adr/1/train.tsv", "eu-adr/1/test.tsv", BIOBERT),
        PaperCorpus(SYNTHETIC, "the synthetic corpus", SYNTHETIC, options={"hospitals": 6, "notes": 60}),
    )
}


def label_counts(config: Config, base: Path) -> dict[str, Counter[str]]:
    """How many examples of each label the task finds in train and test."""
    documents = {part: _read(config, part, base) for part in ("train", "test")}
    task = TASKS[config.task["name"]].of(config.task_options(), documents["train"])
    return {part: Counter(example.label for example in task.examples(read)[0]) for part, read in documents.items()}


def _read(config: Config, part: str, base: Path) -> tuple[Document, ...]:
    given = config.data.train if part == "train" else config.data.test
    paths = [given] if isinstance(given, str) else given or []
    source = Source(config.data.format, [base / path for path in paths], config.data.options)
    return read_source(source, part, Counter())
