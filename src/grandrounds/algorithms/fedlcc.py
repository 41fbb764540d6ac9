"""FedLCC (2024, Algorithm 1): federated averaging whose sites are drawn to the localized contexts that the server's
model sees, and away from those that their own model saw a round ago.

Eq. 5  Localized.localized_context        Eq. 12  contrast        Eq. 13  FedLCC.train        Eq. 14  mean, uniform
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds import Cohort, Parameters, Scores, Server, Site, TensorState, algorithm, on_site
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.federation.learner import Loss
from grandrounds.federation.privacy.settings import Unit
from grandrounds.tasks.abilities import Bagged, Localized
from grandrounds.tasks.task import Reading, Task

PREVIOUS, SEEN = "previous model", "contrast of the last training"


@algorithm("fedlcc")
class FedLCC(FedAvg):
    weight_by: ClassVar[str] = "uniform"  # Eq. 14
    needs: ClassVar[Sequence[type]] = (Localized,)

    mu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """The weight of the contrast; 0 is `fedavg` with weight_by = "uniform"."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """tau of Eq. 12."""
    context_dropout: bool = True
    """Whether the local context of Eq. 12 comes from the pass that the task's loss is of, with its dropout, as in the
    paper; False: from a second pass without dropout, as those of the two frozen networks do."""
    diagnostics: bool = False
    """Whether sites report after each round what the contrast was in their training: one more exchange of `scores`."""

    def unaccounted(self, unit: Unit) -> str:
        return "algorithm.diagnostics sends what the contrast was on training data" if self.diagnostics else ""

    def not_averaged(self) -> str:
        return "algorithm.diagnostics reads what each site measured" if self.diagnostics else ""

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        tally = Tally() if self.diagnostics else None
        site.train(loss=self.contrasted(site, tally))
        if self.mu:
            site.keep(PREVIOUS, site.model)
        if tally is not None:
            site.keep(SEEN, tally.kept(site.round))
        return Parameters.of(site.model)

    def diagnose(self, server: Server, cohort: Cohort) -> Mapping[str, float]:
        if not self.diagnostics:
            return {}
        reported = [reply.payload.values for reply in cohort.ask(self.report)]
        return means({name: sum(values.get(name, 0.0) for values in reported) for name in asdict(Tally())})

    @on_site
    def report(self, site: Site) -> Scores:
        return Scores(Tally.recalled(site))

    def contrasted(self, site: Site, tally: Tally | None = None) -> Loss | None:
        """Eq. 13. Both frozen networks read the site's data once, whatever the number of epochs; bags exist only in
        training batches, so there they read every batch. In a site's first round there is no previous model, and the
        loss is the task's."""
        if not self.mu or not site.holds(PREVIOUS):
            return None
        task, previous = site.spec.task, site.frozen()
        site.recall(PREVIOUS, previous)

        def view(model: nn.Module, batch: Any) -> Tensor:
            return self.viewed(task, task.read(model, batch))

        nets = (site.frozen(), previous)
        seen = [] if isinstance(task, Bagged) else [site.infer("train", view, net) for net in nets]
        second_pass = not self.context_dropout and drops_out(site.model)
        undropped = without_dropout(site.model) if second_pass else None

        def loss(model: nn.Module, batch: Any) -> Tensor:
            reading = task.read(model, batch)
            here = self.viewed(task, reading) if undropped is None else view(undropped, batch)
            with torch.no_grad():
                frozen = [rows.at(batch.index) for rows in seen] or [view(net, batch) for net in nets]
            there, before = (one.to(here.device) for one in frozen)
            graded = task.grade(reading, batch)
            contrasted = self.mu * contrast(here, there, before, self.temperature)
            if tally is not None:
                tally.add(here, there, before, self.temperature)
                tally.add_gradients(model, graded, contrasted)
            return graded + contrasted

        return loss

    def viewed(self, task: Task, reading: Reading) -> Tensor:
        """What is contrasted, [pairs, width]: L of Eq. 12."""
        assert isinstance(task, Localized)  # by needs
        return task.localized_context(reading)


