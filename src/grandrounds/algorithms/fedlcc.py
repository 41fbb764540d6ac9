"""FedLCC (2024, Algorithm 1): federated averaging whose sites are drawn to the localized contexts that the server's
model sees, and away from those that their own model saw a round ago.

Eq. 5  Reading.context        Eq. 12  contrast        Eq. 13  FedLCC.train        Eq. 14  mean, uniform
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.federation import Parameters, Site, algorithm, on_site
from grandrounds.federation.learner import Loss
from grandrounds.tasks.task import Reading

PREVIOUS = "previous model"


@algorithm("fedlcc")
class FedLCC(FedAvg):
    weight_by: ClassVar[str] = "uniform"  # Eq. 14
    needs_context: ClassVar[bool] = True

    mu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """The weight of the contrast; 0 is `fedavg` with weight_by = "uniform"."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """tau of Eq. 12."""

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        site.train(loss=self.contrasted(site))
        if self.mu:
            site.keep(PREVIOUS, site.model)
        return Parameters.of(site.model)

    def contrasted(self, site: Site) -> Loss | None:
        """Eq. 13. Both frozen nets look at the site's data once, whatever the number of epochs (but at bags, which only
        training makes, with each batch); in a site's first round there is no previous one, and the loss is the task's.
        """
        if not self.mu or not site.holds(PREVIOUS):
            return None
        task, previous = site.practice.task, site.frozen()
        site.recall(PREVIOUS, previous)

        def view(model: nn.Module, batch: Any) -> Tensor:
            return self.viewed(task.read(model, batch))

        nets = (site.frozen(), previous)
        seen = [] if task.bagged else [site.infer("train", view, net) for net in nets]

        def loss(model: nn.Module, batch: Any) -> Tensor:
            reading = task.read(model, batch)
            here = self.viewed(reading)
            with torch.no_grad():
                frozen = [rows.at(batch.index) for rows in seen] or [view(net, batch) for net in nets]
            there, before = (one.to(here.device) for one in frozen)
            return task.grade(reading, batch) + self.mu * contrast(here, there, before, self.temperature)

        return loss

    def viewed(self, reading: Reading) -> Tensor:
        """What is contrasted, [pairs, width]: L of Eq. 12."""
        assert reading.context is not None  # by needs_context
        return reading.context


def contrast(here: Tensor, there: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Eq. 12, the mean over pairs; a pair that has no context in one of the nets has no term."""
    similar = F.cosine_similarity(here, there, dim=1) / temperature
    dissimilar = F.cosine_similarity(here, before, dim=1) / temperature
    defined = here.any(dim=1) & there.any(dim=1) & before.any(dim=1)
    # -log(e^s / (e^s + e^d)) = log(1 + e^(d - s))
    terms = F.softplus(dissimilar - similar).masked_fill(~defined, 0)
    return terms.sum() / torch.clamp(defined.sum(), min=1)
