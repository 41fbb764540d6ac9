"""How a learner trains: its options and its optimiser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn

from grandrounds.errors import ConfigError

ENCODERS = ("encoder.", "bert.")
"""What the names of an encoder's weights begin with."""


class Training(BaseModel):
    """[training]: what happens at a site between two exchanges."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(16, ge=1)
    learning_rate: float = Field(5e-5, gt=0, allow_inf_nan=False)
    head_learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """For what is not the encoder; by default the same."""
    decay: float = Field(0.0, ge=0, lt=1)
    """Learning rates are multiplied by (1 - decay) each round."""
    warmup_steps: int = Field(0, ge=0)
    """Steps in which rates rise to their height, counted from when moments are new: in each round, unless they are
    kept. Adam's first steps are as long as its rate, however little it has seen."""
    weight_decay: float = Field(0.01, ge=0)
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    optimizer_state: Literal["renew", "keep"] = "renew"
    """Whether moments live on from round to round."""
    clip_norm: float = Field(1.0, ge=0)
    """The largest norm of a gradient; 0: any."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.optimizer == "sgd" and self.warmup_steps:
            raise ConfigError("training.warmup_steps is for adam and adamw: sgd has no moments, and counts no steps")
        return self


def make_optimizer(
    training: Training, parameters: Iterable[tuple[str, nn.Parameter]], learning_rate: float
) -> torch.optim.Optimizer:
    """Encoder and head may have their own rates; biases and norms are not decayed."""
    head_rate = learning_rate
    if training.head_learning_rate is not None:
        head_rate *= training.head_learning_rate / training.learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in parameters:
        if parameter.requires_grad:
            rate = learning_rate if name.startswith(ENCODERS) else head_rate
            groups.setdefault((rate, training.weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)
    options: list[dict[str, Any]] = [
        {"params": members, "lr": rate, "weight_decay": decay} for (rate, decay), members in groups.items()
    ]
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    kind: Any = kinds[training.optimizer]
    # One kernel for all of a step: on a small model the loop over tensors costs more than the arithmetic.
    optimizer: torch.optim.Optimizer = kind(options, lr=learning_rate, fused=True)
    return optimizer


def step(optimizer: torch.optim.Optimizer, warmup_steps: int) -> None:
    """The n-th step with these moments is n / `warmup_steps` as long as the rates say, as long as that is below 1."""
    rates = [group["lr"] for group in optimizer.param_groups]
    share = min(1.0, (_steps_taken(optimizer) + 1) / warmup_steps) if warmup_steps else 1.0
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * share
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _steps_taken(optimizer: torch.optim.Optimizer) -> int:
    """As Adam counts them."""
    counts = [state["step"] for state in optimizer.state.values()]
    return int(torch.stack(counts).max()) if counts else 0  # one look at the device
