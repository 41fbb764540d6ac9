"""Models with private layers: the shared ones are learnt together, the others never leave a site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from grandrounds import Algorithm, Cohort, Done, Parameters, Scores, Server, Site, TensorState, on_site
from grandrounds.errors import ConfigError, unknown
from grandrounds.tasks.task import Counts

PRIVATE = "private layers"


@dataclass(frozen=True)
class PrivateLayers(Algorithm):
    personal: ClassVar[bool] = True
    private: tuple[str, ...] | str | None = None
    """Parts of the model that stay at a site, by module name ("*.lora_B": wherever it is), or the name of a split that
    all taggers have; by default the task's: of a tagger, LSTM and CRF."""
    private_embeddings: bool | None = None
    """Whether embeddings stay at a site, too; by default where [privacy] is set. Noise would reach every row of a
    table, and rows without noise show which words a batch has."""

    def fitted(self, private: Mapping[str, Sequence[str]]) -> Algorithm:
        if isinstance(self.private, tuple):
            return self
        split = self.private or "default"
        if not private:
            raise ConfigError("algorithm.private: this task has no default; list the parts of its model to keep")
        if split not in private:
            known = unknown("split of this task's model", split, private)
            raise ConfigError(f"algorithm.private: {known}; or name parts in a list")
        return replace(self, private=tuple(private[split]))

    def protected(self) -> Algorithm:
        return self if self.private_embeddings is not None else replace(self, private_embeddings=True)

    def shared(self, name: str) -> bool:
        if self.private_embeddings and {"embeddings", "words"} & set(name.split(".")):
            return False
        return not any(within(name, part) for part in self.private or ())

    def labels_may_differ(self) -> bool:
        return bool(self.private)

    def check(self, parameters: Collection[str]) -> None:
        for part in self.private or ():
            if not any(within(name, part) for name in parameters):
                tops = {name.partition(".")[0] for name in parameters}
                raise ConfigError(f"algorithm.private: {unknown('part of the model', part, tops)}")
        if not any(self.shared(name) for name in parameters):
            raise ConfigError(
                "algorithm.private names all of the model"
                + (" but the embeddings, which privacy keeps at a site" if self.private_embeddings else "")
                + ": nothing is learnt together; take local_only"
            )

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        asked = everyone.ask(self.score, self.shared_weights(server), split)
        return {reply.site.site: reply.payload.values for reply in asked}

    @on_site
    def score(self, site: Site, shared: Parameters, split: str) -> Scores:
        self._judged(site, shared)
        return Scores(site.counts(split))

    def finish(self, server: Server, everyone: Cohort) -> None:
        everyone.ask(self.save, self.shared_weights(server))

    @on_site
    def save(self, site: Site, shared: Parameters) -> Done:
        self._judged(site, shared)
        site.save()
        return Done()

    def put_together(self, site: Site, shared: Parameters) -> None:
        """The shared layers and the site's own; before its first step, those that it started with."""
        own = TensorState()
        site.recall(PRIVATE, own)
        site.load(replace(shared, values={**shared.values, **own}))

    def _judged(self, site: Site, shared: Parameters) -> None:
        """Put together anew of layers that were averaged, it has no threshold yet."""
        self.put_together(site, shared)
        site.calibrate()

    def keep_private(self, site: Site) -> None:
        site.keep(PRIVATE, TensorState(**Parameters.of(site.model, self._private).values))

    def shared_weights(self, server: Server) -> Parameters:
        return Parameters.of(server.model, self.shared, server.start)

    def _private(self, name: str) -> bool:
        return not self.shared(name)

    def trained(self, model: nn.Module, shared: bool) -> list[nn.Parameter]:
        """The parameters that are shared, or those that are not."""
        return [p for name, p in model.named_parameters() if self.shared(name) == shared and p.requires_grad]


def within(name: str, part: str) -> bool:
    """Whether a parameter is in a part of the model, which is named from the top, or anywhere."""
    return f".{part[2:]}." in f".{name}." if part.startswith("*.") else f"{name}.".startswith(f"{part}.")
