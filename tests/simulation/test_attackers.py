"""Simulated attackers: what a site sends is not what it computed, and an honest site is as without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import grandrounds
from grandrounds.config.schema import SiteSection, make_config
from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError
from grandrounds.federation.contract import Registration
from grandrounds.federation.payloads import Gradients, Parameters, PredictedLabels, Predictions
from grandrounds.federation.rows import Rows
from grandrounds.simulation.attackers import (
    ATTACKS,
    FACTOR,
    MISLABEL,
    attack_of,
    flip,
    forged,
    mislabelled,
    mislead,
    noise,
    reverse,
    scale,
    substitute,
    unbounded,
)
from grandrounds.tasks.sentence_re import SentenceRE
from tests.conftest import TinyConfig
from tests.simulation.crashes import weights

ROWS = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
WEIGHTS = {"w": torch.tensor([1.0, -2.0]), "steps": torch.tensor([3])}


def sent(attack: Any, payload: Any) -> Any:
    return attack(payload).values


def test_every_attack_that_a_config_may_name_is_there() -> None:
    named = {*get_args(SiteSection.model_fields["attack"].annotation)}
    assert named == {"none", *ATTACKS, "reverse", MISLABEL}
    assert [name for name in named if attack_of(name) is None] == [n for n in named if n in ("none", MISLABEL)]


def test_misleading_predictions_say_another_class() -> None:
    assert sent(mislead, Predictions(ROWS, "probabilities", "d")).argmax(dim=1).tolist() == [1, 0]
    assert sent(mislead, PredictedLabels(torch.tensor([0, 2]), 3, "d")).tolist() == [1, 0]


def test_unbounded_predictions_are_sure_of_the_same_class() -> None:
    assert sent(unbounded, Predictions(ROWS, "probabilities", "d")).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert sent(unbounded, Predictions(ROWS.log(), "log_probabilities", "d"))[0].tolist() == [0, -1e6, -1e6]


def test_weights_are_scaled_flipped_or_replaced_and_counters_are_not() -> None:
    assert sent(scale, Parameters(WEIGHTS))["w"].tolist() == [FACTOR, -2 * FACTOR]
    assert sent(flip, Parameters(WEIGHTS))["w"].tolist() == [-1.0, 2.0]
    drawn = sent(substitute, Parameters(WEIGHTS))
    assert not torch.equal(drawn["w"], WEIGHTS["w"])
    assert torch.equal(drawn["w"], sent(substitute, Parameters(WEIGHTS))["w"])
    assert all(sent(attack, Parameters(WEIGHTS))["steps"].tolist() == [3] for attack in (scale, flip, substitute))


def test_noise_is_added_to_weights() -> None:
    drawn = sent(substitute, Parameters(WEIGHTS))["w"]
    assert torch.equal(sent(noise, Parameters(WEIGHTS))["w"], WEIGHTS["w"] + drawn)


def test_a_reversed_update_is_as_long_as_the_true_one() -> None:
    received = Parameters({"w": torch.tensor([0.5, 1.0])})
    reversed_ = reverse(Parameters(WEIGHTS), [7, received])
    assert isinstance(reversed_, Parameters)
    assert reversed_.values["w"].tolist() == [0.0, 4.0]  # 0.5 - 0.5, 1 + 3
    gradients = reverse(Gradients({"w": torch.tensor([1.0])}), [received])
    assert isinstance(gradients, Gradients)
    assert gradients.values["w"].tolist() == [-1.0]


def test_wrong_labels_are_the_next_type_of_what_a_task_finds(task: SentenceRE, documents: list[Document]) -> None:
    before = [r.type for document in documents for r in document.relations]
    types = sorted({*before})
    after = [r.type for document in mislabelled(task, documents) for r in document.relations]
    assert len(types) > 1
    assert after == [types[(types.index(one) + 1) % len(types)] for one in before]
    assert [d.mentions for d in mislabelled(task, documents)] == [d.mentions for d in documents]


def test_rows_of_gradients_are_scaled_too() -> None:
    gradients = Gradients({}, {"table": Rows(torch.tensor([4]), torch.ones(1, 2))})
    attacked = scale(gradients)
    assert isinstance(attacked, Gradients)
    assert attacked.rows["table"].values.tolist() == [[FACTOR, FACTOR]]


def test_what_an_attack_is_not_about_passes() -> None:
    predictions, parameters = Predictions(ROWS, "probabilities", "d"), Parameters(WEIGHTS)
    assert scale(predictions) is predictions
    assert mislead(parameters) is parameters


def test_a_forged_registration_says_more_of_everything() -> None:
    assert forged(Registration("a", {"examples": 3, "notes": 2}, [], {}), 1000).counts == {
        "examples": 3000,
        "notes": 2000,
    }


@pytest.mark.parametrize("attack", ["scale", "flip", "substitute", "noise", "reverse", "mislabel"])
def test_an_attack_in_a_config_changes_the_model(tiny_config: TinyConfig, tmp_path: Path, attack: str) -> None:
    content = tiny_config(**{"federation.rounds": 1})
    grandrounds.run(content, out=tmp_path / "honest")
    grandrounds.run({**content, "sites": {"site-02": {"attack": "none"}}}, out=tmp_path / "none")
    grandrounds.run({**content, "sites": {"site-02": {"attack": attack}}}, out=tmp_path / "attacked")
    assert weights(tmp_path / "none") == weights(tmp_path / "honest")
    assert weights(tmp_path / "attacked") != weights(tmp_path / "honest")


def test_an_attack_on_predictions_needs_predictions(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match="'mislead' is on predictions, and 'fedavg' sends none"):
        make_config(tiny_config(sites={"site-02": {"attack": "mislead"}}))
