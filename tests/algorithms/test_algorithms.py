"""Each algorithm on a toy federation: what it is, and that it is not FedAvg under another name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import grandrounds
import grandrounds.algorithms
from grandrounds import Parameters
from grandrounds.config.schema import make_config
from grandrounds.data.formats import read
from grandrounds.federation.coordinator import Ledger
from grandrounds.federation.exchange import Ask
from grandrounds.registry import ALGORITHMS
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig, task_for
from tests.simulation.crashes import metrics, weights

OURS = sorted(name for name, cls in ALGORITHMS.items() if cls.__module__.startswith("grandrounds.algorithms."))
Runs = Callable[..., Path]


@pytest.fixture(scope="module")
def run(tiny_config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A finished run of an algorithm, made once for the same options."""
    made: dict[str, Path] = {}

    def find(name: str, **overrides: Any) -> Path:
        key = f"{name} {sorted(overrides.items())}"
        if key not in made:
            out = tmp_path_factory.mktemp("algorithms") / "run"
            content = tiny_config(**{"algorithm": {"name": name}, "data.validation": 0.0, **overrides})
            grandrounds.run(content, out=out)
            made[key] = out
        return made[key]

    return find


def vector(path: Path) -> np.ndarray:
    return np.concatenate([value.ravel() for _, value in sorted(load_file(path).items())])


def models(out: Path) -> list[np.ndarray]:
    return [vector(path) for path in sorted(out.glob("model*/**/model.safetensors"))]


@pytest.mark.parametrize("name", [name for name in OURS if name != "fedavg"])
def test_it_differs_measurably_from_fedavg(name: str, run: Runs) -> None:
    average = vector(run("fedavg", **task_for(name)) / "model" / "model.safetensors")
    few = {"algorithm.iterations": 2} if name == "fedner" else {}
    found = models(run(name, **task_for(name), **few))
    assert found
    assert min(float(np.abs(model - average).max()) for model in found) > 1e-4


@pytest.mark.parametrize("name", [name for name in OURS if name != "scaffold"])  # SGD can't train this encoder
def test_it_learns_the_toy_task(name: str, run: Runs) -> None:
    # As many epochs for the student of feded as for the sites, and of fedner as many steps as others take.
    own = {
        "feded": {"server.epochs": 3},
        "fedner": {"algorithm.iterations": 9},
        "fedopt": {"algorithm.step": 0.01},
    }.get(name, {})
    long = {"federation.rounds": 6, "training.learning_rate": 5e-3, "training.epochs": 3}
    out = run(name, **{**long, **own, **task_for(name)})
    scores = [line["test"]["f1"] for line in metrics(out)]
    assert scores[-1] > 0.6


@pytest.mark.parametrize("state", ["renew", "keep"])
def test_centralized_is_fedavg_where_there_is_one_site(state: str, run: Runs) -> None:
    options = {"partition": {"scheme": "iid", "sites": 1}, "training.optimizer_state": state, "federation.rounds": 3}
    assert weights(run("centralized", **options)) == weights(run("fedavg", **options))


@pytest.mark.parametrize("name", ["centralized", "fedavg", "local_only", "validation_only"])
def test_kept_moments_make_a_difference(name: str, run: Runs) -> None:
    renewed, kept = (models(run(name, **{"training.optimizer_state": state})) for state in ("renew", "keep"))
    assert all(float(np.abs(one - other).max()) > 1e-5 for one, other in zip(renewed, kept, strict=True))


def test_centralized_pools_all_data_at_one_site_and_nothing_travels(run: Runs) -> None:
    lines = metrics(run("centralized"))
    assert [line["sites"] for line in lines] == [["site-01"], ["site-01"]]
    assert [(line["bytes_up"], line["bytes_down"]) for line in lines] == [(0, 0), (0, 0)]


def test_a_round_of_fedavg_is_the_mean_of_its_sites_by_size(tiny_config: TinyConfig, tmp_path: Path) -> None:
    by_hospital = {"scheme": "by", "by": "hospital"}
    content = tiny_config(**{"federation.rounds": 1, "data.validation": 0.0, "partition": by_hospital})
    result = grandrounds.run(content, out=tmp_path / "run")
    config = make_config(content)
    simulation = prepare(config, Path(), tmp_path / "again")
    host = simulation.runner(config, tmp_path / "again", memory=1 << 30)
    start = Parameters.of(simulation.model).pack("fp32")
    local, sizes = [], []
    for name, site_data in sorted(simulation.sites.items()):
        ask = Ask(name, "fedavg", {}, "train", 1, 1, (start,), config.digest(), None, "00001.1", Ledger().needed(name))
        packed = host.answer(ask).payloads[0]
        local.append(np.concatenate([v.numpy().ravel().copy() for _, v in sorted(packed.tensors.items())]))
        sizes.append(site_data.registration.counts["examples"])
    assert sizes == [site.examples for site in result.sites]
    assert len(set(sizes)) > 1
    expected = np.average(np.stack(local).astype(np.float64), axis=0, weights=sizes)
    found = vector(tmp_path / "run" / "model" / "model.safetensors")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    uniform = np.mean(np.stack(local), axis=0)
    assert np.abs(found - uniform).max() > 1e-5


def test_local_only_scores_are_the_mean_and_spread_of_the_sites_own_models(run: Runs, tiny_config: TinyConfig) -> None:
    out = run("local_only", **{"federation.rounds": 3})
    last = metrics(out)[-1]["test"]
    documents = read([Path(tiny_config()["data"]["test"])], "json").documents
    alone = {path.name: grandrounds.load(path).evaluate(documents)[0] for path in (out / "models").iterdir()}
    assert alone.keys() == last["learners"].keys() == {"site-01", "site-02", "site-03"}
    f1 = [alone[site]["f1"] for site in sorted(alone)]
    assert len(set(f1)) > 1
    assert [last["learners"][site]["f1"] for site in sorted(alone)] == pytest.approx(f1, abs=1e-12)
    assert last["f1"] == pytest.approx(np.mean(f1), abs=1e-12)
    assert last["f1_std"] == pytest.approx(np.std(f1), abs=1e-12)
    assert last["per_class"]["TrIP"]["recall"] == pytest.approx(
        np.mean([score["per_class"]["TrIP"]["recall"] for score in alone.values()]), abs=1e-12
    )


def test_local_only_sends_no_weights(run: Runs) -> None:
    lines = [json.loads(line) for line in (run("local_only") / "audit.jsonl").read_text().splitlines()]
    kinds = {line["kind"] for line in lines if "kind" in line}
    assert kinds == {"done", "scores"}
    assert not (run("local_only") / "model").exists()


def test_validation_only_never_asks_a_site(run: Runs) -> None:
    out = run("validation_only")
    assert [(line["bytes_up"], line["bytes_down"], line["replies"]) for line in metrics(out)] == [(0, 0, 0)] * 2
    assert "site-0" not in (out / "audit.jsonl").read_text()


def test_fedatt_with_one_site_and_a_full_step_is_fedavg(run: Runs) -> None:
    one = {"partition": {"scheme": "iid", "sites": 1}}
    found, average = (vector(run(name, **one) / "model" / "model.safetensors") for name in ("fedatt", "fedavg"))
    np.testing.assert_allclose(found, average, atol=1e-5)
