"""FedDF: ensemble distillation for robust model fusion (Lin et al., NeurIPS 2020, Algorithm 1).

The server averages the sites' weights as `fedavg` does, then distils into the average what their models say together
on the public set, without its labels: AVGLOGITS, KL(softmax(1/|S| sum_k logits_k) || softmax(logits)). Weights are
averaged by size, and every model has the same say in the ensemble. Unlabelled text (data.unlabelled) is part of that
set. FedED does the same with predictions in place of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from grandrounds import Cohort, Parameters, Predictions, Reply, Server, algorithm, mean
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.algorithms.feded import distillation
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.state import copy_into
from grandrounds.tasks.abilities import Distillable


@algorithm("feddf")
class FedDF(FedAvg):
    needs: ClassVar[Sequence[type]] = (Distillable,)
    server_epochs: ClassVar[int | None] = 1

    def unaccounted(self, unit: Unit) -> str:
        return "the server looks at each site's model, and noise is in their mean alone" if unit == "site" else ""

    def not_averaged(self) -> str:
        return "the server predicts with each site's model, so it must see them"

    def round(self, server: Server, cohort: Cohort) -> None:
        member, answers = server.frozen(), list[Reply[Predictions]]()

        def heard(replies: Iterator[Reply[Parameters]]) -> Iterator[Reply[Parameters]]:
            for reply in replies:
                copy_into(member, reply.payload.values)
                told = server.predict("public", "log_probabilities", member)
                answers.append(replace(reply, payload=told, weight=1.0))  # type: ignore[arg-type]  # of another kind
                yield reply

        server.load(mean(heard(cohort.ask(self.train, Parameters.of(server.model)))))
        # The mean of log p is that of logits, up to a number for each row that a softmax takes out.
        teacher = mean(answers).values.softmax(dim=1)
        server.train("public", loss=distillation(server.asked("public"), teacher, weight=1))
