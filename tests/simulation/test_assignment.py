"""What goes to which site: nothing that is kept whole is ever torn apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grandrounds.config.schema import make_config
from grandrounds.data.synthetic import synthesize
from grandrounds.setup.examples import Examples
from grandrounds.simulation.assignment import Assignment
from grandrounds.simulation.sources import read_corpora
from tests.conftest import write_corpus


@pytest.mark.parametrize("unit", ["document", "patient"])
@pytest.mark.parametrize("scheme", [{"scheme": "quantity", "alpha": 0.5}, {"scheme": "time", "by": "year"}])
def test_a_document_and_a_patient_stay_whole(tmp_path: Path, scheme: dict[str, Any], unit: str) -> None:
    notes = synthesize(hospitals=2, notes=20, test=2)
    dated = [replace(d, attributes={**d.attributes, "year": str(1990 + i % 7)}) for i, d in enumerate(notes.train)]
    train, test = write_corpus(tmp_path / "train.jsonl", dated), write_corpus(tmp_path / "test.jsonl", [*notes.test])
    config = make_config(
        {
            "data": {"format": "json", "train": str(train), "test": str(test)},
            "partition": {**scheme, "sites": 4, "unit": unit},
        }
    )
    corpora = read_corpora(config, Path())
    task = config.make_task(corpora.labelled())
    examples = Examples(task, corpora.documents, task.examples(corpora.documents)[0])
    sites = Assignment(config, corpora.parts, examples).partition.sites
    homes: dict[str, set[str]] = {}
    for site, rows in sites.items():
        for document in (examples.documents[examples.all[row].document] for row in rows):
            homes.setdefault(document.id if unit == "document" else document.attributes["patient"], set()).add(site)
    held = [row for rows in sites.values() for row in rows]
    trained = [row for row, example in enumerate(examples.all) if example.document < len(dated)]
    assert sorted(held) == trained  # each example once
    assert len(sites) > 2
    assert len(trained) > 2 * len(homes)
    assert all(len(where) == 1 for where in homes.values())
