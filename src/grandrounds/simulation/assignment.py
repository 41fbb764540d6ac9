"""Which examples are the server's, and which each site's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grandrounds.config.schema import Config
from grandrounds.data.corpora import UNLABELLED
from grandrounds.data.documents import Document
from grandrounds.data.partition import Partition, Unit, partition, share
from grandrounds.errors import DataError
from grandrounds.federation.learner import VALIDATION
from grandrounds.setup.examples import Examples
from grandrounds.simulation.sources import TRAIN_OF, part_of

PARTS = ("test", "public", "validation", UNLABELLED)
"""The server's, in the order in which shares of train are drawn."""


class Assignment:
    """Shares of train go to the server, the rest to sites; units that a task keeps whole are never split."""

    def __init__(self, config: Config, parts: Mapping[str, range], examples: Examples) -> None:
        self._config, self._examples, task = config, examples, examples.task
        # By themselves: a patient of two corpora must not carry one's examples, say of the test, into the other.
        by_part: dict[str, Sequence[Unit]] = {
            part: self._units(examples.within(members), task.whole) for part, members in parts.items()
        }
        self._own: dict[str, dict[str, list[int]]] = {name: {} for name in config.sites if config.own_corpora}
        for name in self._own:
            for own in ("validation", "test"):
                if (key := part_of(name, own)) in by_part:
                    self._own[name][own] = _rows(by_part.pop(key))
        given = {part: list(by_part.pop(part)) for part in PARTS if part in by_part}
        by_part = self._share(by_part, given)
        self.served: Mapping[str, Sequence[int]] = {part: _rows(units) for part, units in given.items()}
        """The server's, by part."""
        self._check(parts, by_part)
        unit = config.partition.unit or task.unit
        if task.whole != unit:
            by_part = {part: self._units(_rows(units), unit) for part, units in by_part.items()}
        self.partition = _partition(config, by_part)

    def at(self, site: str) -> Mapping[str, Sequence[int]]:
        """What a site has for itself beside its training data."""
        return {part: rows for part, rows in self._own.get(site, {}).items() if rows}

    def at_all_sites(self) -> frozenset[str]:
        """Parts that every site has for itself."""
        parts = [frozenset(self.at(site)) for site in self._own]
        return frozenset.intersection(*parts) if parts else frozenset()

    def training_documents(self, examples: Examples) -> list[Document]:
        """The documents that sites train on, and the server's where it trains."""
        config = self._config
        served = self.served["public"] if config.model.warm_up or config.needs_public else []
        held = {examples.all[row].document for rows in (*self.partition.sites.values(), served) for row in rows}
        return [examples.documents[i] for i in sorted(held)]

    def _units(self, rows: Sequence[int], unit: str) -> list[Unit]:
        examples = self._examples
        made = examples.task.units([examples.all[row] for row in rows], examples.documents, unit)
        return [replace(one, examples=tuple(rows[i] for i in one.examples)) for one in made]

    def _share(self, by_part: dict[str, Sequence[Unit]], given: dict[str, list[Unit]]) -> dict[str, Sequence[Unit]]:
        """Draw the server's shares of train into `given`; what is left, of which sites get data.train_share."""
        config = self._config
        left = dict.fromkeys(by_part, 1.0)
        for part in PARTS:
            shared, of_all = part not in given, getattr(config.data, part)
            given.setdefault(part, [])
            for source, units in by_part.items():
                if not units:
                    continue  # a site without examples has nothing to share, and is left out later
                site = source.removeprefix(TRAIN_OF)
                of_site = getattr(config.sites[site], part, None) if site in self._own else None
                fraction = of_site if isinstance(of_site, float) else float(of_all or 0.0) if shared else 0.0
                # A share of train as it was, though other parts have already been taken out; tests of several
                # seeds are of the same examples.
                seed = 0 if part == "test" else config.seed
                taken, by_part[source] = share(units, fraction / left[source], seed, part)
                left[source] -= fraction
                # Only a site knows its labels, so what it is validated on stays there.
                if isinstance(of_site, float) or (part == VALIDATION and config.own_labels):
                    self._own[site].setdefault(part, _rows(taken))
                else:
                    given[part] += taken
        if config.data.train_share < 1:
            wanted = config.data.train_share
            return {
                part: share(units, wanted, config.seed, "train")[0] if units else units
                for part, units in by_part.items()
            }
        return by_part

    def _check(self, parts: Mapping[str, range], by_part: Mapping[str, Sequence[Unit]]) -> None:
        task = self._examples.task
        if UNLABELLED in parts and not self.served[UNLABELLED]:
            raise DataError(f"data.unlabelled holds no example of {task.name}: it needs marked mentions to ask about")
        if not self.served["test"] and "test" not in self.at_all_sites():
            raise DataError(f"the test corpus holds no example of {task.name}")
        if not any(by_part.values()):
            raise DataError(
                f"no training example is left for the sites: the corpus holds {len(self._examples.all)} examples of "
                f"{task.name}; check data.train, and the shares data.public and data.validation"
            )


def _partition(config: Config, by_part: Mapping[str, Sequence[Unit]]) -> Partition:
    if config.own_corpora:
        sites = {part.removeprefix(TRAIN_OF): tuple(_rows(units)) for part, units in sorted(by_part.items())}
        empty = tuple(name for name, rows in sites.items() if not rows)
        return Partition("sites", {name: rows for name, rows in sites.items() if rows}, empty)
    chosen = config.partition
    return partition(
        by_part["train"],
        chosen.scheme,
        sites=chosen.sites,
        seed=config.seed,
        by=chosen.by,
        alpha=chosen.alpha,
        entropy=chosen.entropy,
        edges=chosen.edges,
    )


def _rows(units: Sequence[Unit]) -> list[int]:
    return sorted(row for unit in units for row in unit.examples)
