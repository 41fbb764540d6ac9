"""Each site alone: nothing is learnt from the others. Scores are the mean over sites, with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grandrounds import Algorithm, Cohort, Done, Scores, Server, Site, algorithm, on_site
from grandrounds.federation.privacy.settings import Unit
from grandrounds.federation.robust import Aggregate
from grandrounds.tasks.task import Counts


@algorithm("local_only")
class LocalOnly(Algorithm):
    personal: ClassVar[bool] = True

    def shared(self, name: str) -> bool:
        return False

    def labels_may_differ(self) -> bool:
        return True

    def unaccounted(self, unit: Unit) -> str:
        return "no model leaves a site, so there is nothing to hide" if unit == "site" else ""

    def not_averaged(self) -> str:
        return "no model leaves a site, so there is nothing to mask"

    def not_robust(self, rule: Aggregate) -> str:
        return "no model leaves a site, so there is nothing to compare"

    def round(self, server: Server, cohort: Cohort) -> None:
        cohort.ask(self.train)

    @on_site
    def train(self, site: Site) -> Done:
        site.recall("model", site.model)
        site.train()
        site.calibrate()
        site.keep("model", site.model)
        return Done()

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        return {reply.site.site: reply.payload.values for reply in everyone.ask(self.score, split)}

    @on_site
    def score(self, site: Site, split: str) -> Scores:
        site.recall("model", site.model)
        return Scores(site.counts(split))

    def finish(self, server: Server, everyone: Cohort) -> None:
        everyone.ask(self.save)

    @on_site
    def save(self, site: Site) -> Done:
        site.recall("model", site.model)
        site.save()
        return Done()
