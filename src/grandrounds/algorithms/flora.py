"""FLoRA (Wang et al., NeurIPS 2024): adapters are merged exactly, since the mean of A and B is not the mean of B A.

W <- W + sum_k p_k s B_k A_k          s = alpha / rank, p_k by size

Each site begins a round with a new A and with B = 0 on weights W that all adapters so far are part of. The paper sends
the stacked adapters of the round; here W itself is sent, so that a site that missed a round has all of them. Heads are
averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from grandrounds import Cohort, Parameters, Reply, Server, Site, Tensors, algorithm, mean, on_site
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Compression
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.state import copy_into
from grandrounds.models.lora import ADAPTER, adapted_layers
from grandrounds.tasks.task import Counts

MERGED = "merged weights"
A, B, BASE = f".lora_A.{ADAPTER}.weight", f".lora_B.{ADAPTER}.weight", ".base_layer.weight"


@algorithm("flora")
class FLoRA(FedAvg):
    def unaccounted(self, unit: Unit) -> str:
        return "noise is for the mean of A and B, and their product is what is added" if unit == "site" else ""

    def encodings(self) -> Sequence[Compression]:
        return ("fp32", "fp16")  # tensors of its own travel beside the weights

    def not_averaged(self) -> str:
        return "it multiplies each site's adapters, so it must see them"

    def tensors(self, shared: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        layers = [name.removesuffix(A) for name in shared if name.endswith(A)]
        if not layers:
            raise ConfigError("'flora' merges adapters: set model.parameter_efficient = 'lora'")
        return {name + BASE: (shared[name + B][0], shared[name + A][1]) for name in layers}

    def start(self, server: Server, cohort: Cohort) -> None:
        layers = adapted_layers(server.model)
        server.tensors(MERGED).update(
            {name + BASE: part.base_layer.weight.detach().clone() for name, part in layers.items()}
        )

    def merge(self, server: Server, cohort: Cohort) -> Parameters:
        merged, scales = server.tensors(MERGED), scales_of(server.model)
        total, added = 0.0, {name: torch.zeros_like(merged[name + BASE]) for name in scales}

        def heard(replies: Iterator[Reply[Parameters]]) -> Iterator[Reply[Parameters]]:
            nonlocal total
            for reply in replies:
                total += reply.weight
                for name, change in added.items():
                    values = reply.payload.values
                    product = scales[name] * values[name + B].to(change.device) @ values[name + A].to(change.device)
                    change += (product - change) * (reply.weight / total if total else 0.0)
                yield reply

        asked = cohort.ask(self.train_merged, Parameters.of(server.model), Tensors(merged))
        averaged = dict(mean(heard(asked)).values)
        for name, change in added.items():
            merged[name + BASE] = merged[name + BASE] + change
            averaged[name + A] = fresh(averaged[name + A], server.seeded("adapter", name))
            averaged[name + B] = torch.zeros_like(averaged[name + B])
        copy_into(server.model, merged)
        return Parameters(averaged)

    @on_site
    def train_merged(self, site: Site, parameters: Parameters, merged: Tensors) -> Parameters:
        copy_into(site.model, merged.values)
        return self.train(site, parameters)

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        self._in_place(server)
        return super().evaluate(server, everyone, split)

    def finish(self, server: Server, everyone: Cohort) -> None:
        self._in_place(server)

    def _in_place(self, server: Server) -> None:
        """A checkpoint has these weights among the server's tensors, not with the model, where they are frozen."""
        copy_into(server.model, server.tensors(MERGED))


def scales_of(model: nn.Module) -> dict[str, float]:
    return {name: float(part.scaling[ADAPTER]) for name, part in adapted_layers(model).items()}


def fresh(like: Tensor, rng: torch.Generator) -> Tensor:
    """As peft draws A; on the CPU, so that every device gets the same."""
    return nn.init.kaiming_uniform_(torch.empty(like.shape), a=math.sqrt(5), generator=rng).to(like.device)
