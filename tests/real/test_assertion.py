"""The rules on the annotated mentions of mtsamples, as docs/explanation/assertion.md has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from experiments.assertion import annotated, counted, ours

from grandrounds.metrics.relation_f1 import precision_recall_f1
from grandrounds.pipeline.assertion import CATEGORIES

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("GRANDROUNDS_DATA", ROOT.parent / "shared" / "data"))
NOTES = DATA / "text" / "mtsamples.jsonl"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not NOTES.is_file(), reason="mtsamples is not beside the project; set GRANDROUNDS_DATA"),
]


def test_assertions_are_as_good_as_was_measured() -> None:
    documents, gold, strata = annotated(NOTES)
    assert (len(documents), sum(map(len, gold))) == (264, 448)
    assert sum(stratum == "random" for report in strata for stratum in report) == 121
    found = ours(documents)
    f1 = {c: precision_recall_f1(*counted(gold, found, (c,)).sum(axis=0))["f1"] for c in CATEGORIES}
    assert f1 == pytest.approx(
        {"negated": 0.929, "possible": 0.741, "family": 0.949, "historical": 0.843, "conditional": 0.820}, abs=0.0005
    )
