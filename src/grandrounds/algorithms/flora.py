"""FLoRA (Wang et al., NeurIPS 2024): adapters are merged exactly, since the mean of A and B is not the mean of B A.

W <- W + sum_k p_k s_k B_k A_k          s_k = alpha / r_k, p_k by size

Each site begins a round with an A of its own draw and with B = 0, on weights W that all adapters so far are part of. So
every site chooses its own rank r_k. The paper sends the stacked adapters of the round; here W itself is sent, so that a
site that missed a round has all of them. Heads are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import nn

from grandrounds import Adapters, Cohort, Parameters, Reply, Server, Site, Tensors, algorithm, mean, on_site
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Compression
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.state import copy_into
from grandrounds.models.lora import ADAPTER, LORA_A, LORA_B, adapted_layers
from grandrounds.tasks.task import Counts

MERGED = "merged weights"
BASE = ".base_layer.weight"
Trained = tuple[Parameters, Adapters]


@algorithm("flora")
class FLoRA(FedAvg):
    ranks_may_differ: ClassVar[bool] = True

    def shared(self, name: str) -> bool:
        return not name.endswith((LORA_A, LORA_B))

    def changes_frozen(self, name: str) -> bool:
        return name.endswith(BASE)

    def unaccounted(self, unit: Unit) -> str:
        return "noise is for the mean of A and B, and their product is what is added" if unit == "site" else ""

    def encodings(self) -> Sequence[Compression]:
        return ("fp32", "fp16")  # tensors of its own travel beside the weights

    def not_averaged(self) -> str:
        return "it multiplies each site's adapters, so it must see them"

    def tensors(self, shared: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        layers = [name.removesuffix(LORA_A) for name in shared if name.endswith(LORA_A)]
        if not layers:
            raise ConfigError("'flora' merges adapters: set model.parameter_efficient = 'lora'")
        return {name + BASE: (shared[name + LORA_B][0], shared[name + LORA_A][1]) for name in layers}

    def start(self, server: Server, cohort: Cohort) -> None:
        absorb(server)

    def round(self, server: Server, cohort: Cohort) -> None:
        super().round(server, cohort)
        absorb(server)

    def merge(self, server: Server, cohort: Cohort) -> Parameters:
        merged = server.tensors(MERGED)
        asked = cohort.ask(self.train_merged, Parameters.of(server.model, self.shared), Tensors(merged))
        heads, change = mean(products(asked, alphas(server.model)))
        copy_into(server.model, {name: merged[name].to(some.device) + some for name, some in change.values.items()})
        return heads

    @on_site
    def train_merged(self, site: Site, heads: Parameters, merged: Tensors) -> Trained:
        copy_into(site.model, merged.values)
        site.load(heads)
        for name, layer in adapted_layers(site.model).items():
            begin(layer, site.seeded("adapter", name))
        site.train()
        return Parameters.of(site.model, self.shared), Adapters.of(site.model)

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        # A checkpoint has these weights among the server's tensors, not with the model, where they are frozen.
        copy_into(server.model, server.tensors(MERGED))
        return super().evaluate(server, everyone, split)


def products(
    replies: Iterator[Reply[Trained]], alpha: Mapping[str, float]
) -> Iterator[Reply[tuple[Parameters, Tensors]]]:
    """s_k B_k A_k in place of a site's adapters, by the name of the weight that it is added to."""
    for reply in replies:
        heads, adapters = reply.payload
        found = {}
        for name, a in alpha.items():
            down, up = adapters.values[name + LORA_A], adapters.values[name + LORA_B]
            found[name + BASE] = a / len(down) * (up @ down)
        yield replace(reply, payload=(heads, Tensors(found)))  # type: ignore[misc,arg-type]  # of other kinds


def alphas(model: nn.Module) -> dict[str, float]:
    return {name: float(layer.lora_alpha[ADAPTER]) for name, layer in adapted_layers(model).items()}


def absorb(server: Server) -> None:
    """Make the server's own adapters part of W: it trains them on public data, if it trains."""
    with torch.no_grad():
        for name, layer in adapted_layers(server.model).items():
            layer.base_layer.weight += layer.get_delta_weight(ADAPTER)
            layer.lora_B[ADAPTER].weight.zero_()
            server.tensors(MERGED)[name + BASE] = layer.base_layer.weight.detach().clone()


def begin(layer: nn.Module, rng: torch.Generator) -> None:
    """A new adapter, as peft draws it; on the CPU, so that every device gets the same."""
    down, up = (layer.get_parameter(part[1:]) for part in (LORA_A, LORA_B))
    with torch.no_grad():
        down.copy_(nn.init.kaiming_uniform_(torch.empty(down.shape), a=math.sqrt(5), generator=rng))
        up.zero_()
