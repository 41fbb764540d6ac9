"""What a site draws for an ask: samples of whole units, noise that lasts for the run, and a budget that ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.accounting import Draw, epsilon
from grandrounds.federation.privacy.ledger import Limit, SpendingLedger
from grandrounds.federation.privacy.settings import Plan, Privacy, Unit
from grandrounds.federation.privacy.site import SitePrivacy, from_the_seed, from_the_system, grouped, noise_of
from grandrounds.federation.secure.settings import SecureSettings

UNITS = [np.arange(start, start + 3) for start in range(0, 120, 3)]
ASK = {"run": "r", "round": 1, "exchange": 1, "site": "s", "ask": "a"}


def site(tmp_path: Path, plan: Plan, units: int = 40, round: int = 1, limit: float = 100.0) -> SitePrivacy:
    ledger = SpendingLedger(tmp_path / "privacy.jsonl", plan.unit)
    registered = {"examples": units, "patients": units}
    limits = [Limit(limit, 1e-5, "the test")]
    return SitePrivacy(plan, registered, ledger, limits, {**ASK, "round": round}, from_the_seed(1))


def test_rows_of_a_unit_stay_together() -> None:
    ids, rows = np.array([7, 3, 7, 3, 5]), np.array([10, 11, 12, 13, 14])
    assert [part.tolist() for part in grouped(ids, rows)] == [[11, 13], [14], [10, 12]]
    assert grouped(np.array([], dtype=np.int64), np.array([], dtype=np.int64)) == []


def test_each_unit_is_in_a_step_with_the_same_chance_whoever_else_is(tmp_path: Path) -> None:
    """A Poisson sample: sizes vary as a binomial distribution does, unlike shuffled batches of one size."""
    plan = Plan(Privacy(unit="example", noise=1.0), rounds=1)
    sample = site(tmp_path, plan).sample(UNITS, size=10, epochs=1)
    assert (sample.steps, sample.expected) == (4, 10.0)
    sizes, seen = [], Counter[int]()
    for _ in range(3000):
        drawn = sample.draw()
        sizes.append(len(drawn))
        seen.update(int(rows[0]) for rows in drawn)
    assert np.mean(sizes) == pytest.approx(10, abs=0.25)
    assert np.var(sizes) == pytest.approx(40 * 0.25 * 0.75, rel=0.1)
    assert min(seen.values()) > 3000 * 0.25 * 0.87
    assert max(seen.values()) < 3000 * 0.25 * 1.13


def test_of_a_unit_with_many_rows_a_step_has_some_others_each_time(tmp_path: Path) -> None:
    plan = Plan(Privacy(unit="patient", noise=1.0), rounds=1)
    sample = site(tmp_path, plan, units=1).sample([np.arange(50)], size=4, epochs=1)
    drawn = [sample.draw()[0] for _ in range(50)]
    assert all(len(rows) == 4 == len(set(rows.tolist())) for rows in drawn)
    assert len({row for rows in drawn for row in rows.tolist()}) > 40


def test_rate_and_steps_come_from_what_was_registered(tmp_path: Path) -> None:
    """A site whose data has fewer units than it registered tells nothing of that by its steps."""
    plan = Plan(Privacy(unit="example", noise=1.0), rounds=3)
    privacy = site(tmp_path, plan, units=80)
    sample = privacy.sample(UNITS, size=16, epochs=2)
    assert (sample.steps, sample.expected) == (10, 16.0)
    (line,) = SpendingLedger(tmp_path / "privacy.jsonl", "example").lines()
    assert (line["rate"], line["steps"], line["noise"]) == (0.2, 10, 1.0)


def test_more_units_than_registered_are_refused(tmp_path: Path) -> None:
    plan = Plan(Privacy(unit="example", noise=1.0), rounds=1)
    with pytest.raises(RefusalError, match="more units of privacy than the 20 that it registered"):
        site(tmp_path, plan, units=20).sample(UNITS, size=10, epochs=1)


def test_noise_lasts_for_the_rounds_of_the_run_and_ends_there(tmp_path: Path) -> None:
    plan = Plan.of(Privacy(unit="example", epsilon=3.0), rounds=4, fraction=1.0)
    for round in range(1, 5):
        site(tmp_path, plan, round=round, limit=3.0).sample(UNITS, size=10, epochs=1)
    spent = SpendingLedger(tmp_path / "privacy.jsonl", "example").epsilon(1e-5)
    assert 2.9 < spent <= 3.0
    with pytest.raises(RefusalError, match="budget is spent"):
        site(tmp_path, plan, round=5, limit=3.0).sample(UNITS, size=10, epochs=1)


def test_a_budget_is_paid_before_anything_is_drawn(tmp_path: Path) -> None:
    plan = Plan(Privacy(unit="example", noise=1.0), rounds=1)
    privacy = site(tmp_path, plan)
    privacy.sample(UNITS, size=10, epochs=1)
    assert len((tmp_path / "privacy.jsonl").read_text().splitlines()) == 1  # the caller has drawn nothing yet


def test_where_a_round_asks_some_sites_the_plan_has_room_for_chance() -> None:
    assert Plan.of(Privacy(), 100, 1.0).rounds == 100
    assert Plan.of(Privacy(), 100, 0.1).rounds == 16  # 10 + 2 sqrt(100 * 0.1 * 0.9)
    assert Plan.of(Privacy(), 2, 0.5).rounds == 2


def counted(tmp_path: Path, plan: Plan, by_unit: list[np.ndarray]) -> np.ndarray:
    """The counts of 3,000 rounds, each less what is true."""
    true = sum((counts > 0).astype(int) for counts in by_unit)
    noisy = [site(tmp_path / str(r), plan, round=r).label_counts(by_unit) for r in range(3000)]
    return np.array(noisy) - true


@pytest.mark.parametrize("wrong", [1.0, 1.1])
def test_counts_of_labels_have_whole_noise_for_all_labels_of_a_unit(
    tmp_path: Path, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine labels: a unit with all of them is three times as long as one with one."""
    monkeypatch.setattr(SpendingLedger, "spend", lambda *given: None)
    plan = Plan(Privacy(unit="patient", epsilon=8.0), rounds=4, counts_labels=True)
    by_unit = [np.array([40, 1, 0] + [1] * 6), np.array([0, 3, 0] + [0] * 6)]
    found = counted(tmp_path, plan, by_unit)
    stated = noise_of(plan, 1.0, 4, counts=True) * 3
    assert abs(found.mean()) < 4 * stated / np.sqrt(found.size)
    matches = found.std() == pytest.approx(stated * wrong, rel=0.03)
    assert matches == (wrong == 1.0)


