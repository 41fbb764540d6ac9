"""Dealing out units to sites, to simulate a federation from one corpus.

`iid` shuffles and splits; `by` follows an attribute of the documents, as hospitals do; `dirichlet` skews the
labels: for every label the sites' shares are drawn from Dir(alpha) (Yurochkin et al., ICML 2019); `quantity` skews the
sizes alone, which are drawn from Dir(alpha) (Li et al., ICDE 2022, Section 4.3); `time` gives each site a period;
`structural_entropy` skews how tangled the documents are (FedLCC, 2024, Section 3.5).
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from math import floor, isfinite
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from grandrounds.data.documents import Document
from grandrounds.data.structural_entropy import READINGS, Spread, check_edges, entropies, interval_of, intervals
from grandrounds.errors import ConfigError, DataError, unknown

UNITS = ("example", "sentence", "document", "patient", "pair")
"""What may be kept whole."""
YEAR = re.compile(r"\d{1,4}")


@dataclass(frozen=True)
class Unit:
    """What must not be torn apart: an example, a sentence, a document or a patient, as the task decides."""

    id: str
    label: str
    attributes: Mapping[str, str]
    examples: tuple[int, ...]
    """Indices of the task's examples that it holds."""
    documents: tuple[Document, ...] = field(default=(), repr=False)
    """Where its examples come from, for a scheme that looks into them."""


@dataclass(frozen=True)
class SiteRow:
    """What a site holds, in numbers."""

    name: str
    documents: int
    examples: int
    labels: Mapping[str, int]
    entropy: Spread | None = None
    """Where the scheme is `structural_entropy`: H of its documents."""

    def to_dict(self) -> dict[str, object]:
        """As JSON has it; without entropy where there is none."""
        counts = {"documents": self.documents, "examples": self.examples, "labels": dict(self.labels)}
        return {"name": self.name, **counts, **({"entropy": asdict(self.entropy)} if self.entropy else {})}


