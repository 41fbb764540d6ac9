"""Sites with label sets, tag schemes and test sets of their own, which nobody else needs to know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data.synthetic import synthesize
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import TinyConfig, corpus
from tests.deployment.grids import run_over_grid
from tests.hosts import KNOWN, own_labels
from tests.simulation.crashes import metrics, models, timeless

Content = Callable[..., dict[str, Any]]


@pytest.fixture
def content(tmp_path: Path) -> Content:
    def make(algorithm: dict[str, Any], sites: dict[str, dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
        made = {**own_labels(tmp_path, algorithm), "federation": {"rounds": 3}, **more}
        for name, own in (sites or {}).items():
            made["sites"][name] |= own
        return made

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
    learners = result.test.learners
    assert min(score.f1 for score in learners.values()) > 0.7
    assert set(result.test.per_class) == {"treatment", "problem", "test"}
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
    assert result.best_round is not None
    assert set(result.validation.learners) == set(KNOWN)


def test_a_share_for_the_test_stays_at_its_site_and_is_no_other_seed_s(content: Content, tmp_path: Path) -> None:
    made = content({**FEDNER, "iterations": 2}, {name: {"test": 0.25} for name in KNOWN})
    held = {}
    for seed in (1, 2):
        simulation = prepare(make_config({**made, "seed": seed}), tmp_path, tmp_path / f"run{seed}")
        for name, site_data in simulation.sites.items():
            train, test = (len(site_data.splits[part].rows) for part in ("train", "test"))
            # Of 48 documents, a fifth is public: test takes its quarter of all of them, not of what is left.
            assert test / (train + test) == pytest.approx(0.25 / 0.8, abs=0.03)
            split = site_data.splits["test"]
            held[seed, name] = [split.features.said.gold[row] for row in split.rows]  # type: ignore[attr-defined]
    assert all(held[1, name] == held[2, name] for name in KNOWN)
    for share in (-0.1, 0.8):
        made["sites"]["charity"]["test"] = share
        with pytest.raises(ConfigError, match=r"sites\.charity\.test = .*: shares of train .* together below 1"):
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


def said(simulation: Simulation, site: str, part: str) -> list[Any]:
    split = simulation.sites[site].splits[part]
    return [split.features.said.gold[row] for row in split.rows]  # type: ignore[attr-defined]


def labelled(simulation: Simulation, site: str) -> int:
    return sum(map(len, said(simulation, site, "train")))


def test_masking_changes_what_is_trained_on_and_no_test_or_label_set(content: Content, tmp_path: Path) -> None:
    made = content({**FEDNER, "private": ["lstm", "crf"]}, {"mercy": {"test": 0.25}})
    made["sites"]["mercy"]["train"] = made["sites"]["charity"]["train"]
    plain = prepare(make_config(made), tmp_path, tmp_path / "plain")
    masked = prepare(make_config(made, {"data.mask_overlap": 1.0}), tmp_path, tmp_path / "masked")
    for site in KNOWN:
        assert said(masked, site, "test") == said(plain, site, "test")
        assert len(said(masked, site, "train")) == len(said(plain, site, "train"))
        registered = masked.sites[site].registration
        assert registered == plain.sites[site].registration
        assert registered.labels == ("None", "problem", "treatment")
    gone = sum(labelled(plain, site) - labelled(masked, site) for site in KNOWN)
    assert gone == masked.warnings["mentions masked"] > 0.8 * sum(labelled(plain, site) for site in KNOWN)
    assert (
        masked.warnings["of these entities, masked"]
        == masked.warnings["entities in the training data of several sites"]
    )
    half = prepare(make_config(made, {"data.mask_overlap": 0.5}), tmp_path, tmp_path / "half")
    assert labelled(masked, "mercy") < labelled(half, "mercy") < labelled(plain, "mercy")
    again = prepare(make_config(made, {"data.mask_overlap": 0.5}), tmp_path, tmp_path / "again")
    assert said(again, "mercy", "train") == said(half, "mercy", "train")


def test_masking_is_for_those_who_look_for_mentions(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"data\.mask_overlap hides mentions .*: set task\.name = ner$"):
        make_config(tiny_config(**{"data.mask_overlap": 0.5}))


def synthetic(algorithm: dict[str, Any], **sites: dict[str, Any]) -> dict[str, Any]:
    tables = {
        name: {"format": "synthetic", "options": {"hospitals": 1, "notes": 6, **options}}
        for name, options in sites.items()
    }
    return {
        "task": {"name": "ner"},
        "data": {"public": 0.2},
        "sites": tables,
        "model": {"encoder": "words"},
        "algorithm": algorithm,
    }


def test_sites_may_be_synthetic_hospitals_each_with_types_and_a_test_of_its_own(tmp_path: Path) -> None:
    made = synthetic(FEDNER, anne={"types": ["problem"]}, riverside={"first": 2, "types": ["problem", "test"]})
    simulation = prepare(make_config(made), tmp_path, tmp_path / "run")
    assert {name: site_data.registration.labels for name, site_data in simulation.sites.items()} == {
        "anne": ("None", "problem"),
        "riverside": ("None", "problem", "test"),
    }
    for site, (first, types) in {"anne": (1, ["problem"]), "riverside": (2, ["problem", "test"])}.items():
        notes = synthesize(hospitals=1, notes=6, first=first, types=types).test
        gold = sum(len(spans) for spans in said(simulation, site, "test"))
        assert gold == sum(len(note.mentions) for note in notes) > 0


def test_one_model_for_all_synthetic_sites_needs_a_test_for_all(tmp_path: Path) -> None:
    made = synthetic({"name": "fedavg"}, anne={}, riverside={"first": 2})
    with pytest.raises(ConfigError, match=r"data\.test is missing"):
        prepare(make_config(made), tmp_path, tmp_path / "run")
    made["data"] |= {"format": "synthetic", "options": {"hospitals": 2, "notes": 6}}
    assert set(prepare(make_config(made), tmp_path, tmp_path / "run").sites) == {"anne", "riverside"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"types": "test"}, "must be a list of words"),
        ({"types": ["drug"]}, "unknown type of synthetic mention 'drug'"),
        ({"first": ["2"]}, "must be a whole number"),
        ({"first": 0}, "numbered from 1 on"),
    ],
)
def test_options_of_synthetic_sites_are_checked(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match=problem):
        prepare(make_config(synthetic(FEDNER, anne=options)), tmp_path, tmp_path / "run")
