"""Federated ensemble distillation (Sui et al., EMNLP 2020, Algorithm 1): sites upload what they predict on the
server's public set, and the server distils the ensemble's average into its own model. Rows without a label
(data.unlabelled) have no part in the cross-entropy. Where a sentence has several questions (`joint`: which spans are
mentions, how marked mentions are related), the loss has all of them.

Eq. 3  Site.train        Eq. 4  soften        Eq. 5  mean, counted_vote        Eq. 6  distillation
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds import (
    Algorithm,
    Cohort,
    LabelCounts,
    Parameters,
    PredictedLabels,
    Predictions,
    Reply,
    Server,
    Site,
    TensorState,
    algorithm,
    mean,
    on_site,
)
from grandrounds.errors import ConfigError
from grandrounds.federation.learner import Asked, Loss
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.quantize import Form
from grandrounds.federation.robust import Aggregate
from grandrounds.federation.shares import FEW, clipped
from grandrounds.tasks.abilities import IMPOSSIBLE, Distillable, SingleLabel

Replies = Iterator[Reply[Predictions]] | Iterator[Reply[PredictedLabels]]
LAST = "ensemble"  # the server's memory of its last average


@algorithm("feded")
class FedED(Algorithm):
    needs: ClassVar[Sequence[type]] = (Distillable,)
    public_at_sites: ClassVar[bool] = True
    weight_by: ClassVar[str] = "uniform"  # the 1/|J| of Eq. 5
    trains_server: ClassVar[bool] = True
    server_epochs: ClassVar[int | None] = 1

    average: Literal["probabilities", "logits"] = "logits"
    """What Eq. 5 averages: p as it is printed, or logits as the text says (log p: the same under softmax)."""
    temperature: Annotated[float, Field(gt=0)] = 4.0
    """The public set is labelled and soon memorised: at 1 the teacher only repeats its labels, at 4 it says more."""
    weight: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of the teacher against the labels, (1 - w) CE + w KL; by default CE + KL as in Eq. 6."""
    tempered_student: bool = True
    """Soften the student like the teacher, and scale KL by the temperature squared (Hinton et al., 2015); Eq. 6 does
    not."""
    hard_labels: bool = True
    upload: Literal["predictions", "labels"] = "predictions"
    """What sites send for each sentence: a distribution over the classes, or one class, which the server counts as a
    vote."""
    download: Literal["parameters", "predictions"] = "parameters"
    """What sites receive: the student, or the ensemble's last average, which they distil into models of their own."""
    vote: Literal["equal", "counts"] = "equal"
    """A site's weight: equal (or as federation.weight_by says), or by class, from how many examples of it the site has
    seen, with its bias towards common classes removed."""

    def __post_init__(self) -> None:
        if self.weight is not None and not self.hard_labels:
            raise ConfigError("algorithm.weight is the teacher's against the labels, and algorithm.hard_labels is off")
        if self.upload == "labels" and self.average != "probabilities":
            raise ConfigError(
                "algorithm.upload = 'labels' sends votes, which have no logits: set algorithm.average = 'probabilities'"
            )
        if self.upload == "labels" and self.vote != "equal":
            raise ConfigError(
                f"algorithm.vote = '{self.vote}' needs probabilities, and algorithm.upload = 'labels' sends none: "
                "leave algorithm.vote = 'equal'"
            )

    def abilities(self) -> Sequence[type]:
        return (SingleLabel,) if self.vote == "counts" else self.needs

    def not_averaged(self) -> str:
        if self.vote == "counts":
            return "algorithm.vote = 'counts' weighs each site by its own label counts"
        return "algorithm.upload = 'labels' sends classes, which are not averaged" if self.upload == "labels" else ""

    def not_robust(self, rule: Aggregate) -> str:
        if self.vote == "counts":
            return "algorithm.vote = 'counts' weighs each site by its own label counts"
        return "predictions and votes have no norm worth a bound" if rule == "norm_bound" else ""

    def shared(self, name: str) -> bool:
        return self.download == "parameters"

    def counts_labels(self) -> bool:
        return self.vote == "counts"

    def unaccounted(self, unit: Unit) -> str:
        if unit == "site" and self.vote == "counts":
            return "algorithm.vote = 'counts' sends how many examples have each label"
        if unit == "site" and self.upload != "labels":
            return "noise is for votes: set algorithm.upload = 'labels' and algorithm.average = 'probabilities'"
        return ""

    def round(self, server: Server, cohort: Cohort) -> None:
        counted = {r.site.site: r.payload.values for r in cohort.ask(self.count)} if self.vote == "counts" else {}
        seen = capped(counted)
        last = server.tensors(LAST)
        replies = self._ask(server, cohort, last)
        if self.vote == "counts":
            z = counted_vote((answers(r.payload, "log_probabilities"), _counts_of(r, seen)) for r in replies)
            z = z if self._form == "log_probabilities" else z.exp()
        else:
            z = mean(answered(reply, self._form) for reply in replies).values
        last["z"] = on_simplex(z, self._form)
        server.train("public", loss=self._loss(server.asked("public"), last["z"], self.hard_labels))

    def _ask(self, server: Server, cohort: Cohort, last: TensorState) -> Replies:
        labels = self.upload == "labels"
        if self.download == "parameters":
            student = Parameters.of(server.model)
            return cohort.ask(self.train_and_label, student) if labels else cohort.ask(self.train_and_predict, student)
        ensemble = [Predictions(z, self._form, server.digest("public")) for z in last.values()]
        if labels:
            return cohort.ask(self.train_own_and_label, *ensemble)
        return cohort.ask(self.train_own_and_predict, *ensemble)

    @on_site
    def train_and_predict(self, site: Site, parameters: Parameters) -> Predictions:
        site.load(parameters)
        site.train()
        return site.predict("public", self._form)

    @on_site
    def train_and_label(self, site: Site, parameters: Parameters) -> PredictedLabels:
        site.load(parameters)
        site.train()
        return site.predict_labels("public")

    @on_site
    def train_own_and_predict(self, site: Site, *ensemble: Predictions) -> Predictions:
        self._train_own(site, ensemble)
        return site.predict("public", self._form)

    @on_site
    def train_own_and_label(self, site: Site, *ensemble: Predictions) -> PredictedLabels:
        self._train_own(site, ensemble)
        return site.predict_labels("public")

    def _train_own(self, site: Site, ensemble: Sequence[Predictions]) -> None:
        """The site's own model first follows the ensemble's last average (there is none in round 1)."""
        site.recall("model", site.model)
        for last in ensemble:  # the labels are the server's: sites get the sentences alone
            loss = self._loss(site.asked("public"), last.values, hard_labels=False)
            site.train("public", loss=loss, epochs=site.spec.server.epochs)
        site.train()
        site.keep("model", site.model)

    @on_site
    def count(self, site: Site) -> LabelCounts:
        return site.label_counts()

    @property
    def _form(self) -> Form:
        return "probabilities" if self.average == "probabilities" else "log_probabilities"

    def _loss(self, asked: Asked, z: Tensor, hard_labels: bool) -> Loss:
        student = self.temperature if self.tempered_student else 1.0
        weight = self.weight if hard_labels else 1.0
        return distillation(asked, soften(z, self.temperature), student, weight)