@dataclass(frozen=True)
class Partition:
    """Which site holds which examples."""

    scheme: str
    sites: Mapping[str, tuple[int, ...]]
    """Site name -> example indices, both in order."""
    left_out: tuple[str, ...] = ()
    """Sites that got no example, and therefore take no part."""
    entropy: Mapping[str, Spread] = field(default_factory=dict)
    """Site name -> H of its documents, where the scheme goes by it."""

    def table(self, answers: Sequence[Sequence[str]], documents: Sequence[str]) -> list[SiteRow]:
        """A row a site; `answers` and `documents` give the labels that each example counts for, and its document."""
        return [
            SiteRow(
                name,
                len({documents[i] for i in held}),
                len(held),
                dict(sorted(Counter(label for i in held for label in answers[i]).items())),
                self.entropy.get(name),
            )
            for name, held in self.sites.items()
        ]


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of a scheme, and the generator it draws from."""

    rng: np.random.Generator
    sites: int | None = None
    by: str | None = None
    alpha: float | None = None
    entropy: str | None = None
    edges: Sequence[float] | None = None

    def site_names(self) -> list[str]:
        """site-01, site-02 ...: padded, so that sorted order is numeric order."""
        if self.sites is None:
            raise ConfigError("this partition needs a number of sites: set partition.sites")
        width = max(2, len(str(self.sites)))
        return [f"site-{i:0{width}d}" for i in range(1, self.sites + 1)]


@dataclass(frozen=True)
class Partitioning:
    """What a scheme decides, and what it learnt on the way."""

    sites: Mapping[str, Sequence[int]]
    """Site name -> positions in the units given, empty for a site that got none."""
    entropy: Mapping[str, Spread] = field(default_factory=dict)


Scheme = Callable[[Sequence[Unit], ReproduceOptions], Partitioning]
SCHEMES: dict[str, Scheme] = {}
_OPTIONS: dict[str, tuple[str, ...]] = {}


def scheme(name: str, *options: str) -> Callable[[Scheme], Scheme]:
    """Register a scheme; `options` are those fields of a wanted that it understands."""

    def register(assigned: Scheme) -> Scheme:
        SCHEMES[name], _OPTIONS[name] = assigned, options
        return assigned

    return register


def short_form(text: str) -> dict[str, str | float]:
    """[partition] from "dirichlet:0.1" or "by:hospital": after the colon is what the scheme goes by."""
    scheme, colon, value = text.partition(":")
    if scheme not in SCHEMES:
        raise ConfigError(unknown("partition scheme", scheme, SCHEMES))
    own = next((option for option in _OPTIONS[scheme] if option != "sites"), None)
    if own is None and colon:
        raise ConfigError(f"the partition '{text}': nothing goes after '{scheme}'")
    if own is None or (not colon and scheme not in ("by", "dirichlet", "quantity")):
        return {"scheme": scheme}
    if own != "alpha" and value:
        return {"scheme": scheme, own: value}
    try:
        return {"scheme": scheme, own: float(value)}
    except ValueError:
        example = "by:hospital" if own == "by" else f"{scheme}:0.1"
        raise ConfigError(f"the partition '{text}' needs partition.{own} after a colon, such as {example}") from None


def partition(
    units: Sequence[Unit],
    scheme: str,
    *,
    sites: int | None,
    seed: int,
    by: str | None = None,
    alpha: float | None = None,
    entropy: str | None = None,
    edges: Sequence[float] | None = None,
) -> Partition:
    """Partitioning every unit to exactly one site; the same for the same seed, whatever order the units come in."""
    if scheme not in SCHEMES:
        raise ConfigError(unknown("partition scheme", scheme, SCHEMES))
    options = {"sites": sites, "by": by, "alpha": alpha, "entropy": entropy, "edges": edges}
    for name, value in options.items():
        if value is not None and name not in _OPTIONS[scheme]:
            raise ConfigError(f"the partition scheme '{scheme}' does not use '{name}'; remove it")
    if sites is not None and sites < 1:
        raise ConfigError(f"partition.sites is {sites}; there must be at least one site")
    ordered = _in_order(units)
    wanted = ReproduceOptions(_generator(seed, f"partition {scheme}"), sites, by, alpha, entropy, edges)
    assigned = SCHEMES[scheme](ordered, wanted)
    held = {
        name: tuple(sorted(i for u in assigned.sites[name] for i in ordered[u].examples))
        for name in sorted(assigned.sites)
    }
    return Partition(
        scheme,
        {name: examples for name, examples in held.items() if examples},
        tuple(name for name, examples in held.items() if not examples),
        assigned.entropy,
    )


def share(units: Sequence[Unit], fraction: float, seed: int, purpose: str) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    """A random share of the units in the labels' own proportions, and the rest: public and validation sets.

    Each label gives its share rounded down; what is missing comes from those that lost most by rounding. However small
    the share, it is a unit at least, and so is the rest.
    """
    if not 0 <= fraction < 1:
        raise ConfigError(f"the {purpose} share is {fraction}; it must be at least 0 and below 1")
    ordered, rng = _in_order(units), _generator(seed, f"share {purpose}")
    quotas = {label: len(members) * fraction for label, members in _by_label(ordered).items()}
    wanted = floor(len(units) * fraction + 0.5)
    if fraction:
        if len(units) < 2:
            raise ConfigError(f"a {purpose} share of {fraction:g} needs two documents or patients to choose from")
        wanted = min(max(wanted, 1), len(units) - 1)
    counts = {label: floor(quota) for label, quota in quotas.items()}
    neediest = sorted(quotas, key=lambda label: counts[label] - quotas[label])
    for label in neediest[: wanted - sum(counts.values())]:
        counts[label] += 1
    taken = {
        ordered[position].id
        for label, members in _by_label(ordered).items()
        for position in rng.permutation(members)[: counts[label]]
    }
    return tuple(u for u in units if u.id in taken), tuple(u for u in units if u.id not in taken)


@scheme("iid", "sites")
def iid(units: Sequence[Unit], wanted: ReproduceOptions) -> Partitioning:
    """Shuffle and split: sizes differ by at most one unit."""
    names = wanted.site_names()
    if len(names) > len(units):
        raise ConfigError(f"{len(units)} units can't be split over {len(names)} sites; set partition.sites lower")
    shuffled = wanted.rng.permutation(len(units))
    return Partitioning({name: shuffled[site :: len(names)].tolist() for site, name in enumerate(names)})


@scheme("by", "by", "sites")
def by_attribute(units: Sequence[Unit], wanted: ReproduceOptions) -> Partitioning:
    """A site for every value of an attribute; or the values, whole, assigned to sites of like size."""
    groups = _by_value(units, wanted.by)
    if wanted.sites is None:
        return Partitioning(_named_after_values(groups))
    names = wanted.site_names()
    if len(names) > len(groups):
        raise ConfigError(
            f"the {len(groups)} values of '{wanted.by}' can't be split over {len(names)} sites; "
            "set partition.sites lower"
        )
    sizes = {value: sum(len(units[u].examples) for u in members) for value, members in groups.items()}
    values = list(groups)
    shuffled = [values[i] for i in wanted.rng.permutation(len(values))]
    assigned: dict[str, list[int]] = {name: [] for name in names}
    lightest = [(0, 0, name) for name in names]
    # Largest first to the lightest site, then to the one with fewest values: no site stays empty.
    for value in sorted(shuffled, key=lambda value: -sizes[value]):
        size, count, name = lightest[0]
        assigned[name] += groups[value]
        heapq.heapreplace(lightest, (size + sizes[value], count + 1, name))
    return Partitioning(assigned)


@scheme("dirichlet", "sites", "alpha")
def dirichlet(units: Sequence[Unit], wanted: ReproduceOptions) -> Partitioning:
    """For every label, the sites' shares ~ Dir(alpha): a small alpha gives each label to few sites."""
    names, alpha = wanted.site_names(), _alpha(wanted, "dirichlet")
    assigned: dict[str, list[int]] = {name: [] for name in names}
    for members in _by_label(units).values():
        shares = wanted.rng.dirichlet(np.full(len(names), alpha))
        # The random offset rounds shares up or down without favour; floor alone starves the same sites.
        places = (np.arange(len(members)) + wanted.rng.random()) / len(members)
        sites = np.minimum(np.searchsorted(np.cumsum(shares), places, side="right"), len(names) - 1)
        for site, unit in zip(sites.tolist(), wanted.rng.permutation(members).tolist(), strict=True):
            assigned[names[site]].append(unit)
    return Partitioning(assigned)


