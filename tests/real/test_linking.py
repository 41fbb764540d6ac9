"""Links and entities on CDR are what docs/results says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from experiments.linking import on_cdr

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("GRANDROUNDS_DATA", ROOT.parent / "shared" / "data"))

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (DATA / "cdr").is_dir(), reason="CDR is not beside the project; set GRANDROUNDS_DATA"),
]


def test_cdr_gives_the_published_figures(tmp_path: Path) -> None:
    published = json.loads((ROOT / "docs/results/linking.json").read_text(encoding="utf-8"))
    measured = json.loads(json.dumps(on_cdr(DATA, tmp_path)))
    for part in ("dictionary", "threshold", "test", "entities"):
        assert measured[part] == published[part]
    right = {name: found["all"]["right"] for name, found in measured["test"].items()}
    assert right["exact"] < right["normalised"] < right["abbreviations"] < right["similar"]