def answers(payload: Predictions | PredictedLabels, form: Form) -> Tensor:
    """[rows, classes] of what a site sent; a label is a vote, all for its class."""
    return payload.votes() if isinstance(payload, PredictedLabels) else payload.to(form).values


def answered(reply: Reply[Any], form: Form) -> Reply[Predictions]:
    """The reply with its answers as numbers that have a mean."""
    return replace(reply, payload=Predictions(answers(reply.payload, form), form, reply.payload.public))


def soften(z: Tensor, temperature: float) -> Tensor:
    """Eq. 4, read literally: a softmax of what was averaged, be it probabilities or logits."""
    return (z / temperature).softmax(dim=1)


def mean_vote(votes: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Eq. 5 with a say by class: sum_j s_j z_j / sum_j s_j. Where nobody has a say, all have the same."""
    total, says, plain = (torch.zeros(()) for _ in range(3))
    number = 0
    for z, say in votes:
        total, says, plain, number = total + say * z, says + say.expand_as(z), plain + z, number + 1
    return torch.where(says > 0, total / says.clamp(min=1e-12), plain / number)


def on_simplex(z: Tensor, form: Form) -> Tensor:
    """Normalise: an average entry by entry need not sum to one. Where all entries are zero, as in the median of three
    sites that are certain of three different classes, the result is uniform."""
    if form == "log_probabilities":
        return z.log_softmax(dim=1)
    total = z.sum(dim=1, keepdim=True)
    return torch.where(total > 0, z / total.clamp(min=1e-12), torch.full_like(z, 1 / z.shape[1]))


def distillation(asked: Asked, teacher: Tensor, temperature: float = 1.0, weight: float | None = None) -> Loss:
    """Eq. 6: CE + KL(q || p), or (1 - w) CE + w t^2 KL(q || p) with the student softened by t. KL is a mean over the
    batch, CE one over those of its rows that have a label, and 0 where none has."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        logits, ce = asked.respond(model, batch)
        p = (logits / temperature).log_softmax(dim=1)
        q = possible(asked.of(teacher, batch).to(logits.device), logits)
        kl = temperature**2 * (F.kl_div(p, q, reduction="sum") / len(batch.index))
        if weight == 1:
            return kl
        return ce + kl if weight is None else (1 - weight) * ce + weight * kl

    return loss


def possible(q: Tensor, logits: Tensor) -> Tensor:
    """The teacher's answers without classes that are no answer to a question: an average gives these a little, too."""
    barred = logits == IMPOSSIBLE
    rest = q.masked_fill(barred, 0)
    return torch.where(barred.any(dim=1, keepdim=True), rest / rest.sum(dim=1, keepdim=True).clamp(min=1e-12), q)


def counted_vote(votes: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Eq. 5 for sites that saw different classes, from (log p, label counts): each site's bias towards what it saw is
    taken out, its say in a class grows with what it saw of it, and the bias of all sites together is put back."""
    seen = torch.ones(())

    def unbiased() -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal seen
        for log_p, counts in votes:
            seen = seen + counts.double()
            z = log_p - prior(counts).log()  # log p(sentence | class), up to a constant
            yield z - z.mean(dim=1, keepdim=True), class_say(counts)

    z = mean_vote(unbiased())
    return (z + (seen / seen.sum()).log()).log_softmax(dim=1).float()


def prior(counts: Tensor) -> Tensor:
    smoothed = counts.double() + 1  # whole numbers could be made to overflow
    return smoothed / smoothed.sum()


def class_say(counts: Tensor) -> Tensor:
    """A say for each class, from nothing to one, so that a forged count gains little: 20 examples give half of it."""
    return counts.double() / (counts.double() + 20)


def capped(seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Label counts; those of a site that tells of more than all others together are scaled to as many as theirs: nobody
    can check them, and the bias of all sites together would be its own."""
    totals = {site: float(counts.double().sum()) for site, counts in seen.items()}
    kept = clipped(totals, 0.5) if len(totals) >= FEW else totals
    return {
        site: counts if kept[site] == totals[site] else counts.double() * (kept[site] / totals[site])
        for site, counts in seen.items()
    }


def _counts_of(reply: Reply[Predictions] | Reply[PredictedLabels], seen: Mapping[str, Tensor]) -> Tensor:
    """The site's label counts; a site that refused to send them counts as having seen a little of every class."""
    classes = len(reply.site.labels)
    return seen[reply.site.site] if reply.site.site in seen else torch.full((classes,), 20)