@scheme("quantity", "sites", "alpha")
def by_quantity(units: Sequence[Unit], wanted: ReproduceOptions) -> Partitioning:
    """The sites' shares of all units ~ Dir(alpha), whatever the labels: a small alpha gives most to few sites."""
    names = wanted.site_names()
    shares = wanted.rng.dirichlet(np.full(len(names), _alpha(wanted, "quantity")))
    ends = np.rint(np.cumsum(shares)[:-1] * len(units)).astype(np.int64)
    return Partitioning(dict(zip(names, _runs(wanted.rng.permutation(len(units)), ends), strict=True)))


@scheme("time", "sites", "by")
def by_time(units: Sequence[Unit], wanted: ReproduceOptions) -> Partitioning:
    """The oldest units to the first site, the next ones to the second: sizes differ by at most one unit. A patient's
    documents, if they stay together, count by the first of them."""
    names, attribute = wanted.site_names(), wanted.by or "date"
    if len(names) > len(units):
        raise ConfigError(f"{len(units)} units can't be split over {len(names)} sites; set partition.sites lower")
    _check_attribute([_attributes(unit) for unit in units], attribute, "time")
    times = [min(_time(one[attribute], attribute) for one in _attributes(unit)) for unit in units]
    order = np.array(sorted(range(len(units)), key=lambda place: (times[place], place)), dtype=np.int64)
    ends = np.arange(1, len(names)) * len(units) // len(names)
    return Partitioning(dict(zip(names, _runs(order, ends), strict=True)))


