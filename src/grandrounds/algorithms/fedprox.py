"""FedProx (Li et al., MLSys 2020, Eq. 2): federated averaging whose sites are held near the server's weights.

h(w) = F(w) + mu/2 ||w - w_t||^2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from grandrounds import Parameters, Site, algorithm, on_site
from grandrounds.algorithms.fedavg import FedAvg


@algorithm("fedprox")
class FedProx(FedAvg):
    mu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """How strongly; 0 is `fedavg`."""

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        task, start = site.spec.task, parameters.values

        def held(model: nn.Module, batch: Any) -> Tensor:
            return task.loss(model, batch) + self.mu / 2 * distance(model, start)

        site.train(loss=held if self.mu else None)
        return Parameters.of(site.model)


def distance(model: nn.Module, start: Mapping[str, Tensor]) -> Tensor:
    """||w - w_t||^2 over all that is trained."""
    moved = [value - start[name].to(value.device) for name, value in model.named_parameters() if value.requires_grad]
    return torch.stack([(difference**2).sum() for difference in moved]).sum()
