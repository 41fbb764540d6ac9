"""The story that a newcomer sees: all five systems, together against alone, and a raw note read at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from grandrounds.cli import demo as story
from grandrounds.cli.demo.chapters import CHAPTERS
from grandrounds.config.schema import Config
from grandrounds.reports.tables import ComparisonRow
from tests.cli.commands import run
from tests.data.counting import counting_words

SITES = ("st-anne", "riverside", "northgate")
FEWER = {
    "fedbert": ("data.options.notes=12", "data.options.test=4"),
    "fedner": (
        "algorithm.iterations=2",
        *(f"sites.{site}.options.notes=6" for site in SITES),
        *(f"sites.{site}.options.test=2" for site in SITES),
    ),
    "feded": ("data.options.notes=2", "model.warm_up=1"),
    "fedlcc": ("data.options.documents=8", "data.options.test=4"),
    "lazy_mil": ("data.options.facts=20", "data.options.unrelated=40", "data.options.test=10", "partition.sites=2"),
}


def test_a_chapter_is_summed_up_in_a_line() -> None:
    def row(name: str, f1: float, mb: float) -> ComparisonRow:
        return ComparisonRow(name, "sentence_re", 1, f1, f1, None, 0.8, 0.8, mb, 60.0)

    assert story.summary(CHAPTERS["feded"], [row("local_only", 0.5, 0.0), row("feded", 0.75, 0.00213)]) == (
        "FedED: F1 0.750 together, 0.500 for a hospital alone. What a hospital sent in a round: predictions, no "
        "weights, 2.13 kB."
    )


def test_all_five_systems_run_and_a_raw_note_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a few notes and for a round; what the arms come to is for make real, since it takes minutes."""
    whole = story._config

    def small(system: str, overrides: Sequence[str]) -> Config:
        once = ("federation.rounds=1", "federation.evaluate_every=1")
        config = whole(system, [*FEWER[system], *once, *overrides])
        own = {name: {k: v for k, v in arm.items() if "federation." not in k} for name, arm in config.compare.items()}
        return config.model_copy(update={"compare": own})

    monkeypatch.setattr(story, "_config", small)
    story.demo(None, 1, tmp_path / "demo", False)
    said, progress = capsys.readouterr()
    for name, chapter in CHAPTERS.items():
        assert f"{chapter.title}: " in said
        assert f"  {name}/local_only: done\n" in progress
        assert (tmp_path / "demo" / name / "report.html").stat().st_size > 10_000
    assert "A raw note of a hospital that took no part: " in said
    page = (tmp_path / "demo" / "note.html").read_text()
    assert "<h2>note.txt</h2>" in page
    shown = re.sub("<[^>]+>", "", page)
    assert (tmp_path / "demo" / "note.txt").read_text()[:20] in shown
    written = json.loads((tmp_path / "demo" / "story.json").read_text())
    assert list(written["chapters"]) == list(CHAPTERS)
    assert {"commit", "command", "versions"} <= written.keys()


def test_one_system_alone_has_more_arms_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    assert run("demo", "fedde").complaint() == "unknown system 'fedde'; did you mean 'feded'?"
    assert run("demo", "feded", "fedner").complaint() == "name one system, or none for all five"
    fewer = (*FEWER["fedlcc"], "federation.rounds=1")
    found = run("demo", "fedlcc", *fewer, "--out", tmp_path / "demo", "--json").json()
    assert {row["name"] for row in found["chapters"]["fedlcc"]["rows"]} >= {"fedlcc", "local_only", "fedavg"}


def means(out: Path, system: str, seeds: int) -> dict[str, float]:
    """By arm, what it is judged by."""
    found = run("demo", system, "--out", out, "--seeds", str(seeds), "--json").json()
    rows = [ComparisonRow(**row) for row in found["chapters"][system]["rows"]]
    return {row.name: row.judged_mean or 0.0 for row in rows}


@pytest.mark.real
@pytest.mark.parametrize("seeds", [1, 3])
def test_feded_s_chapter_tells_its_story(tmp_path: Path, seeds: int) -> None:
    f1 = means(tmp_path / "demo", "feded", seeds)
    assert f1["fedavg"] >= f1["local_only"] + 0.05
    assert f1["fedavg"] >= f1["centralized"] - 0.03
    assert f1["feded"] >= f1["local_only"] + 0.02
    assert counting_words() <= f1["centralized"] - 0.10
