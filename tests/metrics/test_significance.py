"""The paired bootstrap against plain Python, cases with a known answer, and its coverage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from grandrounds.metrics.outcomes import Outcomes, digest_of
from grandrounds.metrics.ranking import ranking_curve
from grandrounds.metrics.significance import AUC_DRAWS, Run, _weights, resample, scorer


def counts(rows: Sequence[Sequence[int]], gold: str = "a") -> Outcomes:
    tp, fp, fn = np.array(rows).T
    return Outcomes("f1", {"tp": tp, "fp": fp, "fn": fn}, digest_of(gold))


def arm(rate: float, seeds: Sequence[int], units: int = 60) -> list[Run]:
    """Documents with three things to be found, each with this probability; as many wrong answers now and then."""
    runs: list[Run] = []
    for seed in seeds:
        draw = random.Random(f"{rate} {seed}")
        found = [sum(draw.random() < rate for _ in range(3)) for _ in range(units)]
        runs.append({"server": counts([(tp, draw.randrange(2), 3 - tp) for tp in found])})
    return runs


def f1(rows: Sequence[Sequence[int]]) -> float:
    tp, fp, fn = (sum(column) for column in zip(*rows, strict=True))
    return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def plain(runs: Sequence[Run], draws: int, seed: int) -> list[float]:
    """The same draws, document by document: lists with repeats, no weights and no matrices."""
    rows = [list(zip(*(run["server"].columns[c].tolist() for c in ("tp", "fp", "fn")), strict=True)) for run in runs]
    units = len(rows[0])
    digest = int(runs[0]["server"].digest[:15], 16)
    documents = np.random.default_rng([seed, digest]).integers(units, size=(draws, units)).tolist()
    seeds = np.random.default_rng([seed, len(runs)]).integers(len(runs), size=(draws, len(runs))).tolist()
    return [
        sum(f1([rows[s][d] for d in drawn]) for s in chosen) / len(runs)
        for drawn, chosen in zip(documents, seeds, strict=True)
    ]


def test_each_draw_is_the_mean_over_drawn_seeds_of_f1_on_drawn_documents() -> None:
    runs = arm(0.6, (1, 2, 3), units=20)
    found = resample({"a": runs}, draws=50, seed=4)["a"]
    assert found.draws.tolist() == pytest.approx(plain(runs, 50, 4))
    rows = [np.stack([run["server"].columns[c] for c in ("tp", "fp", "fn")], axis=1).tolist() for run in runs]
    assert found.value == pytest.approx(sum(map(f1, rows)) / 3)


def test_the_interval_is_that_of_the_percentiles_and_p_counts_the_rarer_side() -> None:
    arms = {"a": arm(0.62, (1, 2), 30), "b": arm(0.55, (3, 4), 30)}
    found = resample(arms, draws=200)
    gap = found["a"].over(found["b"])
    differences = sorted(x - y for x, y in zip(plain(arms["a"], 200, 0), plain(arms["b"], 200, 0), strict=True))
    place = 0.025 * 199
    below = differences[int(place)]
    assert gap.low == pytest.approx(below + (place - int(place)) * (differences[int(place) + 1] - below))
    rarer = min(sum(d <= 0 for d in differences), sum(d >= 0 for d in differences))
    assert gap.p == pytest.approx(min(1.0, 2 * (rarer + 1) / 201))


def test_draws_of_large_sets_come_in_parts_and_are_the_same() -> None:
    whole = np.random.default_rng([1, 2]).integers(600_000, size=(8, 600_000))
    made = np.concatenate(list(_weights(600_000, 8, [1, 2])))
    assert [np.array_equal(np.bincount(row, minlength=600_000), got) for row, got in zip(whole, made, strict=True)] == [
        True
    ] * 8


def test_arms_with_the_same_answers_differ_by_exactly_nothing() -> None:
    found = resample({"a": arm(0.6, (1, 2)), "b": arm(0.6, (1, 2))}, draws=500)
    gap = found["a"].over(found["b"])
    assert (gap.value, gap.low, gap.high, gap.p, gap.shown) == (0.0, 0.0, 0.0, 1.0, False)


def test_exchanging_arms_turns_the_difference_round() -> None:
    arms = {"a": arm(0.7, (1, 2, 3)), "b": arm(0.5, (1, 2, 3))}
    one, other = resample(arms, 1000), resample(dict(reversed(arms.items())), 1000)
    there, back = one["a"].over(one["b"]), other["b"].over(other["a"])
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert there.p == back.p
    assert there.shown


def test_a_constant_advantage_has_no_width() -> None:
    """In every document one arm finds both things and the other one of them: 1 against 2/3, whatever is drawn."""
    better, worse = counts([(2, 0, 0)] * 12), counts([(1, 0, 1)] * 12)
    found = resample({"a": [{"s": better}], "b": [{"s": worse}]}, 300)
    gap = found["a"].over(found["b"])
    assert (gap.low, gap.high) == pytest.approx((1 / 3, 1 / 3))
    assert gap.p == pytest.approx(2 / 301)


def test_the_interval_of_a_share_is_that_of_the_normal_distribution() -> None:
    """Losses of 0 and 1: their mean has the standard error sqrt(p (1 - p) / n)."""
    nats, pieces = np.array([1.0] * 120 + [0.0] * 280), np.ones(400, dtype=np.int64)
    outcomes = Outcomes("loss", {"nats": nats, "masked": pieces}, digest_of("l"))
    found = resample({"a": [{"server": outcomes}]})["a"].estimate()
    half = NormalDist().inv_cdf(0.975) * (0.3 * 0.7 / 400) ** 0.5
    assert found.value == pytest.approx(0.3)
    assert (found.low, found.high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.004)


def test_about_95_of_100_intervals_hold_the_true_difference() -> None:
    """Each arm has its own luck with each document and each seed, beside what is hard for all."""
    random, held, trials, true = np.random.default_rng(5), 0, 300, 0.2
    pieces = np.ones(60, dtype=np.int64)
    for _ in range(trials):
        hard, arms = random.normal(2, 1, 60), dict[str, list[Run]]()
        for name, extra in (("a", true), ("b", 0.0)):
            documents, seeds = hard + extra + random.normal(0, 0.4, 60), random.normal(0, 0.1, 8)
            nats = [documents + seed + random.normal(0, 0.1, 60) for seed in seeds]
            arms[name] = [{"s": Outcomes("loss", {"nats": n, "masked": pieces}, digest_of("c"))} for n in nats]
        found = resample(arms, 400)
        gap = found["a"].over(found["b"])
        held += gap.low <= true <= gap.high
    assert 0.90 <= held / trials <= 0.98


def test_the_score_of_sites_models_is_their_mean_on_draws_of_their_own_documents() -> None:
    small, large = [(1, 0, 0), (0, 1, 1)], [(1, 1, 0), (2, 0, 1), (0, 0, 3)]
    run = {"east": counts(small, "east"), "west": counts(large, "west")}
    found = resample({"a": [run]}, 40, 3)["a"]
    assert found.value == pytest.approx((f1(small) + f1(large)) / 2)
    alone = [resample({"a": [{who: run[who]}]}, 40, 3)["a"].draws for who in ("east", "west")]
    assert found.draws.tolist() == pytest.approx(((alone[0] + alone[1]) / 2).tolist())
    assert not np.array_equal(alone[0] > f1(small), alone[1] > f1(large))


def test_a_pair_that_is_drawn_twice_has_its_answers_twice() -> None:
    random = np.random.default_rng(1)
    gold, scores = random.random((9, 3)) < 0.3, random.random((9, 3)).astype(np.float32)
    auc = scorer(Outcomes("auc", {"gold": gold.astype(np.uint8), "scores": scores}, digest_of("g")))
    assert auc(np.ones((1, 9), dtype=np.int64))[0] == pytest.approx(ranking_curve(gold, scores).auc)
    drawn = random.integers(9, size=9)
    order = sorted(((s, g) for d in drawn for s, g in zip(scores[d], gold[d], strict=True)), key=lambda x: -x[0])
    right, facts, points = 0, sum(g for _, g in order), []
    for place, (_, g) in enumerate(order, start=1):
        right += g
        points.append((right / facts, right / place))
    trapezoids = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    assert auc(np.bincount(drawn, minlength=9)[None])[0] == pytest.approx(trapezoids)


def test_rankings_take_fewer_draws() -> None:
    gold, scores = np.eye(4, dtype=np.uint8), np.eye(4, dtype=np.float32)
    arms: dict[str, list[Run]] = {"a": [{"s": Outcomes("auc", {"gold": gold, "scores": scores}, digest_of("g"))}]}
    assert len(resample(arms)["a"].draws) == AUC_DRAWS
