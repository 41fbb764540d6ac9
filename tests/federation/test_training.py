"""How long a step is: schedules and warm-up by hand, over rounds, at sites and at the server."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.training import Training, make_optimizer, step
from grandrounds.models.encoder import Encoder, Size
from grandrounds.tasks.masked_lm import MaskedLM, MaskedLMOptions
from tests.conftest import TinyConfig
from tests.simulation.crashes import cut, weights

RATE = 0.1


def test_a_step_is_as_long_as_the_rate_times_its_height_and_leaves_the_rate_alone() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer(Training(optimizer="adam", weight_decay=0), [("weight", weight)], RATE)
    found = []
    for height in (0.25, 0.5, 1.0):
        weight.grad = torch.ones(1)  # under a gradient that is always 1, Adam's steps are as long as its rate
        before = weight.item()
        step(optimizer, height)
        found.append(before - weight.item())
    assert found == pytest.approx([0.025, 0.05, 0.1], rel=1e-4)
    assert optimizer.param_groups[0]["lr"] == RATE


@pytest.mark.parametrize(
    ("options", "heights"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"warmup": 0.5}, [0, 0.5, 1, 1, 1]),
        ({"schedule": "linear"}, [1, 0.75, 0.5, 0.25, 0]),
        ({"schedule": "linear", "warmup": 0.5}, [0, 0.5, 1, 0.5, 0]),
        ({"schedule": "cosine"}, [1, (1 + cos(pi / 4)) / 2, 0.5, (1 + cos(3 * pi / 4)) / 2, 0]),
        ({"schedule": "cosine", "warmup": 0.25}, [0, 1, (1 + cos(pi / 3)) / 2, (1 + cos(2 * pi / 3)) / 2, 0]),
    ],
    ids=str,
)
def test_learning_rates_rise_and_fall_over_the_whole_run(options: dict[str, Any], heights: list[float]) -> None:
    training = Training(**options)
    assert [training.height(quarter / 4) for quarter in range(5)] == pytest.approx(heights, abs=1e-12)


def learner(training: Training, server: Training | None = None, rounds: int = 4) -> Server:
    task = MaskedLM(MaskedLMOptions(length=16))
    text = "Fever and cough since Monday."
    encoder = Encoder.new(Size(layers=1, width=8, heads=2, pieces=100, dropout=0.0), [text], None)
    features = task.features(task.examples([Document("1", text)])[0], encoder)
    spec = LearnerSpec(task, encoder, training, server or training, rounds, 1, torch.device("cpu"))
    return Server(spec, {"train": Split(features, np.arange(len(features.documents)))}, spec.initial_model())


def moved_by(act: Callable[[], None], model: nn.Module) -> float:
    """How far the weight went that went furthest."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    act()
    after = model.state_dict()
    return max(float((after[name] - value).abs().max()) for name, value in before.items())


ADAM = {"optimizer": "adam", "learning_rate": RATE, "weight_decay": 0}


def test_a_round_is_its_share_of_the_run() -> None:
    """A round here is one step with new moments, so its furthest weight goes as far as the rate lets it."""
    server = learner(Training(**ADAM, schedule="linear", warmup=0.5), rounds=4)
    for round, height in ((1, 0.5), (2, 1.0), (3, 0.5)):
        server.begin(round)
        assert moved_by(server.train, server.model) == pytest.approx(height * RATE, rel=0.02)


def test_before_round_1_there_is_no_schedule() -> None:
    server = learner(Training(**ADAM, schedule="linear", warmup=0.5))
    assert moved_by(server.train, server.model) == pytest.approx(RATE, rel=0.02)


def test_a_step_of_its_own_follows_the_schedule_too() -> None:
    """FedNER's: gradients first, then the step; half of round 1 of 4 is an eighth of the run."""
    server = learner(Training(**ADAM, warmup=0.5))
    server.begin(1)
    optimizer = server.optimizer()
    for parameter in server.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    assert moved_by(lambda: server.step(optimizer, 0.5), server.model) == pytest.approx(RATE / 4, rel=0.02)


def test_the_server_trains_at_its_own_rate() -> None:
    server = learner(Training(**ADAM), Training(**{**ADAM, "learning_rate": RATE / 5}))
    assert moved_by(server.train, server.model) == pytest.approx(RATE / 5, rel=0.02)


def test_the_server_section_changes_what_it_names(tiny_config: TinyConfig) -> None:
    content = tiny_config(**{"training.epochs": 2, "training.batch_size": 4, "server.learning_rate": 0.5})
    for algorithm, epochs in (("fedavg", 0), ("fedprox", 0), ("feded", 1), ("validation_only", 2)):
        found = make_config(content, {"algorithm.name": algorithm}).server_training()
        assert (found.epochs, found.batch_size, found.learning_rate) == (epochs, 4, 0.5)
    given = make_config(content, {"algorithm.name": "feded", "server.epochs": 3, "server.batch_size": 8})
    assert (given.server_training().epochs, given.server_training().batch_size) == (3, 8)
    assert (given.training.epochs, given.training.batch_size) == (2, 4)


@pytest.mark.parametrize(
    ("algorithm", "epochs", "sentence"),
    [("local_only", 1, "has no effect: the server of 'local_only'"), ("feded", 0, "'feded' learns at the server")],
)
def test_epochs_that_the_server_cannot_take_are_refused(
    algorithm: str, epochs: int, sentence: str, tiny_config: TinyConfig
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_config(tiny_config(**{"algorithm.name": algorithm, "server.epochs": epochs}))


def test_the_number_of_rounds_counts_where_a_schedule_ends_with_them(tiny_config: TinyConfig) -> None:
    def digest(**options: Any) -> str:
        return make_config(tiny_config(**options)).digest()

    assert digest(**{"federation.rounds": 3}) == digest(**{"federation.rounds": 4})
    linear = {"training.schedule": "linear"}
    assert digest(**linear, **{"federation.rounds": 3}) != digest(**linear, **{"federation.rounds": 4})


def test_a_scheduled_run_that_was_interrupted_ends_with_the_same_bits(tiny_config: TinyConfig, tmp_path: Path) -> None:
    options = {"training.schedule": "cosine", "training.warmup": 0.3, "training.optimizer_state": "keep"}
    content = tiny_config(**options, **{"federation.rounds": 3})

    whole, torn = tmp_path / "whole", tmp_path / "torn"
    grandrounds.run(content, out=whole)
    cut(content, torn, 2)
    grandrounds.run(content, out=torn, resume=True)
    assert weights(whole) == weights(torn)
