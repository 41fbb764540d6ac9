"""Federations of the task joint: of sites that annotate a part, and of sites with types of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.deployment.site import read_holding
from grandrounds.errors import ConfigError
from grandrounds.simulation.prepare import prepare
from tests.conftest import JOINT, TinyConfig, corpus, task_for, write_corpus
from tests.deployment.grids import run_over_grid
from tests.hosts import Hosts
from tests.simulation.crashes import metrics, models, timeless

PARTS = {"site-02": {"task": {"annotated": ["entities"]}}, "site-03": {"task": {"annotated": ["relations"]}}}
OWN = {"charity": ("treatment", "problem"), "mercy": ("test", "problem")}
FITTING = (
    *("centralized", "fedavg", "feddf", "feded", "fedner", "fedper", "fedprox", "flora", "local_only", "moon"),
    "scaffold",
)
LEARN = {"training.learning_rate": 5e-3, "training.batch_size": 4, "training.epochs": 2, "federation.rounds": 5}


@pytest.fixture
def content(tiny_config: TinyConfig) -> Callable[..., dict[str, Any]]:
    def make(name: str = "fedavg", **more: Any) -> dict[str, Any]:
        few = {"iterations": 2} if name == "fedner" else {}
        settings = {"task": JOINT, "sites": PARTS, "algorithm": {"name": name, **few}, "federation.rounds": 2}
        return tiny_config(**{**task_for(name), **settings, **more})

    return make


@pytest.mark.parametrize("algorithm", FITTING)
def test_over_the_grid_a_run_has_the_bits_of_one_process(
    content: Callable[..., dict[str, Any]], tmp_path: Path, algorithm: str
) -> None:
    grandrounds.run(content(algorithm), out=tmp_path / "process")
    run_over_grid(content(algorithm), tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "process"))


@pytest.mark.parametrize("algorithm", ["fedlcc", "lazy_mil"])
def test_an_algorithm_that_it_does_not_fit_says_so(content: Callable[..., dict[str, Any]], algorithm: str) -> None:
    with pytest.raises(ConfigError, match=f"'{algorithm}' needs .*, and 'joint' is not one"):
        make_config(content(algorithm))


def test_it_is_learnt_by_sites_that_annotate_a_part(content: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = grandrounds.run(content(**LEARN), out=tmp_path / "run")
    assert result.test.f1 > 0.9
    assert result.test.further()["entity_f1"] > 0.9


def test_what_sites_say_together_teaches_mentions_and_relations_without_a_label(
    content: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """All that the server learns of either comes from the ensemble."""
    algorithm = {"name": "feded", "hard_labels": False}
    settings = {**LEARN, "sites": {}, "data.public": 0.4, "algorithm": algorithm, "server": {"epochs": 4}}
    result = grandrounds.run(content("feded", **settings), out=tmp_path / "run")
    assert result.test.f1 > 0.8
    assert result.test.further()["entity_f1"] > 0.8


def test_predictions_of_joint_are_counted_in_each_encoding(
    content: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """[questions, classes]; a byte for each class but the first with int8, and less where they can be deflated."""
    sizes = {}
    for compression in ("fp32", "fp16", "int8"):
        made = content("feded", **{"federation.compression": compression, "federation.rounds": 1})
        grandrounds.run(made, out=tmp_path / compression)
        simulation = prepare(make_config(made), tmp_path, tmp_path / f"again-{compression}")
        audit = [json.loads(line) for line in (tmp_path / compression / "audit.jsonl").read_text().splitlines()]
        sizes[compression] = {line["bytes"] for line in audit if line.get("kind") == "predictions"}
    questions, classes = simulation.expected.public[0], simulation.expected.classes
    assert questions > 10 * len(simulation.splits["public"])
    assert classes == 4  # three types, and none
    (whole,), (half,) = sizes["fp32"], sizes["fp16"]
    assert 0 < whole - 4 * questions * classes < 200
    assert 0 < half - 2 * questions * classes < 200
    assert max(sizes["int8"]) < questions * (classes - 1) + 200


def test_masked_predictions_of_joint_have_the_mean_of_plain_ones(
    content: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    made = content("feded", **{"federation.rounds": 1, "algorithm": {"name": "feded", "average": "probabilities"}})
    grandrounds.run(made, out=tmp_path / "plain")
    grandrounds.run({**made, "federation": {**made["federation"], "secure": True}}, out=tmp_path / "secure")
    plain, masked = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("plain", "secure"))
    start = prepare(make_config(made), tmp_path, tmp_path / "again").spec.initial_model().state_dict()
    moved = max(float((value - start[name]).abs().max()) for name, value in plain.items())
    apart = max(float((value - masked[name]).abs().max()) for name, value in plain.items())
    assert apart < 0.05 * moved


def test_votes_by_label_counts_need_one_label_an_example(content: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="'feded' needs a task with one class per example, and 'joint' is not one"):
        make_config(content("feded", algorithm={"name": "feded", "vote": "counts"}))


def test_a_site_has_the_annotation_that_it_says_wherever_its_data_are(
    content: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def annotated(algorithm: str) -> dict[str, list[tuple[bool, bool]]]:
        simulation = prepare(make_config(content(algorithm)), tmp_path, tmp_path / algorithm)
        parts: dict[str, list[tuple[bool, bool]]] = {}
        for name, site in simulation.sites.items():
            split: Any = site.splits["train"]
            examples = [split.features.examples[row] for row in split.rows]
            parts[name] = sorted({(one.entities, one.relations) for one in examples})
        served: Any = simulation.splits["test"]
        assert all(served.features.examples[row].entities for row in served.rows)
        return parts

    assert annotated("fedavg") == {"site-01": [(True, True)], "site-02": [(True, False)], "site-03": [(False, True)]}
    assert annotated("centralized") == {"site-01": [(False, True), (True, False), (True, True)]}


def test_what_a_site_does_not_annotate_stays_as_the_server_sent_it(
    content: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    made = content("local_only", **{"federation.rounds": 1, "federation.keep_models": None})
    grandrounds.run(made, out=tmp_path / "run")
    start = prepare(make_config(made), tmp_path, tmp_path / "again").spec.initial_model().state_dict()
    moved = {}
    for site in ("site-01", "site-02", "site-03"):
        found = load_file(tmp_path / "run" / "models" / site / "model.safetensors")
        moved[site] = {name.split(".")[0] for name, value in found.items() if not value.equal(start[name])}
    assert moved == {
        "site-01": {"encoder", "relations", "spans"},
        "site-02": {"encoder", "spans"},
        "site-03": {"encoder", "relations"},
    }


def test_only_what_is_annotated_may_differ_where_one_task_is_shared(content: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match=r"sites\.site-02\.task is different, but 'fedavg' needs one task"):
        make_config(content(sites={"site-02": {"task": {"span_words": 3}}}))
    with pytest.raises(ConfigError, match=r"sites\.site-02\.task\.annotated"):
        make_config(content(sites={"site-02": {"task": {"annotated": ["relation"]}}}))


def only(documents: list[Document], types: tuple[str, ...]) -> list[Document]:
    """With mentions of these types, and the relations between them."""
    kept = []
    for one in documents:
        mentions = [m for m in one.mentions if m.type in types]
        place = {m.id: i for i, m in enumerate(mentions)}
        entities = [replace(e, mentions=(place[e.id],)) for e in one.entities if e.id in place]
        related = [r for r in one.relations if r.head in place and r.tail in place]
        relations = tuple(replace(r, mentions=(place[r.head], place[r.tail])) for r in related)
        kept.append(replace(one, mentions=tuple(mentions), entities=tuple(entities), relations=relations))
    return kept


@pytest.mark.parametrize("algorithm", ["fedner", "fedper"])
def test_heads_are_private_where_hospitals_know_other_entities_and_relations(
    tmp_path: Path, encoder_folder: Callable[[str], Path], algorithm: str
) -> None:
    sites = {}
    for name, types in OWN.items():
        made = {part: only(corpus(size, f"{name}{part}"), types) for part, size in (("train", 48), ("test", 24))}
        sites[name] = {part: str(write_corpus(tmp_path / f"{name}-{part}.jsonl", one)) for part, one in made.items()}
    few = {"iterations": 2} if algorithm == "fedner" else {}
    config: dict[str, Any] = {
        "device": "cpu",
        "task": JOINT,
        "data": {"format": "json"},
        "sites": sites,
        "model": {"encoder": str(encoder_folder("bert"))},
        "training": {"learning_rate": 5e-3, "batch_size": 4, "epochs": 4},
        "federation": {"rounds": 2},
        "algorithm": {"name": algorithm, **few},
    }
    result = grandrounds.run(config, out=tmp_path / "process")
    run_over_grid(config, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    saved = {name: json.loads((tmp_path / f"process/models/{name}/grandrounds.json").read_text()) for name in OWN}
    assert {name: tuple(about["schema"]["types"]) for name, about in saved.items()} == {
        name: tuple(sorted(types)) for name, types in OWN.items()
    }
    assert [saved[name]["schema"]["relations"] for name in sorted(OWN)] == [["TrIP"], ["TeRP"]]
    assert algorithm == "fedner" or min(score.f1 for score in result.test.learners.values()) > 0.7
    weights = [load_file(tmp_path / f"process/models/{name}/model.safetensors") for name in sorted(OWN)]
    names = [name for name in weights[0] if name.startswith("encoder.encoder")]
    assert all(weights[0][name].equal(weights[1][name]) for name in names)
    assert not weights[0]["spans.first.weight"].equal(weights[1]["spans.first.weight"])


def test_a_site_of_its_own_host_says_in_its_file_what_it_annotates(
    tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    hosts = Hosts(tmp_path, encoder_folder("bert"), task=JOINT).found_here()

    def held(site: str, more: str) -> Any:
        about = hosts.enrolment(site) / "site.toml"
        about.write_text(f"{about.read_text()}\n{more}")
        return read_holding(read_enrolment(hosts.enrolment(site)), [tmp_path / f"{site}.jsonl"], "json").site_data

    partly, whole = held("mercy", 'task.annotated = ["relations"]'), held("charity", "")
    found = {(one.entities, one.relations) for one in partly.splits["train"].features.examples}
    assert found == {(False, True)}
    assert partly.registration.labels == whole.registration.labels
    assert partly.registration.manifest == whole.registration.manifest
    with pytest.raises(ConfigError, match="task is this site's own, but 'fedavg' needs one task"):
        held("general", "task.hidden = 4")
