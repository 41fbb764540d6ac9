"""Wherever a corpus is missing, it is said where it can be had, which files go where, and how they must be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grandrounds.papers.corpora import CORPORA, PaperCorpus
from grandrounds.papers.fedbert_stages import NOTES, STAGES
from grandrounds.papers.platforms import PLATFORMS
from grandrounds.papers.sources import SOURCES

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "reproduce.md"
EVERY: list[PaperCorpus] = [
    *CORPORA.values(),
    *(corpus for platforms in PLATFORMS.values() for corpus in platforms.corpora),
    *(notes.corpus for notes in NOTES.values()),
    *(stages.entities for stages in STAGES.values() if stages.entities),
]
FILED = {corpus.source or corpus.name: corpus for corpus in EVERY if corpus.train}


def paths(corpus: PaperCorpus) -> list[str]:
    trains = corpus.train if isinstance(corpus.train, tuple) else (corpus.train,)
    return [path for path in (*trains, corpus.validation, corpus.test) if isinstance(path, str)]


@pytest.mark.parametrize("name", FILED)
def test_a_missing_corpus_says_where_it_is_to_be_had_and_how_it_must_lie(name: str, tmp_path: Path) -> None:
    said = FILED[name].missing(tmp_path)
    assert said is not None
    assert said.startswith(f"{FILED[name].title} is missing (it is not under --data): ")
    assert all(path in said for path in paths(FILED[name]))
    assert said.endswith(f"under the folder that --data names ({SOURCES[name].form})")
    assert re.search(r"\w+\.(com|edu|org|uk|au)\b|20\d\d|BioCreative", said)
    assert "; " not in said  # which parts one corpus's sentence from the next one's


def test_every_source_is_some_corpus_s() -> None:
    assert set(SOURCES) == {*FILED, "server-text"}
    for name in ("i2b2", "i2b2-2012", "mimic-iii"):
        assert "agreement" in SOURCES[name].how


@pytest.mark.parametrize("name", FILED)
def test_the_manual_names_every_corpus_s_place(name: str) -> None:
    """Several parts are written as one path with braces, so folders are looked for."""
    manual = DOCS.read_text("utf-8")
    assert all(f"`{path.rpartition('/')[0] or path}/" in manual for path in paths(FILED[name]))
