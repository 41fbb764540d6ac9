"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al., ICML 2020, Algorithm 1, option II).

Sites whose data differ drift apart between two averages. Control variates estimate the drift: c at the server for all
sites, c_i at site i for its own. Each local step is corrected by c - c_i, which pulls the site back to the common path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from grandrounds import (
    Algorithm,
    Cohort,
    Parameters,
    Reply,
    Server,
    Site,
    Tensors,
    TensorState,
    algorithm,
    mean,
    on_site,
)
from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Compression
from grandrounds.federation.privacy.settings import Unit

CONTROL = "control"
Update = tuple[Parameters, Tensors]


@algorithm("scaffold")
class Scaffold(Algorithm):
    weight_by: ClassVar[str] = "uniform"  # line 16: means over the sites of the round

    step: Annotated[float, Field(gt=0)] = 1.0
    """eta_g: how much of the sites' mean update the server takes."""

    def tensors(self, shared: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        return shared  # a control variate for each weight that is trained

    def unaccounted(self, unit: Unit) -> str:
        return "control variates leave beside the weights, and noise is for weights alone" if unit == "site" else ""

    def encodings(self) -> Sequence[Compression]:
        return ("fp32", "fp16")  # tensors of its own travel beside the weights

    def not_averaged(self) -> str:
        return "it counts who replied: by their share of all sites the server's control variate moves"

    def start(self, server: Server, cohort: Cohort) -> None:
        server.tensors(CONTROL).update(zeros(server.model))

    def round(self, server: Server, cohort: Cohort) -> None:
        control, replied = server.tensors(CONTROL), 0

        def counted(
            replies: Iterator[Reply[tuple[Parameters, Tensors]]],
        ) -> Iterator[Reply[tuple[Parameters, Tensors]]]:
            nonlocal replied
            for reply in replies:
                replied += 1
                yield reply

        replies = cohort.ask(self.train, Parameters.of(server.model), Tensors(control))
        weights, change = mean(counted(replies))
        before = Parameters.of(server.model)
        server.load(Parameters({name: x + self.step * (weights.values[name] - x) for name, x in before.values.items()}))
        for name, delta in change.values.items():  # c <- c + |S|/N mean(delta c_i); a lost site's c_i is as it was
            control[name] = control[name].to(delta.device) + replied / cohort.registered * delta

    @on_site
    def train(self, site: Site, parameters: Parameters, control: Tensors) -> Update:
        check(site)
        site.load(parameters)
        start, own = weights_of(site.model), TensorState(zeros(site.model))
        site.recall(CONTROL, own)
        shift = {name: control.values[name].to(x.device) - own[name].to(x.device) for name, x in start.items()}

        def correct(model: nn.Module) -> None:  # line 10: g_i(y) - c_i + c
            for name, weight in model.named_parameters():
                if name in shift:  # also where this batch has no gradient: line 12 takes all steps to be corrected
                    weight.grad = shift[name].clone() if weight.grad is None else weight.grad + shift[name]

        taken = site.train(before_step=correct)
        rates, end = rates_of(site), weights_of(site.model)
        new = {
            name: (x - end[name]) / (taken.steps * rates[name]) - shift[name] for name, x in start.items()
        }  # line 12, option II
        site.keep(CONTROL, TensorState(new))
        return Parameters.of(site.model), Tensors({name: new[name] - own[name].to(new[name].device) for name in new})


def check(site: Site) -> None:
    """Option II takes (x - y) / (K eta) for the mean gradient, which holds for plain steps of one size alone."""
    training = site.training
    if training.optimizer != "sgd" or training.needs_end or training.clip_norm or training.weight_decay:
        raise ConfigError(
            "scaffold takes plain steps of SGD: set training.optimizer = 'sgd', training.schedule = 'constant', and "
            "training.warmup, training.clip_norm and training.weight_decay = 0"
        )


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of those that are trained."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


def zeros(model: nn.Module) -> dict[str, Tensor]:
    return {name: torch.zeros_like(weight) for name, weight in weights_of(model).items()}


def rates_of(site: Site) -> dict[str, float]:
    """eta_l of each weight: encoder and head may have their own."""
    rates = {id(weight): group["lr"] for group in site.optimizer().param_groups for weight in group["params"]}
    return {name: rates[id(weight)] for name, weight in site.model.named_parameters() if id(weight) in rates}
