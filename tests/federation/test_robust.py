"""Robust rules against NumPy written from the papers' definitions, and what they do with hostile replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from grandrounds.errors import GrandRoundsError
from grandrounds.federation import collected
from grandrounds.federation.aggregate import mean
from grandrounds.federation.contract import Registration, Reply
from grandrounds.federation.payloads import Gradients, Parameters, Predictions, Tensors
from grandrounds.federation.robust import Aggregate, Aggregation, Rule, byzantine, krum_chosen, left_out, lower_median
from grandrounds.federation.rows import Rows

SENT = np.random.default_rng(5).normal(size=(4, 3)).astype(np.float32)
HEARD: dict[str, float] = {}


def replies(
    values: Sequence[Any], aggregate: Aggregate, weights: Sequence[float] | None = None, **options: Any
) -> list[Reply[Any]]:
    """One reply a value: an array is weights of the name "w"; all sites were sent SENT."""
    HEARD.clear()
    how = Aggregation(Rule(aggregate, **options), HEARD.update)
    parts = [Parameters({"w": torch.from_numpy(v)}) if isinstance(v, np.ndarray) else v for v in values]
    names = [f"site-{i:02d}" for i in range(len(values))]
    return [
        Reply(Registration(name, {}, (), {}), part, weight, how, Parameters({"w": torch.from_numpy(SENT)}))
        for name, part, weight in zip(names, parts, weights or [1.0] * len(values), strict=True)
    ]


def found(*given: Any, **options: Any) -> np.ndarray:
    return mean(replies(*given, **options)).values["w"].numpy()


def drawn(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [SENT + rng.normal(size=SENT.shape).astype(np.float32) * 0.1 for _ in range(count)]


def krum_of_the_paper(values: Sequence[np.ndarray], wrong: int, keep: int) -> np.ndarray:
    """s(i) = sum over the n - f - 2 vectors closest to V_i of |V_i - V_j|^2; the mean of the m with the lowest."""
    flat = np.stack([v.astype(np.float64).ravel() for v in values])
    scores = []
    for i in range(len(flat)):
        apart = sorted(((flat[i] - flat[j]) ** 2).sum() for j in range(len(flat)) if j != i)
        scores.append(sum(apart[: len(flat) - wrong - 2]))
    return flat[np.argsort(scores, kind="stable")[:keep]].mean(axis=0).reshape(values[0].shape)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 11, 12])
def test_the_median_is_that_of_numpy_entry_by_entry(count: int) -> None:
    np.testing.assert_allclose(found(drawn(count), "median"), np.median(drawn(count), axis=0), atol=1e-7)


@pytest.mark.parametrize(
    ("count", "share", "out"), [(11, 0.2, 2), (10, 0.1, 1), (10, 0.3, 3), (5, 0.49, 2), (3, 0.1, 0)]
)
def test_the_trimmed_mean_leaves_out_the_share_at_each_end(count: int, share: float, out: int) -> None:
    ordered = np.sort(np.stack(drawn(count)).astype(np.float64), axis=0)
    expected = ordered[out : count - out].mean(axis=0)
    np.testing.assert_allclose(found(drawn(count), "trimmed", byzantine=share), expected, atol=1e-6)
    assert left_out(share, count) == out


@pytest.mark.parametrize("keep", [None, 1, 4])
def test_krum_is_the_mean_of_those_with_the_nearest_neighbours(keep: int | None) -> None:
    values = drawn(11)
    values[3], values[7] = values[3] * 100, values[7] + 1
    expected = krum_of_the_paper(values, wrong=2, keep=keep or 9)
    np.testing.assert_allclose(found(values, "krum", krum_keep=keep), expected, atol=1e-6)


def test_krum_with_one_kept_is_one_of_the_replies_bit_for_bit() -> None:
    values = drawn(7)
    chosen = found(values, "krum", krum_keep=1)
    assert any(np.array_equal(chosen, value) for value in values)


def test_krum_assumes_no_more_than_its_proof_allows() -> None:
    """n >= 2 f + 3"""
    assert [byzantine(0.45, n) for n in (1, 2, 3, 4, 5, 9, 11)] == [0, 0, 0, 0, 1, 3, 4]


def test_equal_scores_of_krum_go_by_site_order() -> None:
    assert krum_chosen(torch.zeros(4, 4, dtype=torch.float64), 1, 2) == [0, 1]


@pytest.mark.parametrize("multiple", [0.5, 1.0, 3.0])
def test_norm_bound_is_the_weighted_mean_of_cut_updates(multiple: float) -> None:
    values, weights = drawn(5), [3.0, 1.0, 2.0, 5.0, 4.0]
    values[1] = SENT + 50 * (values[1] - SENT)
    updates = [v.astype(np.float64) - SENT for v in values]
    norms = [np.sqrt((u**2).sum()) for u in updates]
    bound = multiple * sorted(norms)[2]
    cut = [u * min(1, bound / norm) for u, norm in zip(updates, norms, strict=True)]
    expected = SENT + np.average(cut, axis=0, weights=weights)
    np.testing.assert_allclose(found(values, "norm_bound", weights, norm_multiple=multiple), expected, atol=1e-6)
    assert list(HEARD.values()) == pytest.approx(norms)


def test_a_set_bound_does_not_ask_what_others_sent() -> None:
    update = np.full_like(SENT, 2.0)
    got = found([SENT + update], "norm_bound", norm_bound=1.0)
    assert np.linalg.norm(got - SENT) == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(got - SENT, update / np.linalg.norm(update), rtol=1e-4)


def test_updates_within_the_bound_give_the_bits_of_the_mean() -> None:
    values, weights = drawn(5), [3.0, 1.0, 2.0, 5.0, 4.0]
    assert np.array_equal(found(values, "norm_bound", weights, norm_bound=1e6), found(values, "mean", weights))


@pytest.mark.parametrize("aggregate", ["norm_bound", "median", "trimmed", "krum"])
@pytest.mark.parametrize("hostile", [lambda v: v * 100, lambda v: -v, lambda v: np.full_like(v, 3e38)])
def test_two_of_eleven_can_not_lead_it_away(aggregate: Aggregate, hostile: Any) -> None:
    honest = drawn(11)
    values = [hostile(v) if place in (0, 6) else v for place, v in enumerate(honest)]
    far = np.abs(found(values, aggregate) - np.mean(honest, axis=0)).max()
    assert far < 0.25
    assert np.abs(found(values, "mean") - np.mean(honest, axis=0)).max() > 4 * far


def test_krum_still_tells_near_replies_apart_beside_one_that_is_far_away() -> None:
    values = drawn(11)
    values[4] = np.full_like(SENT, 3e38)
    others = [v for place, v in enumerate(values) if place != 4]
    expected = krum_of_the_paper([*others, SENT + 1e6], wrong=2, keep=9)
    np.testing.assert_allclose(found(values, "krum"), expected, atol=1e-6)


@pytest.mark.parametrize("aggregate", ["median", "trimmed", "krum"])
def test_how_many_examples_a_site_claims_makes_no_difference(aggregate: Aggregate) -> None:
    claimed = found(drawn(5), aggregate, [1.0, 1e9, 1.0, 1.0, 1.0])
    assert np.array_equal(claimed, found(drawn(5), aggregate))


@pytest.mark.parametrize("aggregate", ["norm_bound", "median", "trimmed", "krum"])
def test_replies_on_disk_give_the_bits_of_replies_in_memory(
    aggregate: Aggregate, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = found(drawn(6), aggregate)
    monkeypatch.setattr(collected, "IN_MEMORY", 1)
    assert np.array_equal(found(drawn(6), aggregate), in_memory)


@pytest.mark.parametrize("aggregate", ["median", "trimmed"])
def test_slices_have_the_bits_of_the_whole(aggregate: Aggregate, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found(drawn(6), aggregate)
    monkeypatch.setattr(collected, "SLICE", 6 * 5)  # five numbers of each reply, and twelve to read
    assert np.array_equal(found(drawn(6), aggregate), whole)


def test_krum_chooses_the_same_from_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found(drawn(6), "krum")
    monkeypatch.setattr(collected, "SLICE", 6 * 5)
    assert np.array_equal(found(drawn(6), "krum"), whole)


@pytest.mark.parametrize("aggregate", ["norm_bound", "median", "trimmed", "krum"])
def test_a_payload_is_a_cursor(aggregate: Aggregate) -> None:
    """What it held is overwritten when the next one is read."""
    values, buffer = drawn(5), torch.zeros(4, 3)

    def cursor() -> Iterator[Reply[Any]]:
        for reply in replies(values, aggregate):
            buffer.copy_(reply.payload.values["w"])
            yield replace(reply, payload=Parameters({"w": buffer}))
        buffer.fill_(-1000)

    assert np.array_equal(mean(cursor()).values["w"].numpy(), found(values, aggregate))


@pytest.mark.parametrize("aggregate", ["norm_bound", "median", "trimmed", "krum"])
def test_counters_are_those_of_the_first_site(aggregate: Aggregate) -> None:
    parts = [Parameters({"w": torch.from_numpy(v), "steps": torch.tensor(n)}) for n, v in enumerate(drawn(4), 5)]
    assert mean(replies(parts, aggregate)).values["steps"].item() == 5


def gradients(*rows: dict[int, float]) -> list[Gradients]:
    """Of one weight, always 1, and of a table with these rows."""
    return [
        Gradients(
            {"w": torch.ones(1)},
            {"table": Rows(torch.tensor(sorted(some)), torch.tensor([[some[i]] * 2 for i in sorted(some)]))},
        )
        for some in rows
    ]


def test_rows_that_a_reply_does_not_have_are_zero_for_every_rule() -> None:
    given = gradients({1: 2.0, 3: 4.0}, {1: 4.0}, {1: 3.0, 3: 8.0})
    tables = {name: mean(replies(given, name)).rows["table"] for name in ("median", "trimmed", "krum")}
    assert tables["median"].index.tolist() == [1, 3]
    assert tables["median"].values[:, 0].tolist() == [3.0, 4.0]
    assert tables["trimmed"].values[:, 0].tolist() == [3.0, 4.0]  # of three, a fifth is nobody
    assert mean(replies(given, "krum", krum_keep=1)).rows["table"].values[:, 0].tolist() == [2.0, 4.0]


def test_the_norm_of_a_gradient_includes_its_rows() -> None:
    cut = mean(replies(gradients({1: 2.0}, {1: 2.0}, {1: 200.0}), "norm_bound"))
    assert HEARD["site-00"] == pytest.approx(3.0)  # 1 + 4 + 4
    assert cut.values["w"].item() == pytest.approx((1 + 1 + 3 / np.sqrt(80001)) / 3)
    assert cut.rows["table"].values[0, 0].item() == pytest.approx((2 + 2 + 200 * 3 / np.sqrt(80001)) / 3)


def test_each_payload_of_a_reply_has_its_own_rule() -> None:
    parts = [
        (Parameters({"w": torch.from_numpy(v)}), Tensors({"c": torch.tensor([c])}))
        for v, c in zip(drawn(3), (1.0, 2.0, 900.0), strict=True)
    ]
    weights, change = mean(replies(parts, "median"))
    assert np.array_equal(weights.values["w"].numpy(), found(drawn(3), "median"))
    assert change.values["c"].item() == 2.0


def test_predictions_have_no_norm_to_bound() -> None:
    answers = [Predictions(torch.tensor([[p, 1 - p]]), "probabilities", "d") for p in (0.2, 0.3, 1.0)]
    assert mean(replies(answers, "norm_bound")).values.flatten().tolist() == pytest.approx([0.5, 0.5])
    assert HEARD == {}
    middle = mean(replies(answers, "median"))
    assert (middle.form, middle.public) == ("probabilities", "d")
    assert middle.values.flatten().tolist() == pytest.approx([0.3, 0.7])


def test_a_bound_needs_the_weights_that_a_site_was_sent() -> None:
    unsent = [replace(reply, sent=None) for reply in replies(drawn(3), "norm_bound")]
    with pytest.raises(GrandRoundsError, match="take 'median', 'trimmed' or 'krum'"):
        mean(unsent)
    assert mean([replace(reply, sent=None) for reply in replies(drawn(3), "median")]) is not None
    assert HEARD == {}


def test_outliers_are_far_above_the_median_norm() -> None:
    rule = Rule("median", outlier=10)
    assert rule.outliers({"a": 1.0, "b": 2.0, "c": 3.0, "d": 19.0, "e": 21.0}) == {}
    assert rule.outliers({"a": 1.0, "b": 2.0, "c": 3.0, "d": 40.0}) == {"d": 20.0}
    assert rule.outliers({"a": 1.0, "b": 1000.0}) == {}
    assert rule.outliers({"a": 0.0, "b": 0.0, "c": 1.0}) == {}


def test_one_of_two_can_not_raise_the_median_of_norms() -> None:
    assert lower_median([1.0, 1000.0]) == 1.0
    assert lower_median([3.0, 1.0, 2.0]) == 2.0
