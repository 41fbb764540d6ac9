"""Which runs a comparison over partitions and corpora has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.simulation.cells import Cell, cells_of

DATA = {"format": "json", "train": "train.jsonl", "test": "test.jsonl"}
OUT = Path("out")


def cells(partitions: list[str], **content: Any) -> list[Cell]:
    config = make_config({"data": DATA, "partition": {"scheme": "dirichlet", "alpha": 1.0, "sites": 7}, **content})
    return cells_of({None: config}, ["fedavg", "centralized"], [1, 2], OUT, partitions)


def test_a_partition_keeps_sites_and_unit_and_nothing_else_of_the_config_s() -> None:
    own = {"scheme": "structural_entropy", "entropy": "code", "sites": 7, "unit": "patient"}
    found = cells(["iid", "dirichlet:0.1", "by:hospital", "time:year"], partition=own)
    made = [cell.arms[0].config.partition.model_dump(exclude_none=True) for cell in found]
    assert made == [
        {"scheme": "iid", "sites": 7, "unit": "patient"},
        {"scheme": "dirichlet", "alpha": 0.1, "sites": 7, "unit": "patient"},
        {"scheme": "by", "by": "hospital", "unit": "patient"},
        {"scheme": "time", "by": "year", "sites": 7, "unit": "patient"},
    ]
    assert [cell.folder for cell in found] == [
        *(OUT / "iid", OUT / "dirichlet-0.1", OUT / "by-hospital", OUT / "time-year")
    ]


def test_without_partitions_a_comparison_is_one_cell_as_ever() -> None:
    (cell,) = cells([])
    assert (cell.name, cell.folder) == ("", OUT)
    assert [arm.folder.name for arm in cell.arms[:2]] == ["fedavg-seed1", "fedavg-seed2"]


def test_centralised_training_is_shared_by_partitions_unless_its_data_follow_from_them() -> None:
    def folders(**content: Any) -> int:
        found = cells(["iid", "dirichlet:0.1"], **content)
        return len({arm.folder for cell in found for arm in cell.arms if arm.name == "centralized"})

    assert folders() == 2  # of two seeds
    assert folders(model={"encoder": "new", "vocabulary": "sites"}) == 4
    assert folders(task={"name": "ner"}, data={**DATA, "mask_overlap": 0.5}) == 4


def test_where_sites_have_corpora_there_is_nothing_to_partition() -> None:
    sites = {"a": {"train": "a.jsonl"}, "b": {"train": "b.jsonl"}}
    with pytest.raises(ConfigError, match=r"here \[sites\] have corpora of their own"):
        cells(["iid"], sites=sites, partition={}, data={"format": "json", "test": "test.jsonl"})


def test_two_partitions_in_one_folder_are_refused() -> None:
    with pytest.raises(ConfigError, match="'by:a b' and 'by:a-b' would be written to one folder"):
        cells(["by:a b", "by:a-b"])
