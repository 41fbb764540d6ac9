"""How long a step is: warm-up by hand, with moments that are new and with kept ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError
from grandrounds.federation.learner import Practice, Server, Split
from grandrounds.federation.training import Training, make_optimizer, step
from grandrounds.models.encoder import Encoder, Size
from grandrounds.tasks.masked_lm import MaskedLM, MaskedLMOptions

RATE = 0.1


def lengths(optimizer: torch.optim.Optimizer, weight: nn.Parameter, steps: int, warmup: int) -> list[float]:
    """How far a weight goes in each step under a gradient that is always 1: Adam's steps are then as long as its
    rate."""
    found = []
    for _ in range(steps):
        weight.grad = torch.ones(1)
        before = weight.item()
        step(optimizer, warmup)
        found.append(before - weight.item())
    return found


def adam(weight: nn.Parameter) -> torch.optim.Optimizer:
    return make_optimizer(Training(optimizer="adam", weight_decay=0), [("weight", weight)], RATE)


def test_steps_grow_to_the_rate_in_so_many_steps_and_stay_there() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = adam(weight)
    assert lengths(optimizer, weight, 6, warmup=4) == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rel=1e-4)
    assert optimizer.param_groups[0]["lr"] == RATE


def test_without_warm_up_the_first_step_is_as_long_as_the_rate() -> None:
    weight = nn.Parameter(torch.zeros(1))
    assert lengths(adam(weight), weight, 2, warmup=0) == pytest.approx([0.1, 0.1], rel=1e-4)


def test_kept_moments_go_on_where_the_warm_up_was() -> None:
    weight = nn.Parameter(torch.zeros(1))
    first, later = adam(weight), adam(weight)
    lengths(first, weight, 2, warmup=4)
    later.load_state_dict(first.state_dict())
    assert lengths(later, weight, 3, warmup=4) == pytest.approx([0.075, 0.1, 0.1], rel=1e-4)


def test_sgd_counts_no_steps_and_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.warmup_steps is for adam and adamw"):
        Training(optimizer="sgd", warmup_steps=10)


def learner(training: Training) -> Server:
    task = MaskedLM(MaskedLMOptions(length=16))
    text = "Fever and cough since Monday."
    encoder = Encoder.new(Size(layers=1, width=8, heads=2, pieces=100, dropout=0.0), [text], None)
    features = task.features(task.examples([Document("1", text)])[0], encoder)
    practice = Practice(task, encoder, training, 1, torch.device("cpu"))
    return Server(practice, {"train": Split(features, np.arange(len(features.documents)))}, practice.initial_model())


def moved_by(act: Callable[[], None], model: nn.Module) -> float:
    """How far the weight went that went furthest."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    act()
    after = model.state_dict()
    return max(float((after[name] - value).abs().max()) for name, value in before.items())


@pytest.mark.parametrize(("warmup", "furthest"), [(0, RATE), (50, RATE / 50)])
def test_a_learners_first_step_is_as_long_as_warm_up_lets_it(warmup: int, furthest: float) -> None:
    server = learner(Training(optimizer="adam", learning_rate=RATE, weight_decay=0, warmup_steps=warmup))
    assert moved_by(server.train, server.model) == pytest.approx(furthest, rel=0.02)


@pytest.mark.parametrize(("state", "second"), [("renew", 1), ("keep", 2)])
def test_warm_up_begins_anew_each_round_unless_moments_are_kept(state: Literal["renew", "keep"], second: int) -> None:
    """A round here is one step, so its furthest weight goes a fiftieth of the rate, and in the next round one, or
    where moments are kept two."""
    server = learner(
        Training(optimizer="adam", learning_rate=RATE, weight_decay=0, warmup_steps=50, optimizer_state=state)
    )
    assert moved_by(server.train, server.model) == pytest.approx(RATE / 50, rel=0.02)
    assert moved_by(server.train, server.model) == pytest.approx(second * RATE / 50, rel=0.1)


def test_a_step_of_its_own_warms_up_too() -> None:
    """FedNER's: gradients first, then the step."""
    server = learner(Training(optimizer="adam", learning_rate=RATE, weight_decay=0, warmup_steps=50))
    optimizer = server.optimizer()
    for parameter in server.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    assert moved_by(lambda: server.step(optimizer), server.model) == pytest.approx(RATE / 50, rel=0.02)
