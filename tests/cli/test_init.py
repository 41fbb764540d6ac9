"""`init` writes a config that starts."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from grandrounds.config.schema import load_config
from grandrounds.data.formats import write
from grandrounds.simulation.prepare import prepare
from tests.cli.commands import run
from tests.conftest import corpus, write_corpus
from tests.tasks.documents import nested


def test_a_config_is_written_that_starts(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus" / "train.jsonl", corpus(60))
    write_corpus(tmp_path / "corpus" / "test.jsonl", corpus(24, "t"))
    config = tmp_path / "made" / "own.toml"
    told = run("init", tmp_path / "corpus", "--out", config, "--json").json()
    assert (told["documents"], told["tasks"]) == (84, ["sentence_re", "distant_re", "ner", "masked_lm"])
    content = tomllib.loads(config.read_text())
    assert content["task"] == {"name": "sentence_re", "labels": ["TeRP", "TrIP"]}
    assert content["data"] == {
        "format": "json",
        "public": 0.1,
        "validation": 0.1,
        "train": "../corpus/train.jsonl",
        "test": "../corpus/test.jsonl",
    }
    assert content["partition"] == {"scheme": "by", "by": "hospital"}
    ready = prepare(load_config(config), config.parent, tmp_path / "run")
    assert len(ready.sites) == 4
    assert "is there already" in run("init", tmp_path / "corpus", "--out", config).complaint()


def test_nested_mentions_get_a_tagger_that_finds_them(tmp_path: Path) -> None:
    write("brat", nested(40), tmp_path / "corpus")
    reported = run("init", tmp_path / "corpus", "--out", tmp_path / "ner.toml").good()
    assert "40 documents in the format brat; ner (--task may also be masked_lm)" in reported.stderr
    content = tomllib.loads((tmp_path / "ner.toml").read_text())
    assert content["task"] == {"name": "ner", "labels": ["problem", "treatment"], "tagger": "spans"}
    assert (content["data"]["train"], content["data"]["test"]) == ("corpus", 0.2)
    assert content["partition"] == {"scheme": "iid", "sites": 5, "unit": "document"}
    ready = prepare(load_config(tmp_path / "ner.toml"), tmp_path, tmp_path / "run")
    assert len(ready.sites) == 5


@pytest.mark.parametrize(("task", "complaint"), [("ner", ""), ("document_re", "unknown task 'document_re'")])
def test_another_task_may_be_named_if_the_corpus_allows_it(task: str, complaint: str, tmp_path: Path) -> None:
    write("brat", [replace(d, attributes={}) for d in corpus(12)], tmp_path / "corpus")
    outcome = run("init", tmp_path / "corpus", "--task", task, "--out", tmp_path / "x.toml")
    if complaint:
        assert complaint in outcome.complaint()
    else:
        outcome.good()
        assert load_config(tmp_path / "x.toml").task["name"] == task
