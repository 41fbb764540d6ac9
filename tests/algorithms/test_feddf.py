"""FedDF's teacher by hand, and a round in which it beats the average of the same models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import grandrounds
from grandrounds import Parameters, Server
from grandrounds.algorithms import feddf
from grandrounds.config.schema import make_config
from grandrounds.federation.coordinator import Ledger
from grandrounds.federation.exchange import Ask
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig
from tests.simulation.crashes import metrics

SKEWED = {
    "data.validation": 0.0,
    "data.public": 0.4,
    "partition": {"scheme": "dirichlet", "sites": 4, "alpha": 0.3},
    "training": {"learning_rate": 5e-3, "epochs": 10, "batch_size": 4},
    "federation.rounds": 1,
}


def test_in_the_teacher_each_site_s_model_has_the_same_say_whatever_its_size(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tiny_config(**{**SKEWED, "algorithm": {"name": "feddf"}})
    seen: list[Tensor] = []

    def watched(asked: Any, teacher: Tensor, **options: Any) -> Any:
        seen.append(teacher)
        return distillation(asked, teacher, **options)

    distillation = feddf.distillation
    monkeypatch.setattr(feddf, "distillation", watched)
    grandrounds.run(content, out=tmp_path / "run")

    config = make_config(content)
    simulation = prepare(config, Path(), tmp_path / "again")
    runner = simulation.runner(config, tmp_path / "again", memory=1 << 30)
    start, logits = Parameters.of(simulation.model).pack("fp32"), list[np.ndarray]()
    server = Server(simulation.spec, simulation.splits, simulation.spec.initial_model())
    for name in sorted(simulation.sites):
        ask = Ask(name, "feddf", {}, "train", 1, 1, (start,), config.digest(), None, "00001.1", Ledger().needed(name))
        weights = runner.answer(ask).payloads[0].tensors
        server.model.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()}, strict=False)
        logits.append(server.outputs("public").astype(np.float64))
    sizes = [data.registration.counts["examples"] for data in simulation.sites.values()]
    assert len(set(sizes)) > 1
    raised = np.exp(np.mean(logits, axis=0))
    np.testing.assert_allclose(seen[0].numpy(), raised / raised.sum(axis=1, keepdims=True), atol=1e-5)


def test_it_beats_the_average_of_sites_that_saw_other_labels(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """Averaged weights of models that went apart say little; what they say together, distilled, says more. The public
    set's labels are not looked at."""
    own = {"fedavg": {}, "feddf": {"server.epochs": 10}}
    scores = {}
    for name, options in own.items():
        content = tiny_config(**{**SKEWED, "algorithm": {"name": name}, **options})
        grandrounds.run(content, out=tmp_path / name)
        scores[name] = metrics(tmp_path / name)[-1]["test"]["accuracy"]
    assert scores["feddf"] > scores["fedavg"] + 0.1
