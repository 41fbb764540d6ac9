"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al., ICML 2020, Algorithm 1, option II).

Sites whose data differ drift apart between two averages. Control variates estimate the drift: c at the server for all
sites, c_i at site i for its own. Each local step is corrected by c - c_i, which pulls the site back to the common path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from grandrounds import Algorithm, Cohort, Parameters, Server, Site, Tensors, TensorState, algorithm, mean, on_site

CONTROL = "control"


@algorithm("scaffold")
class Scaffold(Algorithm):
    weight_by: ClassVar[str] = "uniform"  # line 16: means over the sites of the round

    step: Annotated[float, Field(gt=0)] = 1.0
    """eta_g: how much of the sites' mean update the server takes."""

    def tensors(self, shared: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        return shared  # a control variate for each weight that is trained

    def start(self, server: Server, cohort: Cohort) -> None:
        server.tensors(CONTROL).update(zeros(server.model))

    def round(self, server: Server, cohort: Cohort) -> None:
        control = server.tensors(CONTROL)
        replies = cohort.ask(self.train, Parameters.of(server.model), Tensors(control))
        weights, change = mean(replies)
        before = Parameters.of(server.model)
        server.load(Parameters({name: x + self.step * (weights.values[name] - x) for name, x in before.values.items()}))
        for name, delta in change.values.items():  # c <- c + |S|/N mean(delta c_i)
            control[name] = control[name] + cohort.fraction * delta

    @on_site
    def train(self, site: Site, parameters: Parameters, control: Tensors) -> tuple[Parameters, Tensors]:
        site.load(parameters)
        own = TensorState(zeros(site.model))
        site.recall(CONTROL, own)
        start = {name: weight.detach().clone() for name, weight in site.model.named_parameters()}

        def correct(model: nn.Module) -> None:  # line 10: g_i(y) - c_i + c
            for name, weight in model.named_parameters():
                if weight.grad is not None:
                    weight.grad += control.values[name] - own[name]

        taken = site.train(before_step=correct)
        rates = rates_of(site)
        new = {
            name: own[name] - control.values[name] + (start[name] - weight.detach()) / (taken.steps * rates[name])
            for name, weight in site.model.named_parameters()
            if name in own
        }  # line 12, option II
        site.keep(CONTROL, TensorState(new))
        return Parameters.of(site.model), Tensors({name: new[name] - own[name] for name in new})


def zeros(model: nn.Module) -> dict[str, Tensor]:
    return {name: torch.zeros_like(weight) for name, weight in model.named_parameters() if weight.requires_grad}


def rates_of(site: Site) -> dict[str, float]:
    """eta_l of each weight: encoder and head may have their own."""
    rates = {id(weight): group["lr"] for group in site.optimizer().param_groups for weight in group["params"]}
    return {name: rates[id(weight)] for name, weight in site.model.named_parameters() if id(weight) in rates}
