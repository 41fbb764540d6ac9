"""The story that a newcomer sees: together is better than alone, nearly as good as everything in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from grandrounds.cli.demo import ALGORITHMS, _less
from grandrounds.reports.tables import ComparisonRow
from tests.cli.commands import run
from tests.data.counting import counting_words

FEWER = ("data.options.notes=2", "model.warm_up=1", "federation.rounds=1", "federation.evaluate_every=1")


def demo(out: Path, seeds: int, *overrides: str) -> dict[str, float]:
    """Mean test F1 by algorithm."""
    rows = run("demo", *overrides, "--out", out, "--seeds", str(seeds), "--json").json()
    assert (out / "report.html").stat().st_size > 10_000
    return {row["name"]: row["f1_mean"] for row in rows}


def test_the_demo_says_how_much_less_predictions_are() -> None:
    def row(name: str, mb: float) -> ComparisonRow:
        return ComparisonRow(name, "sentence_re", 1, 0.8, 0.8, None, 0.8, 0.8, mb, 60.0)

    said = _less([row("fedavg", 2.13), row("feded", 0.00213)])
    assert said.startswith("A site of feded uploads 2.13 kB a round, one of fedavg 2.13 MB: 1,000 times as much.")


def tells_the_story(f1: dict[str, float]) -> None:
    assert f1["fedavg"] >= f1["local_only"] + 0.05
    assert f1["fedavg"] >= f1["centralized"] - 0.03
    assert f1["feded"] >= f1["local_only"] + 0.02
    assert counting_words() <= f1["centralized"] - 0.10


def test_the_demo_runs_its_five_arms_and_writes_a_report_and_a_model(tmp_path: Path) -> None:
    """On a thirtieth of its notes; what they come to is for make real, for it takes minutes."""
    f1 = demo(tmp_path / "demo", 1, *FEWER)
    assert {*ALGORITHMS} <= f1.keys()
    assert all(0 <= score <= 1 for score in f1.values())
    for name in ALGORITHMS:
        assert (tmp_path / "demo" / name / "result.json").exists()
    assert (tmp_path / "demo" / "fedavg" / "model" / "model.safetensors").exists()


@pytest.mark.real
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_demo_tells_its_story(tmp_path: Path, seeds: int) -> None:
    tells_the_story(demo(tmp_path / "demo", seeds))
