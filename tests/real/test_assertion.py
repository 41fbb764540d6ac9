"""The rules on the annotated mentions of mtsamples are as good as docs/results says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from experiments.assertion import annotated, ours, scores

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
    published = json.loads((ROOT / "docs/results/assertion.json").read_text(encoding="utf-8"))
    ours_alone = {"Grand Rounds": (ours(documents), CATEGORIES)}
    measured = json.loads(json.dumps(list(scores(ours_alone, gold))))
    assert measured == [row for row in published["all"]["rows"] if row["system"] == "Grand Rounds"]
    assert [row["category"] for row in measured] == [*CATEGORIES, "all five"]
    assert measured[-1]["f1"][0] == pytest.approx(0.860, abs=0.0005)
