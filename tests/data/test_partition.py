"""Every unit goes to exactly one site, by the seed alone."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from grandrounds.data.documents import Document
from grandrounds.data.partition import SCHEMES, Partition, Partitioning, Unit, partition, scheme, share
from grandrounds.errors import ConfigError, DataError


def unit(i: int, label: str = "A", size: int = 1, **attributes: str) -> Unit:
    return Unit(f"u{i:06d}", label, attributes, tuple(range(i * size, (i + 1) * size)))


def two_labels(count: int) -> list[Unit]:
    return [unit(i, "AB"[i % 2]) for i in range(count)]


def all_examples(result: Partition) -> list[int]:
    return sorted(i for held in result.sites.values() for i in held)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("iid", {}), ("dirichlet", {"alpha": 0.3}), ("by", {"by": "hospital"})),
        *(("quantity", {"alpha": 0.3}), ("time", {"by": "year"})),
    ],
)
def test_every_unit_goes_whole_to_exactly_one_site(name: str, options: dict[str, object]) -> None:
    units = [unit(i, "ABC"[i % 3], size=3, hospital=f"h{i % 11}", year=str(1950 + i % 13)) for i in range(200)]
    result = partition(units, name, sites=7, seed=3, **options)  # type: ignore[arg-type]
    assert all_examples(result) == list(range(600))
    site_of = {i: site for site, held in result.sites.items() for i in held}
    assert all(len({site_of[i] for i in u.examples}) == 1 for u in units)
    assert list(result.sites) == sorted(result.sites)
    assert all(list(held) == sorted(held) for held in result.sites.values())


@pytest.mark.parametrize(("name", "alpha"), [("iid", None), ("dirichlet", 0.5), ("quantity", 0.5)])
def test_the_seed_decides_and_the_order_of_units_does_not(name: str, alpha: float | None) -> None:
    units = two_labels(100)

    def deal(units: Sequence[Unit], seed: int) -> Partition:
        return partition(units, name, sites=5, seed=seed, alpha=alpha)

    assert deal(units, 1) == deal(units[::-1], 1)
    assert deal(units, 1) != deal(units, 2)


def test_attribute_order_does_not_change_a_deal_by_attribute() -> None:
    units = [unit(i, hospital=f"h{i % 9}", ward=f"w{i % 2}") for i in range(60)]
    turned = [replace(u, attributes=dict(reversed(u.attributes.items()))) for u in reversed(units)]
    deals = [partition(us, "by", by="hospital", sites=4, seed=5) for us in (units, turned)]
    assert deals[0] == deals[1]


def test_iid_sizes_differ_by_at_most_one_and_names_are_padded() -> None:
    result = partition(two_labels(103), "iid", sites=10, seed=1)
    assert sorted(map(len, result.sites.values())) == [10] * 7 + [11] * 3
    assert list(result.sites)[:2] == ["site-01", "site-02"]
    assert list(result.sites)[-1] == "site-10"
    assert list(partition(two_labels(103), "iid", sites=100, seed=1).sites)[8:10] == ["site-009", "site-010"]


def test_by_names_a_site_after_every_value() -> None:
    units = [unit(0, hospital="Charité Mitte"), unit(1, hospital="../etc"), unit(2, hospital="Charité Mitte")]
    result = partition(units, "by", by="hospital", sites=None, seed=1)
    assert dict(result.sites) == {"Charité-Mitte": (0, 2), "etc": (1,)}


@pytest.mark.parametrize(("one", "other"), [("St. A", "St.-A"), ("north", "North")])
def test_by_refuses_values_that_would_share_a_name(one: str, other: str) -> None:
    with pytest.raises(DataError, match="would both name the site"):
        partition([unit(0, hospital=one), unit(1, hospital=other)], "by", by="hospital", sites=None, seed=1)


def test_by_with_sites_balances_the_values_by_size() -> None:
    values = "a" * 8 + "b" * 7 + "c" * 6 + "d" * 5 + "e" * 4
    units = [unit(i, hospital=value) for i, value in enumerate(values)]
    result = partition(units, "by", by="hospital", sites=2, seed=1)
    # By hand, largest first to the lightest: a | b, then c to b (13), d to a (13), e to either (17).
    assert sorted(map(len, result.sites.values())) == [13, 17]
    site_of = {values[i]: site for site, held in result.sites.items() for i in held}
    assert site_of["a"] == site_of["d"] != site_of["b"] == site_of["c"]


def test_by_says_how_many_units_lack_the_attribute_and_what_is_known() -> None:
    units = [unit(0, hospital="x", patient="1"), unit(1, patient="2"), unit(2, patient="3")]
    with pytest.raises(DataError, match=r"2 of 3 units have no 'hospital' .*known attributes: hospital, patient"):
        partition(units, "by", by="hospital", sites=None, seed=1)
    with pytest.raises(ConfigError, match=r"'hospitl'; did you mean 'hospital'\?"):
        partition(units, "by", by="hospitl", sites=None, seed=1)


def skew(result: Partition, units: Sequence[Unit]) -> float:
    """Mean over sites of |share of A - 1/2|, by size: 0 for even labels, 1/2 for one label a site."""
    labels = [u.label for u in units]
    return sum(abs(sum(labels[i] == "A" for i in held) - len(held) / 2) for held in result.sites.values()) / len(units)


def test_small_alpha_skews_labels_more_than_large() -> None:
    units = two_labels(2000)
    measured = {
        alpha: np.mean(
            [skew(partition(units, "dirichlet", sites=10, seed=seed, alpha=alpha), units) for seed in range(10)]
        )
        for alpha in (0.05, 1.0, 1000.0)
    }
    assert measured[0.05] > 0.4
    assert 0.1 < measured[1.0] < 0.4
    assert measured[1000.0] < 0.02


def test_dirichlet_with_a_huge_alpha_deals_the_labels_evenly() -> None:
    result = partition(two_labels(2000), "dirichlet", sites=10, seed=1, alpha=1e9)
    for held in result.sites.values():
        even = sum(i % 2 == 0 for i in held)
        assert even in (99, 100, 101)
        assert len(held) - even in (99, 100, 101)


def test_rounding_favours_no_site() -> None:
    counts = Counter(
        site
        for seed in range(200)
        for site in partition(two_labels(6), "dirichlet", sites=6, seed=seed, alpha=1e9).sites
    )
    # Three units a label over six sites: a site holds a label every other time, one of two in 3/4 of deals.
    assert set(counts) == {f"site-0{i}" for i in range(1, 7)}
    assert all(120 <= count <= 180 for count in counts.values())


def test_quantity_draws_sizes_and_leaves_labels_as_they_are() -> None:
    units = two_labels(4000)
    result = partition(units, "quantity", sites=5, seed=1, alpha=0.5)
    digest = hashlib.sha256(b"1/partition quantity").digest()
    rng = np.random.default_rng(int.from_bytes(digest[:16], "little"))
    ends = np.round(np.cumsum(rng.dirichlet(np.full(5, 0.5))) * 4000).astype(int)
    assert [len(held) for held in result.sites.values()] == [size for size in np.diff(ends, prepend=0) if size]
    for held in result.sites.values():
        if len(held) > 200:
            assert abs(sum(i % 2 == 0 for i in held) / len(held) - 0.5) < 0.1


def test_small_alpha_skews_sizes_more_than_large() -> None:
    def largest(alpha: float) -> float:
        deals = [partition(two_labels(1000), "quantity", sites=10, seed=seed, alpha=alpha) for seed in range(10)]
        return float(np.mean([max(map(len, deal.sites.values())) / 1000 for deal in deals]))

    assert largest(0.1) > 0.5 > largest(1.0) > 0.2 > largest(1e6) == pytest.approx(0.1, abs=0.005)


def test_time_gives_each_site_a_period_of_its_own() -> None:
    dates = ["2021-03-28", "1979", "2021-03-29T08:00", "2020-12-31T23:30-02:00", "2021-01-01T00:30", "1999-01-01", "7"]
    units = [unit(i, date=date) for i, date in enumerate(dates)]
    result = partition(units[::-1], "time", sites=3, seed=1)
    # In order: 7, 1979, 1999 / 00:30 and 01:30 (UTC) of 2021, its March. The cuts are at 7/3 and 14/3, rounded down.
    assert dict(result.sites) == {"site-01": (1, 6), "site-02": (4, 5), "site-03": (0, 2, 3)}
    assert partition(units, "time", sites=3, seed=2).sites == result.sites


def test_of_units_of_one_date_the_first_by_id_come_first() -> None:
    units = [unit(i, year="2020") for i in range(5)]
    result = partition(units[::-1], "time", by="year", sites=2, seed=1)
    assert dict(result.sites) == {"site-01": (0, 1), "site-02": (2, 3, 4)}


def test_a_patient_s_documents_stay_together_and_count_by_the_first() -> None:
    def document(year: str) -> Document:
        return Document(f"d{year}", "", (), (), (), (), {"year": year})

    long = replace(unit(0, size=3), documents=(document("2021"), document("1990"), document("2022")))
    others = [replace(unit(i, size=3), documents=(document(str(1990 + i)),)) for i in (1, 2, 3)]
    result = partition([*others, long], "time", by="year", sites=2, seed=1)
    assert dict(result.sites) == {"site-01": (0, 1, 2, 3, 4, 5), "site-02": (6, 7, 8, 9, 10, 11)}


@pytest.mark.parametrize("value", ["last spring", "28/03/2021", "20211", "2021-13-01"])
def test_what_is_no_date_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(DataError, match="as a year or a date, such as 2021") as refused:
        partition([unit(0, date="2021"), unit(1, date=value)], "time", sites=2, seed=1)
    assert value not in str(refused.value)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 1e-3])
def test_sites_that_got_nothing_are_left_out_and_named(alpha: float) -> None:
    result = partition(two_labels(50), "dirichlet", sites=20, seed=1, alpha=alpha)
    assert len(result.sites) <= 2
    assert len(result.sites) + len(result.left_out) == 20
    assert not set(result.sites) & set(result.left_out)
    assert all_examples(result) == list(range(50))


def test_a_site_whose_units_hold_no_example_is_left_out() -> None:
    units = [unit(0, hospital="full"), Unit("u1", "none", {"hospital": "hollow"}, ())]
    result = partition(units, "by", by="hospital", sites=None, seed=1)
    assert (dict(result.sites), result.left_out) == ({"full": (0,)}, ("hollow",))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("idd", {"sites": 2}, r"'idd'; did you mean 'iid'\?"),
        ("iid", {"sites": 0}, "at least one site"),
        ("iid", {"sites": 9}, "8 units can't be split over 9 sites"),
        ("iid", {"sites": None}, r"set partition\.sites"),
        ("iid", {"sites": 2, "alpha": 0.5}, "does not use 'alpha'"),
        ("dirichlet", {"sites": 2}, "needs a number above 0"),
        ("dirichlet", {"sites": 2, "alpha": 0.0}, "needs a number above 0"),
        ("dirichlet", {"sites": 2, "alpha": float("nan")}, "needs a number above 0"),
        ("quantity", {"sites": 2}, "'quantity' needs a number above 0"),
        ("time", {"sites": 9}, "8 units can't be split over 9 sites"),
        ("time", {"sites": 2}, "can't partition by 'date': these documents have no attributes"),
        ("by", {"sites": None}, r"set partition\.by"),
        ("by", {"sites": None, "by": "ward"}, "no attributes"),
    ],
)
def test_impossible_wishes_are_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition(two_labels(8), name, seed=1, **options)  # type: ignore[arg-type]


def test_two_units_of_one_id_are_refused() -> None:
    with pytest.raises(DataError, match="two units have the id 'u000000'"):
        partition([unit(0), unit(0)], "iid", sites=1, seed=1)


def test_a_further_scheme_is_added_by_registering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grandrounds.data.partition.SCHEMES", dict(SCHEMES))
    scheme("all_to_one", "sites")(lambda units, wanted: Partitioning({wanted.site_names()[0]: range(len(units))}))
    assert partition(two_labels(4), "all_to_one", sites=1, seed=1).sites == {"site-01": (0, 1, 2, 3)}


def test_the_table_counts_documents_examples_and_labels() -> None:
    result = Partition("by", {"a": (0, 1, 2), "b": (3,)})
    rows = result.table([("yes",), ("no",), ("yes", "no"), ("no",)], ["d1", "d1", "d2", "d3"])
    assert [row.to_dict() for row in rows] == [
        {"name": "a", "documents": 2, "examples": 3, "labels": {"no": 2, "yes": 2}},
        {"name": "b", "documents": 1, "examples": 1, "labels": {"no": 1}},
    ]


def test_a_share_keeps_the_labels_proportions() -> None:
    units = [unit(i, "A" if i < 70 else "B" if i < 95 else "C") for i in range(100)]
    taken, rest = share(units, 0.2, 1, "public")
    # 14, 5 and 1 of 70, 25 and 5.
    assert Counter(u.label for u in taken) == {"A": 14, "B": 5, "C": 1}
    assert sorted(u.id for u in (*taken, *rest)) == [u.id for u in units]


def test_a_share_hands_the_rounding_to_the_labels_that_lost_most() -> None:
    units = [unit(i, "A" if i < 7 else "B" if i < 13 else "C") for i in range(20)]
    taken, _ = share(units, 0.25, 1, "validation")
    # 1.75, 1.5 and 1.75 of 7, 6 and 7: five in all, so A and C round up and B down.
    assert Counter(u.label for u in taken) == {"A": 2, "B": 1, "C": 2}


def test_a_share_hangs_on_seed_and_purpose_alone() -> None:
    units = two_labels(100)

    def ids(units: Sequence[Unit], seed: int, purpose: str) -> set[str]:
        return {u.id for u in share(units, 0.3, seed, purpose)[0]}

    assert ids(units, 1, "public") == ids(units[::-1], 1, "public")
    assert ids(units, 1, "public") != ids(units, 2, "public")
    assert ids(units, 1, "public") != ids(units, 1, "validation")
    assert share(units, 0.0, 1, "public") == ((), tuple(units))


@pytest.mark.parametrize(("fraction", "count"), [(1.0, 10), (-0.1, 10), (0.1, 1), (0.9, 1)])
def test_a_share_that_leaves_nothing_is_refused(fraction: float, count: int) -> None:
    with pytest.raises(ConfigError, match="public share"):
        share(two_labels(count), fraction, 1, "public")


@pytest.mark.parametrize(("fraction", "taken"), [(0.1, 1), (0.9, 2)])
def test_of_three_units_a_share_takes_one_at_least_and_leaves_one(fraction: float, taken: int) -> None:
    some, rest = share(two_labels(3), fraction, 1, "public")
    assert (len(some), len(rest)) == (taken, 3 - taken)


def test_ten_thousand_sites_and_a_hundred_thousand_units_take_seconds() -> None:
    units = [unit(i, f"label {i % 20}", hospital=f"h{i % 20_000}") for i in range(100_000)]
    started = time.process_time()
    for name, options in {"iid": {}, "dirichlet": {"alpha": 0.5}, "by": {"by": "hospital"}}.items():
        result = partition(units, name, sites=10_000, seed=1, **options)  # type: ignore[arg-type]
        assert len(result.sites) + len(result.left_out) == 10_000
    assert time.process_time() - started < 5
