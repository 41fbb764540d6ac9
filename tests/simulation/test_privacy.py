"""Runs with differential privacy: what leaves, what is spent, and what is repeatable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.errors import DataError
from grandrounds.federation.exchange import Ask
from grandrounds.federation.payloads import Parameters
from grandrounds.federation.privacy.accounting import Draw, epsilon
from grandrounds.federation.privacy.ledger import SpendingLedger
from grandrounds.runs.results import METRICS
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import TinyConfig, corpus, write_corpus

PATIENT = {"privacy.unit": "patient", "privacy.epsilon": 4.0, "training.batch_size": 4}


def ledgers(out: Path, unit: str) -> dict[str, SpendingLedger]:
    return {path.stem: SpendingLedger(path, unit) for path in sorted((out / "privacy").glob("*.jsonl"))}  # type: ignore[arg-type]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def test_a_run_spends_what_was_planned_and_no_more(tiny_config: TinyConfig, tmp_path: Path) -> None:
    grandrounds.run(tiny_config(**PATIENT), out=tmp_path / "run")
    for site, ledger in ledgers(tmp_path / "run", "patient").items():
        lines = ledger.lines()
        assert [line["round"] for line in lines] == [1, 2]
        assert {line["site"] for line in lines} == {site}
        draws = [Draw(line["noise"], line["rate"], line["steps"]) for line in lines]
        assert 3.8 < epsilon(draws, 1e-5) <= 4.0
    rounds = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    spent = {site: ledger.epsilon(1e-5) for site, ledger in ledgers(tmp_path / "run", "patient").items()}
    assert rounds[1]["epsilon"] == pytest.approx(spent, abs=1e-4)
    assert all(rounds[0]["epsilon"][site] < rounds[1]["epsilon"][site] for site in spent)


def test_a_resumed_run_has_the_same_bits_and_pays_once(tiny_config: TinyConfig, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    class Stops:
        def say(self, sentence: str) -> None: ...
        def started(self, setup: Any, rounds: int, done: int) -> None: ...
        def asking(self, round: int, sites: int) -> None: ...
        def answered(self, site: str) -> None:
            if self.round == 2:
                raise StopError

        def finished_round(self, round: Any) -> None:
            self.round = 2

        round = 1

    config = tiny_config(**PATIENT)
    grandrounds.run(config, out=tmp_path / "whole")
    with pytest.raises(StopError):
        grandrounds.run(config, out=tmp_path / "stopped", watcher=Stops())
    assert sum(len(one.lines()) for one in ledgers(tmp_path / "stopped", "patient").values()) == 4
    grandrounds.run(config, out=tmp_path / "stopped", resume=True)
    assert sum(len(one.lines()) for one in ledgers(tmp_path / "stopped", "patient").values()) == 6
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_site_that_spent_its_budget_refuses_and_the_round_is_abandoned(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("epsilon = 2.0\n")
    grandrounds.run(tiny_config(**PATIENT, **{"federation.policy": str(policy)}), out=tmp_path / "run")
    rounds = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    lost = {reason for line in rounds for reason in line["lost"].values()}
    assert rounds[-1]["abandoned"]
    assert all("privacy budget is spent" in reason and "policy allows 2" in reason for reason in lost)
    assert all(ledger.epsilon(1e-5) <= 2.0 for ledger in ledgers(tmp_path / "run", "patient").values())


def simulation(tiny_config: TinyConfig, tmp_path: Path, **own: Any) -> tuple[Simulation, Any]:
    config = make_config(tiny_config(**own))
    return prepare(config, Path(), tmp_path), config


def ask(made: Simulation, config: Any, site: str, round: int = 1) -> Ask:
    """As a coordinator of FedAvg would."""
    from dataclasses import asdict

    algorithm: Any = config.make_algorithm()
    sent = Parameters.of(made.spec.initial_model()).pack("fp32")
    return Ask(
        site=site,
        algorithm=algorithm.name,
        options=asdict(algorithm),
        method="train",
        round=round,
        exchange=1,
        message=(sent,),
        config=config.digest(),
        start=None,
        commit=f"{round:05d}.1",
        needed=(),
    )


def test_the_noise_in_what_a_site_uploads_is_as_the_ledger_says(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """One step of plain SGD on nobody's gradient (the clip is tiny, the noise is not): what the bytes hold is the
    noise, and nothing else. A wrong sigma, a wrong denominator or a second clip would show."""
    own = {
        "privacy.unit": "example",
        "privacy.noise": 5e4,
        "privacy.clip": 1e-4,
        "training.optimizer": "sgd",
        "training.weight_decay": 0.0,
        "training.batch_size": 1000,
        "training.learning_rate": 0.01,
    }
    made, config = simulation(tiny_config, tmp_path, **own)
    site, data = min(made.sites.items())
    (packed,) = made.runner(config, tmp_path, memory=1 << 30).answer(ask(made, config, site)).payloads
    sent = made.spec.initial_model().state_dict()
    population = data.registration.counts["examples"]
    wanted = 0.01 * 5e4 * 1e-4 / population  # rate 1: the expected number of units is all of them
    moved = np.concatenate(
        [(v.double() - sent[n].double()).numpy().ravel() for n, v in packed.tensors.items() if n in sent]
    )
    assert moved.size > 20_000
    assert moved.std() == pytest.approx(wanted, rel=0.02)
    assert abs(moved.mean()) < 5 * wanted / np.sqrt(moved.size)


def test_a_patient_with_many_examples_moves_a_site_no_more_than_one_with_few(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of SGD on two patients, without noise to speak of: as long as the clip at most, though 43 examples were
    read. Were each example clipped, it could be 21 times as long."""
    monkeypatch.setattr(SpendingLedger, "_check", lambda *given: None)  # so little noise costs more than any budget
    documents = corpus(40, patient="one") + corpus(3, "e", patient="two")
    own = {
        "data.train": str(write_corpus(tmp_path / "train.jsonl", documents)),
        "data.public": 0.0,
        "data.validation": 0.0,
        "partition.sites": 1,
        "partition.unit": "example",
        "privacy.unit": "patient",
        "privacy.noise": 1e-9,
        "privacy.clip": 0.05,
        "training.optimizer": "sgd",
        "training.weight_decay": 0.0,
        "training.batch_size": 64,
        "training.learning_rate": 1.0,
    }
    made, config = simulation(tiny_config, tmp_path, **own)
    ((site, data),) = made.sites.items()
    assert data.registration.counts == {"examples": 43, "notes": 43, "patients": 2}
    (packed,) = made.runner(config, tmp_path, memory=1 << 30).answer(ask(made, config, site)).payloads
    sent = made.spec.initial_model().state_dict()
    square = sum(((v.double() - sent[n].double()) ** 2).sum().item() for n, v in packed.tensors.items())
    assert 0.02 < square**0.5 <= 0.05 * 1.0001