def contrast(here: Tensor, there: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Eq. 12, the mean over pairs; a pair that has no context in one of the nets has no term."""
    similar = F.cosine_similarity(here, there, dim=1) / temperature
    dissimilar = F.cosine_similarity(here, before, dim=1) / temperature
    defined = have_terms(here, there, before)
    # -log(e^s / (e^s + e^d)) = log(1 + e^(d - s))
    terms = F.softplus(dissimilar - similar).masked_fill(~defined, 0)
    return terms.sum() / torch.clamp(defined.sum(), min=1)


def have_terms(*contexts: Tensor) -> Tensor:
    """[pairs]: which pairs have a context in all networks."""
    return torch.stack([context.any(dim=1) for context in contexts]).all(dim=0)


@dataclass
class Tally:
    """What the contrast was in a site's training, as sums: over all pairs that have a term, and over those batches
    whose gradient was taken apart. These are the 2nd, 4th, 8th, 16th ... of a round: at the first, the local model is
    still the global one, and each of them costs two backward passes more."""

    pairs: float = 0.0
    contrast: float = 0.0
    cosine_global: float = 0.0
    cosine_previous: float = 0.0
    batches: float = 0.0
    gradient_share: float = 0.0

    def __post_init__(self) -> None:
        self._trained = 0

    @torch.no_grad()
    def add(self, here: Tensor, there: Tensor, before: Tensor, temperature: float) -> None:
        """Eq. 12 and its two cosines."""
        kept = have_terms(here, there, before)
        here, there, before = (x[kept].double() for x in (here, there, before))
        self.pairs += len(here)
        self.contrast += contrast(here, there, before, temperature).item() * len(here)
        self.cosine_global += F.cosine_similarity(here, there, dim=1).sum().item()
        self.cosine_previous += F.cosine_similarity(here, before, dim=1).sum().item()

    def add_gradients(self, model: nn.Module, graded: Tensor, contrasted: Tensor) -> None:
        """|mu grad L_LCC| / (|mu grad L_LCC| + |grad L_task|), of few batches."""
        self._trained += 1
        if self._trained == 1 or self._trained & (self._trained - 1):
            return
        pull, task = (gradient_norm(model, loss) for loss in (contrasted, graded))
        if pull + task > 0:
            self.batches += 1
            self.gradient_share += pull / (pull + task)

    def kept(self, round: int) -> TensorState:
        return TensorState(
            round=torch.tensor(round), sums=torch.tensor(list(asdict(self).values()), dtype=torch.float64)
        )

    @classmethod
    def recalled(cls, site: Site) -> dict[str, float]:
        """What the site kept in this round; zeros where it did not train in it."""
        kept, names = TensorState(), asdict(cls())
        if not site.recall(SEEN, kept) or int(kept["round"]) != site.round:
            return names
        return dict(zip(names, kept["sums"].tolist(), strict=True))


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """A tally's means; none in a round without a contrast."""
    over = {"pairs": ("contrast", "cosine_global", "cosine_previous"), "batches": ("gradient_share",)}
    return {name: sums[name] / sums[count] for count, names in over.items() for name in names if sums[count] > 0}


def gradient_norm(model: nn.Module, loss: Tensor) -> float:
    """Norm of the loss's gradient over all trained parameters; keeps the graph and existing gradients."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
    return nn.utils.get_total_norm([gradient for gradient in found if gradient is not None]).item()


def drops_out(model: nn.Module) -> bool:
    """Whether the model has any dropout, as a module or as a rate on a module."""
    dropouts = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    return any(
        isinstance(value, float) and value > 0
        for module in model.modules()
        for name, value in vars(module).items()
        if "drop" in name or (name == "p" and isinstance(module, dropouts))
    )


def without_dropout(model: nn.Module) -> nn.Module:
    """A second network in eval mode on the same parameters. (Switching one network between modes would apply dropout
    when checkpointed parts are computed again for the gradient.)"""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared).eval()
