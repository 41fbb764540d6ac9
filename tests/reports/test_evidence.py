"""What a comparison says: intervals, differences, and what they leave out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from grandrounds.metrics.outcomes import Record
from grandrounds.metrics.significance import resample
from grandrounds.reports.evidence import Evidence, remarks, with_evidence
from grandrounds.reports.tables import ComparisonRow, comparison_rows, differences, rich_table
from tests.reports.fixture_runs import FAIR, GOOD, leave, outcomes, result


def f1(rows: Sequence[Sequence[int]]) -> float:
    tp, fp, fn = (sum(column) for column in zip(*rows, strict=True))
    return 2 * tp / (2 * tp + fp + fn)


@pytest.fixture
def judged(tmp_path: Path) -> list[ComparisonRow]:
    arms = {"fedavg": FAIR, "feded": GOOD, "again": FAIR}
    folders = {name: [leave(tmp_path / name, Record("server", "test", outcomes(rows)))] for name, rows in arms.items()}
    rows = comparison_rows([result(name, 1, f1(rows), rounds=5, best_round=3) for name, rows in arms.items()])
    return with_evidence(rows, Evidence.of(folders), "fedavg")


def row_of(rows: Sequence[ComparisonRow], name: str) -> ComparisonRow:
    return next(row for row in rows if row.name == name)


def test_a_row_has_the_interval_of_its_score_and_of_its_difference(judged: list[ComparisonRow]) -> None:
    found = resample({"fedavg": [{"server": outcomes(FAIR)}], "feded": [{"server": outcomes(GOOD)}]})
    feded, gap = row_of(judged, "feded"), found["feded"].over(found["fedavg"])
    assert (feded.low, feded.high) == (found["feded"].estimate().low, found["feded"].estimate().high)
    assert (feded.difference, feded.difference_low, feded.p) == (gap.value, gap.low, gap.p)
    assert feded.difference == pytest.approx(f1(GOOD) - f1(FAIR))
    assert (feded.baseline, feded.same_units, feded.differs) == ("fedavg", True, True)
    assert row_of(judged, "fedavg").difference is None
    assert row_of(judged, "all 'associated'").low is None


def test_the_tables_fit_80_columns_and_say_where_no_difference_can_be_shown(judged: list[ComparisonRow]) -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    table = differences(judged)
    assert table is not None
    console.print(rich_table(judged, "x: test F1"), table)
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "algorithm F1 95% interval steps examples MB up MB down time" in lines
    feded = row_of(judged, "feded")
    assert f"feded {feded.f1_mean:.3f} {feded.low:.3f} to {feded.high:.3f} 1234 56.8k 40.0 60.0 60 s" in lines
    assert "F1 minus that of fedavg" in lines
    assert "again +0.000 +0.000 to +0.000 1.000 no difference can be shown" in lines
    (said,) = [line for line in lines if line.startswith("feded +")]
    assert said.endswith("< 0.001")
    assert not any("…" in line for line in lines)


def test_one_seed_is_said(judged: list[ComparisonRow]) -> None:
    (said,) = remarks(judged, 1)
    assert said.startswith("There was one seed: the intervals are those of the test set alone")
    assert list(remarks(judged, 3)) == ["The intervals are over 3 seeds and the units of the test set."]


def test_a_best_round_that_is_the_last_is_said() -> None:
    runs = [result("feded", seed, 0.7, rounds=5, best_round=best) for seed, best in ((1, 5), (2, 4), (3, 5))]
    runs.append(result("fedavg", 1, 0.6, rounds=5, best_round=5))
    reported = [sentence for sentence in remarks(comparison_rows(runs), 3) if "last" in sentence]
    assert reported == [
        "The last round was the best in runs of feded (2 of 3) and fedavg (1 of 1): "
        "they may have been stopped too soon."
    ]


def test_arms_with_different_numbers_of_rounds_are_named() -> None:
    lengths = {"feded": 30, "fedavg": 30, "local_only": 10}
    runs = [result(name, seed, 0.7, rounds=rounds) for name, rounds in lengths.items() for seed in (1, 2)]
    told = "The arms ran for different numbers of rounds: local_only for 10; fedavg and feded for 30."
    assert told in remarks(comparison_rows(runs), 2)
    assert not [sentence for sentence in remarks(comparison_rows(runs[:4]), 2) if "rounds" in sentence]


def test_arms_on_other_units_are_not_paired_and_that_is_said(tmp_path: Path) -> None:
    """One model on a test set for all, against models of sites on tests of their own."""
    shared = leave(tmp_path / "fedavg", Record("server", "test", outcomes(FAIR)))
    own = [Record(site, "test", outcomes(GOOD[::2], site)) for site in ("east", "west")]
    folders = {"fedavg": [shared], "fedner": [leave(tmp_path / "fedner", *own)]}
    rows = comparison_rows([result("fedavg", 1, 0.5), result("fedner", 1, 0.8)])
    rows = with_evidence(rows, Evidence.of(folders), "fedavg")
    assert row_of(rows, "fedner").same_units is False
    assert "fedner and fedavg were not tested on the same units, so their draws are not paired." in remarks(rows, 1)


def test_an_arm_without_outcomes_has_no_interval_and_the_others_have(tmp_path: Path) -> None:
    folders = {"old": [tmp_path / "old"], "new": [leave(tmp_path / "new", Record("server", "test", outcomes(FAIR)))]}
    rows = with_evidence(comparison_rows([result("old", 1, 0.5), result("new", 1, 0.8)]), Evidence.of(folders), "old")
    assert row_of(rows, "old").low is None
    assert row_of(rows, "new").low is not None
    assert row_of(rows, "new").difference is None
    assert "old has no interval: its runs left no outcomes; run it again in another folder." in remarks(rows, 1)