def test_counts_have_their_share_of_epsilon_and_training_the_rest(tmp_path: Path) -> None:
    plan = Plan.of(Privacy(unit="patient", epsilon=4.0, counts=0.25), 3, 1.0, counts_labels=True)
    by_unit = [np.array([1, 0])] * 40
    for round in (1, 2, 3):
        asked = site(tmp_path, plan, round=round, limit=4.0)
        asked.label_counts(by_unit)
        asked.sample(UNITS, size=10, epochs=1)
    lines = SpendingLedger(tmp_path / "privacy.jsonl", "patient").lines()
    assert [(line["rate"], line["steps"]) for line in lines] == [(1.0, 1), (0.25, 4)] * 3
    counts, training = ([Draw(x["noise"], x["rate"], x["steps"]) for x in lines[i::2]] for i in (0, 1))
    assert 0.93 < epsilon(counts, 0.25e-5) <= 1.0
    assert 2.85 < epsilon(training, 0.75e-5) <= 3.0
    assert epsilon([*counts, *training], 1e-5) <= 4.0


@pytest.mark.parametrize("unit", ["example", "patient", "site"])
def test_a_run_says_whether_anybody_could_draw_its_noise_again(unit: Unit) -> None:
    plan, secure = Plan.of(Privacy(unit=unit), 3, 1.0), SecureSettings("examples", 0.5)
    assert "the systems' randomness, so this run can't be repeated" in plan.sentence(simulated=False)
    assert "whoever has the seed can subtract it" in plan.sentence(simulated=True)
    assert "the system's randomness, so masked bytes differ from run to run" in secure.sentence(5, simulated=False)
    assert "derived from the seed" in secure.sentence(5, simulated=True)


def test_an_algorithm_that_did_not_say_that_it_counts_gets_no_counts(tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match="does not say that it counts labels"):
        site(tmp_path, Plan(Privacy(unit="patient"), rounds=1)).label_counts([np.array([1])])


def test_a_site_as_a_whole_needs_noise_for_each_round(tmp_path: Path) -> None:
    plan = Plan(Privacy(unit="site", epsilon=2.0), rounds=5)
    noise = noise_of(plan, 1.0, 5)
    assert 1.9 < epsilon([Draw(noise, 1.0, 5)], 1e-5) <= 2.0
    for round in range(1, 6):
        site(tmp_path, plan, round=round, limit=2.0).update()
    with pytest.raises(RefusalError, match="budget is spent"):
        site(tmp_path, plan, round=6, limit=2.0).update()


def test_the_seed_repeats_its_noise_and_the_system_does_not() -> None:
    one, same, other = (
        from_the_seed(1)("s", 1, 1, "a", 1),
        from_the_seed(1)("s", 1, 1, "a", 1),
        from_the_seed(1)("s", 1, 1, "b", 1),
    )
    first = one.standard_normal(3).tolist()
    assert first == same.standard_normal(3).tolist() != other.standard_normal(3).tolist()
    assert from_the_system("s").standard_normal(3).tolist() != from_the_system("s").standard_normal(3).tolist()


def test_a_site_registers_a_noisy_number_that_is_paid_for_and_trains_by_it(tmp_path: Path) -> None:
    settings = Privacy(unit="patient", epsilon=4.0, counts=0.25, noisy_registration=True)
    plan = Plan.of(settings, rounds=2, fraction=1.0)
    told = [site(tmp_path / str(draw), plan).registered() for draw in range(2)]  # the same seed
    assert told[0] == told[1]
    (line,) = SpendingLedger(tmp_path / "0" / "privacy.jsonl", "patient").lines()
    assert 0.9 < epsilon([Draw(line["noise"], line["rate"], line["steps"])], 0.25e-5) <= 1.0
    more = site(tmp_path, plan, units=30).sample(UNITS, size=10, epochs=1)  # 40 units, of which it registered 30
    assert (more.steps, more.expected) == (3, 10)
    assert 2.8 < epsilon([Draw(more.noise, 1 / 3, 6)], 0.75e-5) <= 3.0


def test_the_noise_of_what_is_registered_is_as_the_ledger_says(tmp_path: Path) -> None:
    plan = Plan.of(Privacy(unit="patient", epsilon=4.0, noisy_registration=True), 2, 1.0)
    ledger = SpendingLedger(tmp_path / "privacy.jsonl", "patient")
    limits, randomness = [Limit(1e9, 1e-5, "the test")], from_the_seed(1)
    drawn = [
        SitePrivacy(plan, {"patients": 10_000}, ledger, limits, {**ASK, "round": n}, randomness).registered() - 10_000
        for n in range(400)
    ]
    stated = ledger.lines()[0]["noise"]
    assert stated > 5
    assert abs(np.mean(drawn)) < 4 * stated / 20
    assert 0.85 < np.std(drawn) / stated < 1.15
