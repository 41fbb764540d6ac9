"""An algorithm that uses all of the contract, and the workers that can find it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds import Algorithm, Cohort, Done, Parameters, Predictions, Scores, Server, Site, algorithm, mean, on_site
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.runner import SiteRunner
from grandrounds.simulation.run import worker_runner
from grandrounds.tasks.task import Counts


@algorithm("toy")
class Toy(Algorithm):
    """Two exchanges that are read and one that is not, a message for each site, private state, a server's own Adam."""

    public_at_sites: ClassVar[bool] = True
    rate: float = 0.01
    noise: float = 0.001
    trouble: int = 0
    """The round in which site-01 refuses the second exchange."""

    def start(self, server: Server, cohort: Cohort) -> None:
        server.state["adam"] = torch.optim.Adam(server.model.parameters(), lr=self.rate)
        cohort.ask(self.introduce)

    @on_site
    def introduce(self, site: Site) -> Done:
        visits = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(visits.weight)
        site.keep("visits", visits)
        return Done()

    def round(self, server: Server, cohort: Cohort) -> None:
        weights = Parameters.of(server.model)
        steps = {site.site: (weights, 3 * server.round + i) for i, site in enumerate(cohort.sites)}
        pull = mean(cohort.ask_each(self.gradient, steps)).values
        rng = server.seeded("noise")
        for name, parameter in server.model.named_parameters():
            parameter.grad = pull[name] + self.noise * torch.randn(parameter.shape, generator=rng)
        adam = server.state["adam"]
        assert isinstance(adam, torch.optim.Adam)
        adam.step()
        teacher = mean(cohort.ask(self.answer, Parameters.of(server.model), "log_probabilities"))
        server.train("public", loss=distillation(teacher.values))
        cohort.ask(self.visited)  # nobody reads these

    @on_site
    def gradient(self, site: Site, parameters: Parameters, step: int) -> Parameters:
        """The gradient of one mini-batch; for the head, what the site's own momentum makes of it."""
        site.load(parameters)
        before = {name: value.clone() for name, value in site.model.state_dict().items()}
        own = torch.optim.SGD(site.model.head.parameters(), lr=0.1, momentum=0.9)
        site.recall("momentum", own)
        site.model.zero_grad(set_to_none=True)
        site.spec.task.loss(site.model, site.minibatch(4, step)).backward()
        own.step()
        site.keep("momentum", own)
        values = {name: torch.zeros_like(value) for name, value in before.items()}
        for name, parameter in site.model.named_parameters():
            if parameter.grad is not None:
                moved = before[name] - parameter.detach()
                values[name] = moved if name.startswith("head.") else parameter.grad.clone()
        return Parameters(values)

    @on_site
    def answer(self, site: Site, parameters: Parameters, form: str) -> Predictions:
        if site.round == self.trouble and site.who == "site-01":
            raise RefusalError("not today")
        site.load(parameters)
        site.train(epochs=1)
        return site.predict("public", form)

    @on_site
    def visited(self, site: Site) -> Done:
        visits = nn.Linear(1, 1, bias=False)
        assert site.recall("visits", visits)
        with torch.no_grad():
            visits.weight.add_(1)
        site.keep("visits", visits)
        return Done()

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        """The server's counts, each weighed by how often the site was visited: private state that the score shows."""
        base = server.counts(split)
        visits = {reply.site.site: reply.payload.values["visits"] for reply in everyone.ask(self.tell)}
        return {site: {name: count * (1 + v) for name, count in base.items()} for site, v in visits.items()}

    @on_site
    def tell(self, site: Site) -> Scores:
        visits = nn.Linear(1, 1, bias=False)
        site.recall("visits", visits)
        site.keep("visits", nn.Linear(1, 1, bias=False))  # read-only: this must not count
        return Scores({"visits": visits.weight.item()})


def distillation(teacher: Tensor) -> Any:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return F.kl_div(model(batch).log_softmax(dim=1), teacher[batch.index], log_target=True, reduction="batchmean")

    return loss


def toy_worker_host(content: dict[str, Any], base: Path, out: Path) -> SiteRunner:
    """A worker that has imported this file, and so knows the algorithm."""
    return worker_runner(content, base, out)
