"""What goes together, as one table: privacy, secure sums, rules of aggregation, compression and algorithms."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any, get_args

import pytest

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Compression
from grandrounds.federation.robust import Aggregate
from grandrounds.registry import ALGORITHMS
from tests.conftest import TinyConfig, task_for

Settings = Mapping[str, Any]
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "privacy.md"
VOTES = {"algorithm.upload": "labels", "algorithm.average": "probabilities"}
BUILT_IN = [
    *("fedavg", "fedprox", "fedopt", "fedatt", "fedlcc", "moon", "scaffold", "feded", "feddf"),
    *("fedner", "fedper", "ditto", "flora"),
    *("lazy_mil", "centralized", "local_only", "validation_only"),
]
VARIANTS: Mapping[str, Settings] = {
    '`feded`, `upload = "labels"`': {"algorithm.name": "feded", **VOTES},
    '`feded`, `vote = "counts"`': {"algorithm.name": "feded", "algorithm.vote": "counts"},
    "`fedlcc`, `diagnostics = true`": {"algorithm.name": "fedlcc", "algorithm.diagnostics": True},
}
ALGORITHM: Mapping[str, Settings] = {**{f"`{name}`": {"algorithm.name": name} for name in BUILT_IN}, **VARIANTS}
UNIT: Mapping[str, Settings] = {f"by {unit}": {"privacy.unit": unit} for unit in ("example", "patient", "site")}
SECURE: Mapping[str, Settings] = {"`secure`": {"federation.secure": True}}
RULE: Mapping[str, Settings] = {
    f"`{rule}`": {"federation.aggregate": rule} for rule in get_args(Aggregate) if rule != "mean"
}
COMPRESSION: Mapping[str, Settings] = {
    f"`{name}`": {"federation.compression": name} for name in get_args(Compression) if name != "fp32"
}
COLUMNS = {**UNIT, **SECURE, **RULE, **COMPRESSION}
NOTHING: Mapping[str, Settings] = {"": {}}


@pytest.fixture(scope="module")
def refusals(tiny_config: TinyConfig) -> Any:
    """Why settings are refused, as their author reads it; empty: they are allowed."""
    plain = tiny_config(**{"privacy.exact_scores": True, "federation.rounds": 1})

    @cache
    def why(items: frozenset[tuple[str, Any]]) -> str:
        settings = dict(items)
        name = settings.get("algorithm.name", "fedavg")
        needs: Settings = task_for(name)
        if name in ("fedner", "fedper"):
            needs = {"task": {"name": "ner", "tagger": "bert"}}
        try:
            make_config(copy.deepcopy(plain), {**needs, **settings})
        except ConfigError as problem:
            return str(problem)
        return ""

    return lambda *settings: why(frozenset(item for some in settings for item in some.items()))


def shortened(why: str) -> str:
    """Without what row and column say already."""
    for before in ("is refused, because ", "is refused: ", "' has no effect with "):
        _, found, rest = why.partition(before)
        if found:
            return rest.partition(": ")[2] if "no effect with" in before else rest
    for key, kind in (("aggregate", "rule"), ("compression", "compression")):
        why = re.sub(rf"federation\.{key} = '\w+'", f"this {kind}", why)
    return why


def table(refusals: Any) -> str:
    """As it stands in the docs: a number leads to the reason."""
    reasons: list[str] = []

    def cell(row: Settings, column: Settings) -> str:
        if row.keys() <= column.keys():  # a setting beside itself
            return ""
        if not (why := shortened(refusals(row, column))):
            return "yes"
        if why not in reasons:
            reasons.append(why)
        return f"no ({reasons.index(why) + 1})"

    lines = [f"| | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for name, row in {**ALGORITHM, **SECURE, **RULE, **COMPRESSION}.items():
        lines.append(f"| {name} | {' | '.join(cell(row, column) for column in COLUMNS.values())} |")
    return "\n".join([*lines, "", *(f"{number}. {why}" for number, why in enumerate(reasons, start=1))]) + "\n"


def test_the_table_of_the_docs_is_what_is_checked(refusals: Any) -> None:
    assert table(refusals) in PAGE.read_text(encoding="utf-8")


def test_the_table_has_all_algorithms() -> None:
    ours = {name for name in ALGORITHMS if ALGORITHMS[name].__module__.startswith("grandrounds.")}
    assert ours == set(BUILT_IN)


@pytest.mark.parametrize("algorithm", ALGORITHM)
def test_settings_go_together_if_each_two_of_them_do(algorithm: str, refusals: Any) -> None:
    """So the table says all there is to say of the whole product."""
    for chosen in product({**NOTHING, **UNIT}, {**NOTHING, **SECURE}, {**NOTHING, **RULE}, {**NOTHING, **COMPRESSION}):
        settings = [ALGORITHM[algorithm], *(COLUMNS[name] for name in chosen if name)]
        pairs = [why for pair in combinations(settings, 2) if (why := shortened(refusals(*pair)))]
        why = shortened(refusals(*settings))
        assert (why in pairs) if pairs else not why, chosen
