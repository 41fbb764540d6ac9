"""What the task joint sees in ADE, BioRED and CDR: constraints, and what its windows can't hold."""

from __future__ import annotations

from typing import Any

import pytest

from grandrounds.data.formats import read
from grandrounds.tasks.joint import SECOND, Joint, JointOptions
from grandrounds.tasks.ner_coding import SAME_WORDS, too_long
from grandrounds.tasks.ner_words import WIDENED
from tests.real.corpora import DATA

pytestmark = pytest.mark.real
ABSTRACT = {"sentences": 40}
UNORDERED = {**ABSTRACT, "ordered": False}


@pytest.mark.parametrize(
    ("file", "format", "options", "windows", "triples", "concepts", "missed"),
    [
        ("ade-corpus/DRUG-AE.rel", "ade", {}, 4271, 1, False, {}),
        (
            "biored/Train.PubTator",
            "pubtator",
            UNORDERED,
            400,
            43,
            True,
            {SAME_WORDS: 14, SECOND: 327},
        ),
        ("cdr/pubtator/CDR_TrainingSet.PubTator.txt", "pubtator", ABSTRACT, 500, 1, True, {}),
    ],
)
def test_windows_hold_every_relation(
    file: str,
    format: str,
    options: dict[str, Any],
    windows: int,
    triples: int,
    concepts: bool,
    missed: dict[str, int],
) -> None:
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not beside the project; set GRANDROUNDS_DATA")
    documents = read(DATA / file, format).documents
    task = Joint.of(JointOptions(**options), documents)
    examples, warnings = task.examples(documents)
    found = {what: n for what, n in warnings.items() if what not in (WIDENED, too_long(10))}
    assert (len(examples), len(task.triples), task.concepts, found) == (windows, triples, concepts, missed)
