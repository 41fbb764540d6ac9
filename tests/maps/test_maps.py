"""A map: which runs it takes, what its cells are judged by, and what it then says and shows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from grandrounds.config.schema import Config
from grandrounds.errors import ConfigError, DataError
from grandrounds.maps import SYSTEMS, declared
from grandrounds.maps.declaration import Map
from grandrounds.maps.grid import Cell, arms_of, cells, config_of, middle
from grandrounds.maps.make import make_map, redraw
from grandrounds.maps.picture import geometric, picture, place
from grandrounds.maps.result import BETTER, NO_DIFFERENCE, WORSE, MapResult, Verdict, read_map
from grandrounds.maps.sentence import sentence
from grandrounds.runs.results import read_result
from grandrounds.simulation.run import run_config
from grandrounds.simulation.sweep import Arm as Run
from grandrounds.simulation.sweep import run_arms
from tests.maps.fake import FAKE, UNITS, MadeUp, Told, helps_where_sites_are_many


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[MapResult, Path, MadeUp]:
    out, runs = tmp_path_factory.mktemp("map"), MadeUp(helps_where_sites_are_many)
    return make_map(FAKE, out, 2, runs), out, runs


def test_every_arm_runs_in_every_cell_with_every_seed_after_its_learning_rates(
    made: tuple[MapResult, Path, MadeUp],
) -> None:
    ran = made[2].ran
    assert len(ran) == 4 * 3 + 4 * 4 * 2
    assert ran[0] == "learning rates: rates/ours-0.0001"
    assert ran[12:16] == [f"cells: x2-y10/{name}-seed1" for name in ("ours", "plain", "plain-longer", "pooled")]
    assert ran[-1] == "cells: x4-y40/pooled-seed2"


def test_started_again_a_map_runs_nothing_and_a_further_seed_runs_alone(tmp_path: Path) -> None:
    first, second = MadeUp(helps_where_sites_are_many), MadeUp(helps_where_sites_are_many)
    made = make_map(FAKE, tmp_path, 1, first)
    held = (tmp_path / "map.json").read_bytes()
    assert make_map(FAKE, tmp_path, 1, second) == made
    assert second.ran == []
    assert (tmp_path / "map.json").read_bytes() == held
    make_map(FAKE, tmp_path, 2, second)
    assert len(second.ran) == 4 * 4
    assert all(name.endswith("-seed2") for name in second.ran)


def test_a_quick_look_is_the_corners_with_one_seed_and_a_part_of_the_whole(tmp_path: Path) -> None:
    map, runs = replace(FAKE, x=replace(FAKE.x, values=(2, 3, 4))), MadeUp(helps_where_sites_are_many)
    quick = make_map(map, tmp_path, 3, runs, quick=True)
    assert [(cell.x, cell.y) for cell in quick.cells] == [(2, 10), (4, 10), (2, 40), (4, 40)]
    assert quick.seeds == (1,)
    assert "There was one seed" in quick.warnings[0]
    assert {path.name for path in tmp_path.glob("*.*")} == {"quick.json", "quick.md", "quick.svg"}
    before = len(runs.ran)
    make_map(map, tmp_path, 1, runs)
    assert len(runs.ran) - before == 4 * 2  # the two cells between


def test_a_rate_is_chosen_on_validation_data_at_the_middle_with_a_seed_of_its_own(tmp_path: Path) -> None:
    seen = list[Config]()

    def tell(run: Run) -> Told:
        if run.folder.parent.name == "rates":
            seen.append(run.config)
            rate = run.config.training.learning_rate
            return Told(
                {1e-4: 0.5, 1e-3: 0.4 if run.name == "ours" else 0.6, 1e-2: 0.3}[rate], 60 if rate > 0.001 else 1
            )
        assert run.config.training.learning_rate == (1e-4 if run.name == "ours" else 1e-3)
        return helps_where_sites_are_many(run)

    made = make_map(FAKE, tmp_path, 1, MadeUp(tell))
    assert {(config.seed, config.partition.sites, config.data.public) for config in seen} == {(0, 4, 0.4)}
    assert made.learning_rates_at == (4, 40)
    assert made.learning_rates["ours"].model_dump() == {
        "chosen": 1e-4,
        "tried": {"0.0001": 0.5, "0.001": 0.4, "0.01": 0.3},
        "at_edge": True,
    }
    assert (made.learning_rates["plain"].chosen, made.learning_rates["plain"].at_edge) == (1e-3, False)
    assert [word for word in made.warnings if "edge" in word] == [
        "ours: the learning rate 0.0001 is at the edge of those tried; a better one may exist."
    ]


def test_the_best_rival_is_chosen_on_validation_data_and_no_reference_is_a_rival(
    made: tuple[MapResult, Path, MadeUp],
) -> None:
    cell = made[0].cell(4, 10)
    assert cell is not None
    assert cell.arms["plain, longer"].test > cell.arms["plain"].test
    assert cell.arms["pooled"].validation > cell.arms["plain"].validation > cell.arms["plain, longer"].validation
    assert cell.best_rival == "plain"
    assert cell.advantage == pytest.approx(50 / UNITS - 30 / UNITS)
    assert cell.low < cell.advantage < cell.high


def test_verdicts_follow_the_intervals(made: tuple[MapResult, Path, MadeUp]) -> None:
    assert [cell.verdict for cell in made[0].cells] == [WORSE, BETTER, NO_DIFFERENCE, BETTER]
    for cell in made[0].cells:
        assert (cell.low > 0, cell.high < 0) == (cell.verdict == BETTER, cell.verdict == WORSE)
        assert cell.same_units


def test_a_lower_loss_is_an_advantage(tmp_path: Path) -> None:
    def tell(run: Run) -> Told:
        return {"ours": Told(1.2, 50), "plain": Told(1.5, 30)}.get(run.name, Told(2.0, 20))

    made = make_map(FAKE, tmp_path, 1, MadeUp(tell, loss=True))
    cell = made.cells[0]
    assert made.score == "loss"
    assert (cell.best_rival, cell.verdict) == ("plain", BETTER)
    assert cell.advantage == pytest.approx(cell.arms["plain"].test - cell.arms["ours"].test)
    assert cell.advantage == pytest.approx(2 * 20 / UNITS)


def test_arms_whose_best_round_is_often_the_last_are_named(tmp_path: Path) -> None:
    def tell(run: Run) -> Told:
        return replace(helps_where_sites_are_many(run), best_round=9 if run.name == "plain" else 5)

    made = make_map(FAKE, tmp_path, 1, MadeUp(tell))
    assert [cell.best_is_last for cell in made.cells] == [1, 1, 1, 1]
    assert [word for word in made.warnings if "last" in word] == [
        "plain: the best round was the last in 4 of 4 runs; it may have stopped too soon."
    ]


def test_the_json_tells_what_was_run_and_by_what(made: tuple[MapResult, Path, MadeUp]) -> None:
    map, out, _ = made
    held = json.loads((out / "map.json").read_text())
    assert held.keys() == set(MapResult.model_fields)
    assert (held["system"], held["system_arm"], held["score"], held["seeds"]) == ("fake", "ours", "F1", [1, 2])
    assert held["x"] == {"name": "number of sites", "values": [2, 4]}
    assert held["arms"]["plain, longer"] == {"algorithm.name": "fedavg", "training.epochs": 2}
    assert held["config"]["data"]["validation"] == 0.2
    assert held["run_commits"] == ["abc"]
    assert held["versions"].keys() >= {"grandrounds", "torch", "threads"}
    arm = held["cells"][0]["arms"]["ours"]
    assert (arm["steps"], arm["bytes_up"], arm["bytes_down"], arm["best_rounds"]) == (10, 1000, 3000, [5, 5])
    assert str(out) not in (out / "map.json").read_text()
    assert read_map(out / "map.json") == map


def verdicts(made: MapResult, *rows: Sequence[Verdict]) -> MapResult:
    """The same map with these verdicts, by rows, from the first value of y on."""
    given = [one for row in rows for one in row]
    found = [cell.model_copy(update={"verdict": one}) for cell, one in zip(made.cells, given, strict=True)]
    return made.model_copy(update={"cells": tuple(found)})


def test_the_sentence_names_the_region_and_how_many_of_its_cells_agree(made: tuple[MapResult, Path, MadeUp]) -> None:
    b, w, n = BETTER, WORSE, NO_DIFFERENCE
    assert made[0].sentence == (
        "Choose fake when “number of sites” is at least 4: it is better in 2 of 2 cells there, and 0 of 2 elsewhere. "
        "Avoid it when “number of sites” is at most 2 and “share of labels” is at most 10%: it is worse in 1 of 1 "
        "cell there, and 0 of 3 elsewhere. In 1 of 4 cells no difference can be shown."
    )
    assert sentence(verdicts(made[0], [b, b], [b, b])) == (
        "Choose fake anywhere on this map: it is better in 4 of 4 cells there."
    )
    assert sentence(verdicts(made[0], [b, b], [b, n])).startswith(
        "Choose fake anywhere on this map: it is better in 3 of 4 cells there. In 1"
    )
    assert sentence(verdicts(made[0], [n, n], [n, n])) == (
        "No cell of this map shows an advantage of fake over its best rival. "
        "In 4 of 4 cells no difference can be shown."
    )
    assert sentence(verdicts(made[0], [n, n], [w, w])).startswith(
        "No cell of this map shows an advantage of fake over its best rival. Avoid it when “share of labels” is at "
        "least 40%: it is worse in 2 of 2 cells"
    )


def test_the_picture_shows_figures_words_points_and_hatches_what_can_t_be_shown(
    made: tuple[MapResult, Path, MadeUp],
) -> None:
    drawn = (made[1] / "map.svg").read_text()
    words = [element.text for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"When does it help?", "number of sites", "share of labels (%)", "corpus"} <= set(words)
    assert words.count("▲ better") == 2
    assert words.count("▼ worse") == 1
    assert words.count("no difference shown") == 1
    for cell in made[0].cells:
        assert f"{cell.advantage:+.3f}" in words
        assert f"{cell.low:+.3f} to {cell.high:+.3f}" in words
    sure = picture(verdicts(made[0], [BETTER, BETTER], [BETTER, BETTER]))
    assert len(re.findall(r"url\(#h", drawn)) == len(re.findall(r"url\(#h", sure)) + 1  # the legend has one


def test_redrawing_needs_the_json_alone_and_gives_the_same_bytes(
    made: tuple[MapResult, Path, MadeUp], tmp_path: Path
) -> None:
    (tmp_path / "map.json").write_bytes((made[1] / "map.json").read_bytes())
    assert redraw(tmp_path) == made[0]
    for name in ("map.json", "map.svg", "map.md"):
        assert (tmp_path / name).read_bytes() == (made[1] / name).read_bytes()
    with pytest.raises(DataError, match=r"quick.json: there is no map here yet; run the command without --redraw"):
        redraw(tmp_path, quick=True)
    (tmp_path / "map.json").write_text('{"system": 1}')
    with pytest.raises(DataError, match="is not a map: system"):
        redraw(tmp_path)


def test_the_page_has_a_row_a_cell_and_says_what_limits_it(made: tuple[MapResult, Path, MadeUp]) -> None:
    reported = (made[1] / "map.md").read_text()
    rows = [line for line in reported.splitlines() if line.startswith(("| 2 |", "| 4 |"))]
    assert len(rows) == 4
    assert "| +0.333 |" in rows[1]
    assert "| 10 / 10 | 0.001 / 0.001 | 0.003 / 0.003 |" in rows[1]
    assert "Learning rates, the same in all cells: ours 0.0001" in reported
    assert "- corpus: number of sites 3, share of labels (%) 20. By hand." in reported
    assert made[0].sentence in reported


@pytest.mark.parametrize(
    ("value", "values", "expected"),
    [
        (50, (0, 50, 100), 1.0),
        (75, (0, 50, 100), 1.5),
        (75, (100, 50, 0), 0.5),
        (20, (10, 40, 160), 0.5),  # half way by ratio
        (1000, (10, 40, 160), 2.4),  # off the map: at its edge
        (1, (10, 40, 160), -0.4),
    ],
)
def test_a_corpus_stands_between_ticks(value: float, values: Sequence[float], expected: float) -> None:
    assert place(value, values) == pytest.approx(expected)


def test_ticks_in_equal_ratios_are_told_from_equal_steps() -> None:
    assert geometric((5, 10, 20, 50))
    assert geometric((50, 20, 10, 5))
    assert not geometric((10, 20, 30, 40))
    assert not geometric((0, 1, 10))


def test_a_map_needs_validation_data() -> None:
    blind = replace(FAKE, config={**FAKE.config, "data": {"format": "synthetic"}})
    with pytest.raises(ConfigError, match="the map of fake has no validation data to choose rounds and rivals by"):
        config_of(blind, FAKE.arm, Cell(2, 10), 1, None)


def test_a_map_of_real_runs_is_that_of_each_run_by_itself(tmp_path: Path) -> None:
    """One process runs them all, and none leaves a trace in the next."""
    map = replace(FAKE, rivals=FAKE.rivals[:1], references=(), learning_rates=(), y=replace(FAKE.y, values=(40,)))

    def run_all(what: str, runs: Sequence[Run]) -> None:
        run_arms(runs, Path(), 1, lambda _: None, reuse=True)

    made = make_map(map, tmp_path / "map", 1, run_all)
    assert [(cell.x, cell.y) for cell in made.cells] == [(2, 40), (4, 40)]
    last = made.cells[-1].arms["plain"]
    alone = run_config(config_of(map, map.rivals[0], Cell(4, 40), 1, None), Path(), tmp_path / "alone")
    assert read_result(tmp_path / "map" / "cells" / "x4-y40" / "plain-seed1").test == alone.test
    assert last.test == pytest.approx(alone.test.f1)
    assert (last.steps, last.bytes_up) == (alone.steps, alone.bytes_up)
    assert made.learning_rates["plain"].chosen is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_declared_map_is_of_that_system_and_each_of_its_runs_has_a_config(system: str) -> None:
    map: Map = declared(system)
    assert map.system == system
    assert middle(map) in cells(map)
    for arm in arms_of(map):
        for cell in cells(map, corners=True):
            made = config_of(map, arm, cell, 1, next(iter(map.learning_rates), None))
            assert made.federation.early_stopping > 0
    names = [arm.name for arm in arms_of(map)]
    assert len(set(names)) == len(names)


def test_an_unknown_system_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown system 'lazymil'; did you mean 'lazy_mil'"):
        declared("lazymil")
