"""The comparison's figures, by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from grandrounds.reports.runs import Result
from grandrounds.reports.tables import comparison_rows, rich_table, to_csv, to_json
from grandrounds.reports.wording import byte_size, count, duration, listed, megabytes, score


def result(algorithm: str, seed: int, f1: float, **more: object) -> Result:
    test = {"f1": f1, "precision": 0.5, "recall": 0.7, "baseline_f1": 0.6, "baseline": "all 'associated'"}
    content = {
        "algorithm": algorithm,
        "task": "sentence_re",
        "seed": seed,
        "seconds": 60.0 * seed,
        "test": test,
    }
    return Result.model_validate(content | {"bytes_up_per_site_round": 2_000_000} | more)


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
    told = console.export_text()
    assert "all 'associated' (trivial)" in told
    assert "0.850" in told
    assert "[red]x" in told


def test_csv_and_json_carry_the_same_rows() -> None:
    rows = comparison_rows(RESULTS)
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    written = json.loads(to_json(rows))
    assert [row["name"] for row in read] == [row["name"] for row in written] == [row.name for row in rows]
    assert float(read[0]["f1_mean"]) == written[0]["f1_mean"]
    assert read[2]["precision"] == ""
    assert written[2]["precision"] is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (score(None), "–"),
        (score(float("nan")), "–"),
        (count(1234567), "1\u202f234\u202f567"),
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
def test_figures_are_worded(told: str, expected: str) -> None:
    assert told == expected
