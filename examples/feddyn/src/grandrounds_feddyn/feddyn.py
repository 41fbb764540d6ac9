"""FedDyn: federated learning with dynamic regularization (Acar et al., ICLR 2021, Algorithm 1).

Sites whose data differ pull the average away from what is best for all. Each site's loss gets a linear term that
remembers its earlier pull, and a quadratic one that holds it near the server's weights w:

at a site      y = argmin F_k(y) - <g_k, y> + alpha/2 ||y - w||^2,    g_k <- g_k - alpha (y - w)
at the server  h <- h - alpha |P|/m (mean(y) - w),                    w <- mean(y) - h / alpha

P are the sites that replied, of m; training approximates the minimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field
from torch import nn

from grandrounds import Algorithm, Cohort, Parameters, Reply, Server, Site, TensorState, algorithm, mean, on_site

PULL = "pull"


@algorithm("feddyn")
class FedDyn(Algorithm):
    weight_by: ClassVar[str] = "uniform"

    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1

    def round(self, server: Server, cohort: Cohort) -> None:
        replied = 0

        def counted(replies: Iterator[Reply[Parameters]]) -> Iterator[Reply[Parameters]]:
            nonlocal replied
            for reply in replies:
                replied += 1
                yield reply

        average = mean(counted(cohort.ask(self.train, Parameters.of(server.model))))
        pull, moved = server.tensors(PULL), {}
        for name, w in Parameters.of(server.model).values.items():
            change = replied / cohort.registered * (average.values[name] - w)
            pull[name] = pull.get(name, 0 * w) - self.alpha * change
            moved[name] = average.values[name] - pull[name] / self.alpha
        server.load(Parameters(moved))

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        start, pull = parameters.values, TensorState()
        site.recall(PULL, pull)

        def regularize(model: nn.Module) -> None:  # the gradient of both terms
            for name, y in model.named_parameters():
                if y.grad is not None:
                    y.grad += self.alpha * (y.detach() - start[name]) - pull.get(name, 0)

        site.train(before_step=regularize)
        trained = Parameters.of(site.model)
        site.keep(
            PULL, TensorState({n: pull.get(n, 0) - self.alpha * (y - start[n]) for n, y in trained.values.items()})
        )
        return trained
