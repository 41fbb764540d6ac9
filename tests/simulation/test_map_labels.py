"""`data.map_labels` and `data.lenient`: applied once, when documents are read, for every task and every site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grandrounds.config.schema import make_config
from grandrounds.data import labels
from grandrounds.errors import ConfigError, DataError
from grandrounds.simulation.prepare import Simulation, prepare
from grandrounds.tasks.task import NONE
from tests.conftest import TinyConfig, corpus, write_corpus

NER = {"name": "ner", "tagger": "bert"}


def made(tiny_config: TinyConfig, tmp_path: Path, **overrides: Any) -> Simulation:
    return prepare(make_config(tiny_config(**overrides)), Path(), tmp_path)


def test_types_are_the_same_for_every_task(tiny_config: TinyConfig, tmp_path: Path) -> None:
    renamed = {"test": "exam", "treatment": "", "TeRP": "shows"}
    relations = made(tiny_config, tmp_path, **{"data.map_labels": renamed})
    assert set(relations.spec.task.labels) == {NONE, "shows"}
    assert relations.warnings[labels.MENTIONS] > 0
    assert relations.warnings[labels.RELATIONS] > 0
    mentions = made(tiny_config, tmp_path, **{"data.map_labels": renamed, "task": NER})
    assert set(mentions.spec.task.labels) == {NONE, "exam", "problem"}


def test_a_site_may_have_names_of_its_own(tiny_config: TinyConfig, tmp_path: Path) -> None:
    both = {name: {"train": str(write_corpus(tmp_path / f"{name}.jsonl", corpus(40, name)))} for name in "ab"}
    both["b"] |= {"map_labels": {"treatment": "drug"}}
    own = {"data.train": None, "partition": {}, "task": NER, "data.public": 0.0, "data.validation": 0.0}
    simulation = made(tiny_config, tmp_path, **own, sites=both, **{"data.map_labels": {"test": "exam"}})
    assert set(simulation.spec.task.labels) == {NONE, "drug", "exam", "problem", "test", "treatment"}
    both["b"] = {**both["b"], "map_labels": {"treatmen": "drug"}}
    with pytest.raises(ConfigError, match=r"^sites\.b\.map_labels: unknown type 'treatmen'; did you mean 'treatment'"):
        made(tiny_config, tmp_path, **own, sites=both)


def test_unknown_names_are_refused_with_the_nearest(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data\.map_labels: unknown type 'TerP'; did you mean 'TeRP'\?"):
        made(tiny_config, tmp_path, **{"data.map_labels": {"TerP": "shows"}})


def test_a_lenient_run_counts_what_breaks_the_format(tiny_config: TinyConfig, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "train.jsonl", corpus(60))
    path.write_text(path.read_text() + '{"id": "x"}\n')
    with pytest.raises(DataError, match=r"train\.jsonl:61: document lacks 'text'"):
        made(tiny_config, tmp_path, **{"data.train": str(path)})
    simulation = made(tiny_config, tmp_path, **{"data.train": str(path), "data.lenient": True})
    assert simulation.warnings["left out: document lacks 'text'"] == 1
