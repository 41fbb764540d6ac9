"""A run folder is read as it is, finished or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grandrounds.errors import DataError
from grandrounds.metrics.score import AUC, F1, Score
from grandrounds.reports.runs import read_run, row_names
from tests.reports.fixture_runs import ranked, score, write_ranked, write_run


def test_a_finished_run_gives_its_result(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", f1=0.8))
    assert (run.algorithm, run.task, run.seed, run.planned) == ("fedavg", "sentence_re", "1", 10)
    assert run.baseline == ("all 'associated'", 0.691)
    assert run.bytes_up == 1_200_000
    assert run.points("validation")[0] == (1, pytest.approx(0.5))
    assert run.result is not None
    assert run.result.sites[1].labels == {"associated": 22, "other": 15}


def test_an_unfinished_run_counts_bytes_and_seconds_from_its_rounds(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", finished=False, number=4))
    assert run.result is None
    assert len(run.rounds) == 5
    # One of 20 replies was lost; what came up is shared by the 19 that came, what went down by the 20 asked.
    assert run.bytes_up == 1_200_000
    assert run.bytes_down == 1_300_000
    assert run.seconds == 62.5
    assert run.test is not None
    assert run.test.f1 == run.points("test")[-1][1]


def test_a_torn_last_line_is_left_away_and_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished=False)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 6, "si')
    run = read_run(folder)
    assert (len(run.rounds), run.torn) == (5, True)


def test_a_resumed_run_counts_the_last_line_of_a_round(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished=False)
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(last | {"seconds": 99.0}) + "\n")
    run = read_run(folder)
    assert [r.round for r in run.rounds] == [1, 2, 3, 4, 5]
    assert run.rounds[-1].seconds == 99.0


def test_errors_name_file_line_and_key(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"round": "three"})
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"metrics\.jsonl:3: round: .*integer"):
        read_run(folder)
    with pytest.raises(DataError, match="is no run folder"):
        read_run(tmp_path)


def test_runs_of_one_algorithm_are_told_apart_by_what_differs_but_not_by_seed(tmp_path: Path) -> None:
    runs = [
        read_run(write_run(tmp_path / "a", number=4, seed=1)),
        read_run(write_run(tmp_path / "b", number=9, seed=2)),
        read_run(write_run(tmp_path / "c", number=9, seed=3, algorithm="feded")),
    ]
    assert row_names(runs) == ["fedavg (sites = 4)", "fedavg (sites = 9)", "feded"]


def test_a_tasks_further_numbers_are_kept() -> None:
    read = Score.model_validate(score(0.5) | {"ign_f1": 0.25, "p@100": 1})
    assert read.further() == {"ign_f1": 0.25}
    assert read.precisions() == {"P@100": 1.0}


def test_a_score_is_judged_by_f1_or_where_answers_are_ranked_by_auc() -> None:
    read = Score.model_validate(score(0.5) | {"f1_std": 0.1})
    assert (read.value(F1), read.std(F1), read.trivial(F1)) == (0.5, 0.1, ("all 'associated'", 0.691))
    read = Score.model_validate(ranked(0.5))
    assert (read.value(AUC), read.std(AUC), read.trivial(AUC)) == (0.5, None, ("in any order", 0.067))
    assert read.areas() == {"AUC (all points)": 0.5, "AUC (first 2,000)": 0.4}
    assert list(read.precisions()) == ["P@20", "P@100"]
    assert read.points() == [(0.1, 1.0), (0.5, 0.5), (1.0, 0.2)]
    assert read.size == {"pair": 60, "fact": 21}
    assert read.further() == {}


def test_a_run_of_ranked_answers_is_followed_by_its_auc_but_has_its_f1(tmp_path: Path) -> None:
    for finished in (True, False):
        run = read_run(write_ranked(tmp_path / f"{finished}", auc=0.5, finished=finished))
        assert run.objective == AUC
        assert run.baseline == ("in any order", 0.067)
        assert run.points("validation")[0] == (1, pytest.approx(0.2))
        assert run.points("test", "f1")[0] == (1, 0.4)
