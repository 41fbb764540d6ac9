"""Gradients by unit, of every task and head, against a loop that knows nothing of ours; and their noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grandrounds.config.schema import make_config
from grandrounds.federation.privacy.gradients import clipped_sum, gaussian, noisy_gradient
from grandrounds.federation.runner import SiteData
from grandrounds.models.taggers import TAGGERS
from grandrounds.simulation.prepare import prepare
from tests.conftest import DISTANT_RE, DOCUMENT_RE, JOINT, TinyConfig

WORDS = {"model.encoder": "words", "model.vocabulary": "public"}
SENTENCE = {"name": "sentence_re", "max_length": 32}
SETTINGS: dict[str, dict[str, Any]] = {
    "sentence_re entities": {"task": SENTENCE},
    "sentence_re cls": {"task": {**SENTENCE, "head": "cls"}},
    "sentence_re ranking_cnn": {"task": {**SENTENCE, "head": "ranking_cnn"}},
    "sentence_re lora": {"task": SENTENCE, "model.parameter_efficient": "lora"},
    "document_re": {"task": DOCUMENT_RE},
    "document_re adaptive": {"task": {**DOCUMENT_RE, "threshold": "adaptive"}},
    **{f"distant_re {bag}": {"task": {**DISTANT_RE, "bag": bag}, **WORDS} for bag in ("one", "ave", "att", "att_ra")},
    "distant_re encoder": {"task": DISTANT_RE},
    **{
        f"ner {tagger}": {"task": {"name": "ner", "tagger": tagger}, **WORDS}
        for tagger in TAGGERS
        if tagger not in ("bert", "spans")
    },
    "ner bert": {"task": {"name": "ner", "tagger": "bert"}},
    "ner bert crf": {"task": {"name": "ner", "tagger": "bert", "crf": True}},
    "ner spans": {"task": {"name": "ner", "tagger": "spans"}},
    "joint": {"task": JOINT},
    "masked_lm": {"task": {"name": "masked_lm", "length": 32}},
}


@pytest.fixture
def site(tiny_config: TinyConfig, tmp_path: Path, encoder_folder: Callable[[str], Path]) -> Callable[[str], SiteData]:
    def make(name: str) -> SiteData:
        language = {"task.language": str(encoder_folder("bert"))} if name == "ner elmoner" else {}
        config = make_config(tiny_config(**{**SETTINGS[name], **language}))
        return min(prepare(config, Path(), tmp_path / "out").sites.items())[1]

    return make


def looped(model: nn.Module, losses: list[Callable[[], Tensor]], clip: float) -> dict[str, np.ndarray]:
    """What ours must be: gradients one by one by another function of torch, clipped and summed by NumPy in float64."""
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    trained = [p for p in model.parameters() if p.requires_grad]
    total = {name: np.zeros(tuple(p.shape)) for name, p in zip(names, trained, strict=True)}
    for loss in losses:
        found = torch.autograd.grad(loss(), trained, allow_unused=True)
        arrays = {n: g.double().numpy() for n, g in zip(names, found, strict=True) if g is not None}
        length = np.sqrt(sum((array**2).sum() for array in arrays.values()))
        for name, array in arrays.items():
            total[name] += array * min(1.0, clip / length)
    return total


@pytest.mark.parametrize("name", SETTINGS)
def test_clipped_gradients_of_every_task_and_head(name: str, site: Callable[[str], SiteData]) -> None:
    held = site(name)
    spec, split = held.spec, held.splits["train"]
    model = spec.initial_model()  # in eval mode: without dropout
    batches = [split.features.batch(split.rows[[row]]) for row in range(min(6, len(split)))]
    lengths = []
    for batch in batches:
        spec.task.loss(model, batch).backward()
        lengths.append(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item())
        model.zero_grad()
    clip = float(np.median(lengths))  # so that some are clipped and some are not
    assert clip > 0
    for dtype, near in ((torch.float32, 1e-4), (torch.float64, 1e-6)):
        model.to(dtype)
        losses = [partial(spec.task.loss, model, batch) for batch in batches]
        ours, theirs = clipped_sum(model, losses, clip), looped(model, losses, clip)
        assert ours.keys() == theirs.keys()
        worst = max(np.abs(ours[n].double().numpy() - theirs[n]).max() for n in theirs)
        largest = max(np.abs(array).max() for array in theirs.values())
        assert largest > 0
        assert worst <= near * largest, f"{name}: {worst / largest:.1e} in {dtype}"


@pytest.mark.parametrize("name", ["sentence_re entities", "ner bert", "ner cnn_lstm_crf"])
def test_their_sum_is_that_of_a_whole_batch(name: str, site: Callable[[str], SiteData]) -> None:
    """Of losses that are means over rows, the unclipped gradients add up to the batch's."""
    held = site(name)
    task, split, model = held.spec.task, held.splits["train"], held.spec.initial_model().double()
    rows = split.rows[:6]
    ours = clipped_sum(model, [partial(task.loss, model, split.features.batch(rows[[i]])) for i in range(6)], 1e9)
    task.loss(model, split.features.batch(rows)).backward()
    for parameter_name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(ours[parameter_name] / 6, parameter.grad, atol=1e-9, rtol=1e-6)


def line(weights: list[float]) -> nn.Module:
    model = nn.Linear(len(weights), 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights]))
    return model


def test_a_long_gradient_is_cut_and_a_short_one_stays() -> None:
    model = line([0.0, 0.0])
    rows = [torch.tensor([3.0, 4.0]).double(), torch.tensor([0.3, 0.0]).double()]
    total = clipped_sum(model, [lambda row=row: model(row).sum() for row in rows], 1.0)["weight"]
    assert total[0].tolist() == pytest.approx([0.6 + 0.3, 0.8])


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    model = line([0.0, 0.0])
    rows = [torch.tensor([float("nan"), 1.0]).double(), torch.tensor([float("inf"), 1.0]).double()]
    total = clipped_sum(model, [lambda row=row: model(row).sum() for row in rows], 1.0)["weight"]
    assert total.tolist() == [[0.0, 0.0]]


def test_noise_has_the_stated_deviation_also_where_nobody_is_in_the_sample() -> None:
    model, noise, clip, expected = nn.Linear(400, 100, bias=False), 1.3, 0.5, 8.0
    noisy_gradient(model, [], clip, noise, expected, np.random.default_rng(1))
    assert model.weight.grad is not None
    found = model.weight.grad.double().numpy().ravel()
    wanted = noise * clip / expected
    # The deviation of 40,000 draws is known to 0.35%: a sigma that is 2% wrong is six of these away.
    assert abs(found.std() / wanted - 1) < 0.015
    assert abs(found.mean()) < 4 * wanted / np.sqrt(len(found))
    assert abs((np.abs(found) < wanted).mean() - 0.6827) < 0.01


def test_the_same_generator_draws_the_same_noise() -> None:
    one, same, other = (gaussian(torch.zeros(5), 1.0, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