@scheme("structural_entropy", "sites", "entropy", "edges")
def by_structural_entropy(units: Sequence[Unit], wanted: ReproduceOptions) -> Partitioning:
    """A site for every interval of H: some hold plain documents, others tangled ones; few hold as many."""
    reading = wanted.entropy or "paper"
    if reading not in READINGS:
        raise ConfigError(unknown("reading of structural entropy", reading, READINGS))
    documents = {id(document): document for unit in units for document in unit.documents}
    if not units or not all(unit.documents for unit in units):
        raise DataError("the partition scheme 'structural_entropy' needs units with documents")
    h = dict(zip(documents, entropies(tuple(documents.values()), reading), strict=True))
    values = [fmean(h[id(document)] for document in unit.documents) for unit in units]
    if wanted.edges is not None:
        check_edges(wanted.edges, wanted.sites)
        wanted = replace(wanted, sites=len(wanted.edges) + 1)
    names = wanted.site_names()
    edges = intervals(values, len(names)) if wanted.edges is None else wanted.edges
    assigned: dict[str, list[int]] = {name: [] for name in names}
    for position, value in enumerate(values):
        assigned[names[interval_of(value, edges)]].append(position)
    held = {name: {id(document) for u in assigned[name] for document in units[u].documents} for name in names}
    return Partitioning(assigned, {name: Spread.of([h[one] for one in ids]) for name, ids in held.items() if ids})


def _in_order(units: Sequence[Unit]) -> list[Unit]:
    """By id, so that a partition does not depend on the order of files or dicts."""
    ordered = sorted(units, key=lambda unit: unit.id)
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise DataError(f"two units have the id '{one.id}'; document ids must be unique in a corpus")
    return ordered


def _generator(seed: int, purpose: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def _by_label(units: Sequence[Unit]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for position, unit in enumerate(units):
        groups.setdefault(unit.label, []).append(position)
    return dict(sorted(groups.items()))


def _alpha(wanted: ReproduceOptions, scheme: str) -> float:
    alpha = wanted.alpha
    if alpha is None or not (isfinite(alpha) and alpha > 0):
        raise ConfigError(f"partition.alpha is {alpha}; the scheme '{scheme}' needs a number above 0")
    return alpha


def _runs(order: NDArray[np.int64], ends: NDArray[np.int64]) -> list[list[int]]:
    return [run.tolist() for run in np.split(order, ends)]


def _attributes(unit: Unit) -> list[Mapping[str, str]]:
    return [document.attributes for document in unit.documents] or [unit.attributes]


def _time(value: str, attribute: str) -> datetime:
    """A year, a date or a time as ISO 8601 writes it; a time without a zone is taken as UTC."""
    text = value.strip()
    try:
        found = datetime(int(text), 1, 1) if YEAR.fullmatch(text) else datetime.fromisoformat(text)
    except ValueError:
        raise DataError(
            f"the partition scheme 'time' reads '{attribute}' as a year or a date, such as 2021 or 2021-03-28; some "
            "document has another value"  # which may be a patient's: it is not named
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _check_attribute(attributes: Sequence[Sequence[Mapping[str, str]]], attribute: str, scheme: str) -> None:
    """Of each unit those of its documents: all must have this one."""
    known = {name for some in attributes for one in some for name in one}
    if not known:
        raise ConfigError(f"can't partition by '{attribute}': these documents have no attributes")
    if attribute not in known:
        hint = "" if scheme == "by" else "; name the one that has the date in partition.by"
        raise ConfigError(unknown("document attribute", attribute, known) + hint)
    without = sum(any(attribute not in one for one in some) for some in attributes)
    if without:
        raise DataError(
            f"{without} of {len(attributes)} units have no '{attribute}' attribute; "  # not ids, which may be patients
            f"known attributes: {', '.join(sorted(known))}"
        )


def _by_value(units: Sequence[Unit], attribute: str | None) -> dict[str, list[int]]:
    if attribute is None:
        raise ConfigError("the partition scheme 'by' needs an attribute: set partition.by, for instance to 'hospital'")
    _check_attribute([[unit.attributes] for unit in units], attribute, "by")
    groups: dict[str, list[int]] = {}
    for position, unit in enumerate(units):
        groups.setdefault(unit.attributes[attribute], []).append(position)
    return dict(sorted(groups.items()))


def _named_after_values(groups: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Values as site names, safe as file names, which on some systems must differ in more than case."""
    assigned: dict[str, list[int]] = {}
    taken: dict[str, str] = {}
    for value, members in groups.items():
        name = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", value)).strip("-.")[:80]
        if not name:
            raise DataError(f"the value '{value}' has no letter or digit to name a site after")
        if (other := taken.setdefault(name.casefold(), value)) != value:
            raise DataError(f"the values '{other}' and '{value}' would both name the site '{name}'; rename one")
        assigned[name] = members
    return assigned
