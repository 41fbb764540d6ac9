"""Sites with label sets, tag schemes and test sets of their own, which nobody else needs to know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import grandrounds
from grandrounds.errors import ConfigError
from grandrounds.experiment.config import make_config
from grandrounds.experiment.simulation import prepare
from tests.conftest import corpus, write_corpus
from tests.experiment.crashes import metrics, timeless
from tests.federation.test_flower import models, run_over_grid
from tests.hosts import annotated

Content = Callable[..., dict[str, Any]]
KNOWN = {"charity": ("treatment", "problem"), "mercy": ("test",)}
"""Which types each hospital annotates; what the other one does, it leaves as text."""


@pytest.fixture
def content(tmp_path: Path) -> Content:
    def make(algorithm: dict[str, Any], sites: dict[str, dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
        tables = {}
        for name, types in KNOWN.items():
            for part, size in (("train", 48), ("test", 16)):
                write_corpus(tmp_path / f"{name}-{part}.jsonl", annotated(corpus(size, f"{name}{part}"), types))
            tables[name] = {part: str(tmp_path / f"{name}-{part}.jsonl") for part in ("train", "test")}
            tables[name] |= (sites or {}).get(name, {})
        return {
            "device": "cpu",
            "task": {"name": "ner", "filters": 16, "hidden": 16, "character_width": 8},
            "data": {"format": "json", "public": 0.2},
            "sites": tables,
            "model": {"encoder": "words"},
            "training": {"learning_rate": 5e-3, "optimizer": "adam", "batch_size": 8},
            "federation": {"rounds": 3},
            "algorithm": algorithm,
            **more,
        }

    return make


FEDNER = {"name": "fedner", "batch": 16, "iterations": 40}


def test_each_site_has_the_labels_of_its_own_corpus(content: Content, tmp_path: Path) -> None:
    result = grandrounds.run(content(FEDNER, {"mercy": {"task": {"scheme": "BIOES"}}}), out=tmp_path / "run")
    about = {
        path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "run").glob("models/*/grandrounds.json")
    }
    assert {name: set(saved["schema"]["types"]) for name, saved in about.items()} == {
        name: set(types) for name, types in KNOWN.items()
    }
    assert {name: saved["schema"]["options"]["scheme"] for name, saved in about.items()} == {
        "charity": "BIO",
        "mercy": "BIOES",
    }
    learners = result["test"]["learners"]
    assert min(score["f1"] for score in learners.values()) > 0.7
    assert set(result["test"]["per_class"]) == {"treatment", "problem", "test"}
    weights = {name: load_file(tmp_path / "run" / "models" / name / "model.safetensors") for name in KNOWN}
    assert weights["charity"]["cnn.convolution.weight"].equal(weights["mercy"]["cnn.convolution.weight"])
    found = grandrounds.load(tmp_path / "run" / "models" / "mercy").extract(corpus(2)[1])
    assert {mention.type for mention in found.mentions} == {"test"}


def test_over_the_grid_each_has_the_bits_of_one_process(content: Content, tmp_path: Path) -> None:
    made = content({**FEDNER, "iterations": 4}, {"mercy": {"task": {"scheme": "BIOES"}}}, federation={"rounds": 2})
    grandrounds.run(made, out=tmp_path / "process")
    run_over_grid(made, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "process"))


def test_alone_they_differ_in_everything(content: Content, tmp_path: Path) -> None:
    grandrounds.run(content({"name": "local_only"}), out=tmp_path / "run")
    weights = {name: load_file(tmp_path / "run" / "models" / name / "model.safetensors") for name in KNOWN}
    assert not weights["charity"]["cnn.convolution.weight"].equal(weights["mercy"]["cnn.convolution.weight"])


def test_with_nothing_private_all_have_the_union_of_labels(content: Content, tmp_path: Path) -> None:
    grandrounds.run(content({**FEDNER, "private": [], "iterations": 2}), out=tmp_path / "run")
    about = {
        path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "run").glob("models/*/grandrounds.json")
    }
    assert {tuple(saved["schema"]["types"]) for saved in about.values()} == {("problem", "test", "treatment")}


def test_a_share_for_validation_stays_at_its_site(content: Content, tmp_path: Path) -> None:
    made = content(FEDNER)
    made["data"]["validation"] = 0.2
    result = grandrounds.run(made, out=tmp_path / "run")
    assert result["best_round"] is not None
    assert set(result["validation"]["learners"]) == set(KNOWN)


def test_a_share_for_the_test_stays_at_its_site_and_is_no_other_seed_s(content: Content, tmp_path: Path) -> None:
    made = content({**FEDNER, "iterations": 2}, {name: {"test": 0.25} for name in KNOWN})
    held = {}
    for seed in (1, 2):
        simulation = prepare(make_config({**made, "seed": seed}), tmp_path, tmp_path / f"run{seed}")
        for name, resident in simulation.residents.items():
            train, test = (len(resident.splits[part].rows) for part in ("train", "test"))
            # Of 48 documents, a fifth is public: test takes its quarter of all of them, not of what is left.
            assert test / (train + test) == pytest.approx(0.25 / 0.8, abs=0.03)
            split = resident.splits["test"]
            held[seed, name] = [split.features.said.gold[row] for row in split.rows]  # type: ignore[attr-defined]
    assert all(held[1, name] == held[2, name] for name in KNOWN)
    for share in (-0.1, 0.8):
        made["sites"]["charity"]["test"] = share
        with pytest.raises(ConfigError, match=r"sites\.charity\.test are shares of train .*: together below 1"):
            make_config(made)


def test_what_one_model_for_all_can_t_have_is_refused(content: Content, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sites\.charity has data of its own to be tested on, but 'fedavg'"):
        grandrounds.run(content({"name": "fedavg"}), out=tmp_path / "run")
    other = content({**FEDNER, "private": []}, {"mercy": {"task": {"scheme": "BIOES"}}})
    with pytest.raises(ConfigError, match=r"sites\.mercy\.task is different, but 'fedner' needs one task"):
        grandrounds.run(other, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"unknown config key 'sites\.mercy\.task\.sheme'"):
        grandrounds.run(content(FEDNER, {"mercy": {"task": {"sheme": "BIO"}}}), out=tmp_path / "run")
    shared = content({**FEDNER, "private": ["lstm"]})
    with pytest.raises(ConfigError, match="is shared, but has the shape"):
        grandrounds.run(shared, out=tmp_path / "run")
