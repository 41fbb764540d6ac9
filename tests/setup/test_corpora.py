"""Corpora by part, and which of them may show a label set."""

from __future__ import annotations

from pathlib import Path

from grandrounds.data.corpora import UNLABELLED, Source
from grandrounds.data.formats import write
from grandrounds.setup.corpora import Corpora
from tests.conftest import corpus


def test_a_label_set_is_read_from_nothing_that_is_tested_on_nor_from_unlabelled_text(tmp_path: Path) -> None:
    corpora = Corpora()
    for part, kind in (
        ("train of mercy", "train"),
        ("validation of mercy", "validation"),
        ("test of mercy", "test"),
        ("public", None),
        ("test", None),
        (UNLABELLED, None),
    ):
        path = tmp_path / f"{part}.jsonl"
        write("json", corpus(2, prefix=part), path)
        corpora.add(part, Source("json", [path], {}), kind)
    assert [document.id for document in corpora.labelled()] == [
        f"{part}{i:03}" for part in ("train of mercy", "validation of mercy", "public") for i in range(2)
    ]
