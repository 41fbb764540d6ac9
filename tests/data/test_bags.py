"""Where the sentences of synthetic bags are."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from grandrounds.data.synthetic.bags import Bags, synthesize_bags
from grandrounds.errors import DataError

SMALL = {"facts": 60, "unrelated": 60, "test": 10}


def sites_of_pairs(bags: Bags) -> list[Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for document in bags.train:
        found[document.id.rpartition("-")[0]][document.attributes["site"]] += 1
    return list(found.values())


def test_without_scatter_a_pair_is_at_one_site_and_pairs_are_at_all() -> None:
    pairs = sites_of_pairs(synthesize_bags(**SMALL, sites=5, scatter=0))
    assert all(len(sites) == 1 for sites in pairs)
    assert {site for sites in pairs for site in sites} == {f"site-{i:03d}" for i in range(1, 6)}


def test_scattered_sentences_are_at_every_site_alike() -> None:
    pairs = sites_of_pairs(synthesize_bags(**SMALL, sites=5, scatter=100))
    held = sum(pairs, Counter[str]())
    even = held.total() / 5
    assert all(0.7 * even < number < 1.3 * even for number in held.values())
    at_most_liked = [max(sites.values()) / sites.total() for sites in pairs if sites.total() >= 8]
    assert sum(at_most_liked) / len(at_most_liked) < 0.5


def test_half_scattered_most_sentences_are_at_home() -> None:
    pairs = [sites for sites in sites_of_pairs(synthesize_bags(**SMALL, sites=5, scatter=50)) if sites.total() >= 8]
    share = sum(max(sites.values()) for sites in pairs) / sum(sites.total() for sites in pairs)
    assert share == pytest.approx(0.5 + 0.5 / 5, abs=0.08)


def test_what_is_written_does_not_depend_on_where() -> None:
    plain, placed = synthesize_bags(**SMALL), synthesize_bags(**SMALL, sites=3, scatter=40)
    assert all("site" not in document.attributes for document in plain.train)
    bare = [
        replace(document, attributes={"true": document.attributes["true"]})
        for document in (*placed.train, *placed.test)
    ]
    assert bare == [*plain.train, *plain.test]


def test_a_scatter_beyond_all_is_refused() -> None:
    with pytest.raises(DataError, match="scatter 0 to 100"):
        synthesize_bags(**SMALL, sites=3, scatter=101)
