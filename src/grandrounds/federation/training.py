"""How a learner trains: its options and its optimiser."""

from __future__ import annotations

from collections.abc import Iterable
from math import cos, pi
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

ENCODERS = ("encoder.", "bert.")
"""What the names of an encoder's weights begin with."""


class Training(BaseModel):
    """[training]: what happens at a site between two exchanges."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(1, ge=1)
    """Epochs over the site's data between two exchanges."""
    batch_size: int = Field(16, ge=1)
    """Examples per step."""
    learning_rate: float = Field(5e-5, gt=0, allow_inf_nan=False)
    """The learning rate of the encoder, and of the head unless that has its own."""
    head_learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The learning rate of everything except the encoder; by default the same."""
    decay: float = Field(0.0, ge=0, lt=1)
    """Learning rates are multiplied by (1 - decay) each round."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How learning rates fall over the whole run, from the end of the warm-up to zero after the last round."""
    warmup: float = Field(0.0, ge=0, lt=1)
    """The share of the whole run in which learning rates rise to their full value."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay, except of biases and norms."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """The optimizer, as in torch."""
    optimizer_state: Literal["renew", "keep"] = "renew"
    """Whether the optimizer starts again in each round, or keeps its moments."""
    clip_norm: float = Field(1.0, ge=0)
    """The largest norm of a gradient; 0: no limit."""

    @property
    def needs_end(self) -> bool:
        """Whether a learning rate depends on how many rounds the run has."""
        return self.schedule != "constant" or self.warmup > 0

    def height(self, progress: float) -> float:
        """What learning rates are multiplied by when this share of the run is done."""
        if progress < self.warmup:
            return progress / self.warmup
        left = (1 - progress) / (1 - self.warmup)
        match self.schedule:
            case "constant":
                return 1.0
            case "linear":
                return left
            case "cosine":
                return (1 - cos(pi * left)) / 2


class ServerTraining(BaseModel):
    """[server]: training at the server; by default the same as at sites."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int | None = Field(None, ge=0)
    """Epochs on its public set in each round; by default as in the algorithm's paper."""
    batch_size: int | None = Field(None, ge=1)
    """By default as in [training], like the next two."""
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The server's learning rate; also used for FedNER's shared layers."""
    head_learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The learning rate of everything except the encoder."""

    def over(self, training: Training) -> Training:
        """How the server trains where sites train so."""
        return training.model_copy(update=self.model_dump(exclude_none=True))


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


def step(optimizer: torch.optim.Optimizer, height: float) -> None:
    """One step at this share of the learning rates."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * height
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