def test_patients_need_names(tiny_config: TinyConfig, tmp_path: Path) -> None:
    documents = corpus(40)
    del documents[0].attributes["patient"]  # type: ignore[attr-defined]
    own = {**PATIENT, "data.train": str(write_corpus(tmp_path / "train.jsonl", documents)), "data.public": 0.0}
    config = make_config(tiny_config(**own, **{"data.validation": 0.0, "partition.sites": 1}))
    with pytest.raises(DataError, match="documents that do not say whose they are"):
        prepare(config, Path(), tmp_path)


def test_whole_sites_send_clipped_updates_and_the_server_adds_the_noise(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    own = {"privacy.unit": "site", "privacy.epsilon": 8.0, "privacy.clip": 0.3, "federation.weight_by": "uniform"}
    made, config = simulation(tiny_config, tmp_path / "one", **own)
    runner, sent = made.runner(config, tmp_path / "one", memory=1 << 30), made.spec.initial_model().state_dict()
    for site in made.sites:
        (packed,) = runner.answer(ask(made, config, site)).payloads
        square = sum(((v.double() - sent[n].double()) ** 2).sum().item() for n, v in packed.tensors.items())
        assert square**0.5 == pytest.approx(0.3, rel=1e-3)
    grandrounds.run(tiny_config(**own, **{"federation.rounds": 1}), out=tmp_path / "run")
    found = weights(tmp_path / "run")
    noise = ledgers(tmp_path / "run", "site")["site-01"].lines()[0]["noise"]
    moved = np.concatenate([(found[n].double() - sent[n].double()).numpy().ravel() for n in found if n in sent])
    assert moved.std() == pytest.approx(noise * 0.3 / 3, rel=0.03)  # three sites of equal weight


@pytest.mark.parametrize(
    "own",
    [
        {"algorithm.name": "feded", "privacy.unit": "example"},
        {
            "algorithm.name": "feded",
            "algorithm.upload": "labels",
            "algorithm.average": "probabilities",
            "privacy.unit": "site",
            "federation.rounds": 1,
        },
        {"algorithm.name": "feded", "algorithm.vote": "counts", "privacy.unit": "patient", "federation.rounds": 2},
        {"algorithm.name": "fedprox", "privacy.unit": "example"},
        {"algorithm.name": "moon", "privacy.unit": "patient", "federation.rounds": 2},
        {
            "algorithm.name": "fedner",
            "algorithm.iterations": 2,
            "algorithm.batch": 12,
            "task": {"name": "ner", "tagger": "bert"},
            "privacy.unit": "patient",
            "privacy.exact_scores": True,
        },
        {"task": {"name": "distant_re"}, "privacy.unit": "patient"},
        {"task": {"name": "masked_lm", "length": 32}, "privacy.unit": "example"},
        {"model.parameter_efficient": "lora", "privacy.unit": "example"},
    ],
)
def test_algorithms_and_tasks_run_under_privacy(own: dict[str, Any], tiny_config: TinyConfig, tmp_path: Path) -> None:
    settings = {"training.batch_size": 8, "federation.rounds": 1, **own}
    grandrounds.run(tiny_config(**settings), out=tmp_path / "run")
    rounds = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    assert not any(line["lost"] or line["abandoned"] for line in rounds)
    made = ledgers(tmp_path / "run", own["privacy.unit"])
    assert len(made) == 3
    assert all(0 < ledger.epsilon(1e-5) <= 8 for ledger in made.values())


def test_what_sites_register_has_noise_that_a_resumed_run_does_not_pay_again(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = tiny_config(**PATIENT, **{"privacy.noisy_registration": True})
    grandrounds.run(content, out=tmp_path / "run")
    grandrounds.run(content, out=tmp_path / "run", resume=True)
    plain = prepare(make_config(tiny_config(**PATIENT)), Path(), tmp_path / "plain").sites
    noisy = prepare(make_config(content), Path(), tmp_path / "run").sites
    for name, ledger in ledgers(tmp_path / "run", "patient").items():
        assert [line["round"] for line in ledger.lines()] == [0, 1, 2]
        assert 3.0 < ledger.epsilon(1e-5) <= 4.0
        counts = noisy[name].registration.counts
        assert len(set(counts.values())) == 1  # each patient is one example and one note
        assert counts.keys() == plain[name].registration.counts.keys()
    exact, told = ([sites[name].registration.counts["patients"] for name in sites] for sites in (plain, noisy))
    assert exact != told
