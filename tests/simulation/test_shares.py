"""Shares of train are made of whole documents, and of whole patients where documents name one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document
from grandrounds.data.partition import share
from grandrounds.data.synthetic import synthesize
from grandrounds.simulation.prepare import Simulation, held_out, prepare
from grandrounds.tasks.sentence_re import SentenceRE, SentenceREOptions
from tests.conftest import TinyConfig, corpus, write_corpus

SHARES = {"data.public": 0.2, "data.validation": 0.2, "data.test": 0.2}


def anonymous(document: Document) -> Document:
    kept = {name: value for name, value in document.attributes.items() if name != "patient"}
    return replace(document, attributes=kept)


@pytest.fixture(scope="module")
def notes() -> list[Document]:
    """Of several sentences each; every third does not say whose it is."""
    made = synthesize(hospitals=2, notes=30).train
    return [anonymous(note) if i % 3 == 0 else note for i, note in enumerate(made)]


def sides(simulation: Simulation) -> dict[str, Counter[int]]:
    """How many rows of each document stand on each side."""
    splits = {part: [split] for part, split in simulation.splits.items() if part != "public"}
    splits["train"] = [site_data.splits["train"] for site_data in simulation.sites.values()]
    held = {part: Counter(int(i) for split in some for i in split.documents) for part, some in splits.items()}  # type: ignore[union-attr]
    public = simulation.splits["public"]
    assert public.documents is not None
    labelled = range(len(public)) if public.labelled is None else public.labelled.tolist()
    held["public"] = Counter(int(public.documents[i]) for i in labelled)
    held["unlabelled"] = Counter(int(public.documents[i]) for i in set(range(len(public))) - set(labelled))
    return {part: counts for part, counts in held.items() if counts}


TASKS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "sentence_re", "max_length": 32}, {"data.unlabelled": 0.2}),
    ({"name": "sentence_re", "max_length": 32}, {"partition.unit": "example", "data.train_share": 0.5}),
    ({"name": "ner", "tagger": "bert"}, {}),
    ({"name": "ner", "tagger": "bert"}, {"data.train_share": 0.5}),
]


@pytest.mark.parametrize(("task", "more"), TASKS, ids=["sentence_re", "re by example", "ner", "ner, half of train"])
def test_no_document_and_no_patient_stands_on_two_sides(
    task: dict[str, Any], more: dict[str, Any], notes: list[Document], tiny_config: TinyConfig, tmp_path: Path
) -> None:
    path = write_corpus(tmp_path / "notes.jsonl", notes)
    content = tiny_config(**{"task": task, "data.train": str(path), **SHARES, **more})
    simulation = prepare(make_config(content), Path(), tmp_path)
    held = sides(simulation)
    expected = {"public", "validation", "test", "train"} | ({"unlabelled"} if "data.unlabelled" in more else set())
    assert held.keys() == expected
    whole = Counter(example.document for example in simulation.spec.task.examples(notes)[0])
    for part, counts in held.items():
        assert max(counts.values()) > 1  # there was something to tear apart
        assert all(whole[i] == number for i, number in counts.items()), part
    patients = {part: {notes[i].attributes.get("patient") for i in counts} - {None} for part, counts in held.items()}
    for one, other in combinations(held, 2):
        assert not held[one].keys() & held[other].keys()
        assert not patients[one] & patients[other]
    if "data.train_share" not in more:
        assert set().union(*held.values()) == whole.keys()
    torn = [site_data.splits["train"].documents for site_data in simulation.sites.values()]
    assert len(set().union(*map(set, torn))) < sum(len(set(some)) for some in torn)  # type: ignore[arg-type]


def test_what_a_run_is_tested_on_is_nothing_that_anybody_trains_on(
    notes: list[Document], tiny_config: TinyConfig, tmp_path: Path
) -> None:
    path = write_corpus(tmp_path / "notes.jsonl", notes)
    config = make_config(tiny_config(**{"data.train": str(path), **SHARES}))
    held = sides(prepare(config, Path(), tmp_path))
    tested = {document.id for document in held_out(config, Path())}
    assert tested == {notes[i].id for i in held["test"]}


def test_documents_of_one_sentence_that_name_no_patient_are_dealt_as_sentences(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    documents = [anonymous(document) for document in corpus(60)]
    path = write_corpus(tmp_path / "train.jsonl", documents)
    content = tiny_config(**{"data.train": str(path), "data.validation": 0.0})
    task = SentenceRE.of(SentenceREOptions(), documents)
    units = task.units(task.examples(documents)[0], documents, "sentence")
    taken, _ = share(units, 0.2, 1, "public")
    found = prepare(make_config(content), Path(), tmp_path).splits["public"].rows.tolist()
    assert found == sorted(row for unit in taken for row in unit.examples)
    assert len(found) == 12
