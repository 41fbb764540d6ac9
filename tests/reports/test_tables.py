"""The comparison's figures, by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from grandrounds.metrics.score import AUC
from grandrounds.reports.tables import columns, comparison_rows, rich_table, to_csv, to_json, words
from grandrounds.reports.wording import (
    brief,
    byte_size,
    count,
    duration,
    interval,
    listed,
    megabytes,
    probability,
    score,
    signed,
)
from grandrounds.runs.results import Result
from tests.reports.fixture_runs import ranked, result

RESULTS = [result("feded", 1, 0.7), *(result("fedavg", s, f1) for s, f1 in ((1, 0.8), (2, 0.9), (3, 0.85)))]


def test_rows_hold_mean_median_and_spread_over_seeds() -> None:
    fedavg, feded, trivial = comparison_rows(RESULTS)
    assert (fedavg.name, fedavg.runs) == ("fedavg", 3)
    assert fedavg.f1_mean == pytest.approx(0.85)
    assert fedavg.f1_median == 0.85
    assert fedavg.f1_spread == pytest.approx(0.05)  # sqrt((0.05**2 + 0.05**2) / 2)
    assert (fedavg.mb_up_per_site_round, fedavg.seconds) == (2.0, 120.0)
    assert (feded.f1_mean, feded.f1_spread) == (0.7, None)
    assert (trivial.name, trivial.trivial) == ("all 'associated'", True)
    assert trivial.f1_mean == pytest.approx(0.6)


def test_names_tell_apart_runs_of_one_algorithm() -> None:
    rows = comparison_rows(RESULTS, ["a", "b", "b", "c"])
    assert {row.name: row.runs for row in rows if not row.trivial} == {"a": 1, "b": 2, "c": 1}


def test_a_result_without_f1_comes_last_of_the_measured() -> None:
    rows = comparison_rows([result("a", 1, 0.1), result("b", 1, 0.2, test=None)])
    assert [row.name for row in rows] == ["a", "b", "all 'associated'"]
    assert rows[1].f1_mean is None


def test_the_console_table_shows_the_baseline_as_trivial() -> None:
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(rich_table(comparison_rows([*RESULTS, result("[red]x", 1, 0.1)]), "GAD"))
    reported = console.export_text()
    assert "all 'associated' (trivial)" in reported
    assert "0.850" in reported
    assert "[red]x" in reported


def test_csv_and_json_carry_the_same_rows() -> None:
    rows = comparison_rows(RESULTS)
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    written = json.loads(to_json(rows))
    assert [row["name"] for row in read] == [row["name"] for row in written] == [row.name for row in rows]
    assert float(read[0]["f1_mean"]) == written[0]["f1_mean"]
    assert read[2]["precision"] == ""
    assert written[2]["precision"] is None


def ranked_result(algorithm: str, seed: int, auc: float, f1: float) -> Result:
    return result(algorithm, seed, f1, task="distant_re", objective=AUC, test=ranked(auc) | {"f1": f1})


RANKED = [ranked_result("fedavg", 1, 0.2, 0.9), ranked_result("lazy_mil", 1, 0.3, 0.1)]
RANKED.append(ranked_result("lazy_mil", 2, 0.5, 0.1))


def reported_at(width: int, results: list[Result]) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(rich_table(comparison_rows(results)))
    return console.export_text()


def test_ranked_runs_are_sorted_by_auc_with_its_mean_and_spread() -> None:
    lazy_mil, fedavg, trivial = rows = comparison_rows(RANKED)
    assert (lazy_mil.name, fedavg.name, trivial.name) == ("lazy_mil", "fedavg", "in any order")
    assert lazy_mil.auc_mean == pytest.approx(0.4)
    assert lazy_mil.auc_spread == pytest.approx(0.02**0.5)  # of 0.3 and 0.5
    assert (fedavg.auc_mean, fedavg.auc_spread, fedavg.f1_mean) == (0.2, None, 0.9)
    assert (trivial.auc_mean, trivial.f1_mean, trivial.trivial) == (0.067, 0.125, True)
    assert words(rows) == "AUC"
    read, written = list(csv.DictReader(io.StringIO(to_csv(rows)))), json.loads(to_json(rows))
    assert (float(read[0]["auc_mean"]), read[1]["auc_spread"]) == (written[0]["auc_mean"], "")
    assert written[1]["auc_spread"] is None


def test_runs_judged_by_f1_have_no_auc() -> None:
    rows = comparison_rows(RESULTS)
    assert words(rows) == "F1"
    assert [(row["auc_mean"], row["auc_spread"]) for row in json.loads(to_json(rows))] == [(None, None)] * 3
    assert "AUC" not in columns(rows)


def test_the_console_table_of_ranked_runs_cuts_nothing_at_80_columns() -> None:
    lines = [" ".join(line.split()) for line in reported_at(80, RANKED).splitlines()]
    assert "algorithm AUC steps examples MB up MB down time" in lines
    assert "lazy_mil 0.400 1234 56.8k 40.0 60.0 90 s" in lines
    assert "in any order (trivial) 0.067 – – – – –" in lines


def test_median_and_spread_are_of_what_a_row_is_judged_by() -> None:
    lines = [" ".join(line.split()) for line in reported_at(120, [*RESULTS, *RANKED]).splitlines()]
    assert words(comparison_rows([*RESULTS, *RANKED])) == "AUC or F1"
    assert "task algorithm AUC F1 steps examples MB up MB down time" in lines
    assert "distant_re lazy_mil 0.400 0.100 1234 56.8k 40.0 60.0 90 s" in lines
    assert "sentence_re fedavg – 0.850 1234 56.8k 40.0 60.0 2 min" in lines
    rows = {row.name: row for row in comparison_rows([*RESULTS, *RANKED]) if row.task == "distant_re"}
    assert rows["lazy_mil"].judged_median == pytest.approx(0.4)
    assert rows["lazy_mil"].judged_spread == pytest.approx(0.02**0.5)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (score(None), "–"),
        (score(float("nan")), "–"),
        (count(1234567), "1\u202f234\u202f567"),
        (brief(None), "–"),
        (brief(9999), "9999"),
        (brief(98_765), "98.8k"),
        (brief(9_876_543), "9.88M"),
        (interval(-0.0123, 0.05, signed), "-0.012 to +0.050"),
        (interval(None, 0.05), "–"),
        (probability(0.0002), "< 0.001"),
        (megabytes(0), "0"),
        (megabytes(64), "0.000064"),
        (megabytes(4200), "0.0042"),
        (megabytes(1_234_000), "1.23"),
        (megabytes(433_000_000), "433"),
        (byte_size(433_000_000), "433 MB"),
        (byte_size(12), "12 B"),
        (duration(3.21), "3.2 s"),
        (duration(100), "100 s"),
        (duration(600), "10 min"),
        (duration(9000), "2.5 h"),
        (listed(["a"]), "a"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (listed(["a", "b", "c"], 2), "a, b and 1 more"),
        (listed([]), "none"),
    ],
)
def test_figures_are_worded(reported: str, expected: str) -> None:
    assert reported == expected
