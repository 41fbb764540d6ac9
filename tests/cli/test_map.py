"""`map` as a shell runs it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from grandrounds.maps.make import make_map
from tests.cli.commands import run, start
from tests.maps.fake import FAKE, MadeUp, helps_where_sites_are_many


def test_an_unknown_system_is_told_with_the_nearest(tmp_path: Path) -> None:
    said = run("map", "fedeb", "--out", tmp_path / "none").complaint()
    assert said == "unknown system 'fedeb'; did you mean 'feded'?"
    assert not (tmp_path / "none").exists()


def test_a_map_is_redrawn_without_running_and_told(tmp_path: Path) -> None:
    made = make_map(FAKE, tmp_path, 1, MadeUp(helps_where_sites_are_many))
    (tmp_path / "map.svg").unlink()
    reported = run("map", "lazy_mil", "--redraw", "--out", tmp_path).good()
    assert made.sentence in reported.stdout.replace("\n", " ")
    assert "There was one seed" in reported.stderr
    assert (tmp_path / "map.svg").read_text().startswith("<?xml")
    held = run("map", "lazy_mil", "--redraw", "--out", tmp_path, "--json").json()
    assert held == json.loads((tmp_path / "map.json").read_text())


def test_a_map_that_is_not_there_can_t_be_redrawn(tmp_path: Path) -> None:
    said = run("map", "lazy_mil", "--redraw", "--out", tmp_path).complaint()
    assert said.endswith("map.json: there is no map here yet; run the command without --redraw first")


def test_a_stopped_map_says_that_the_same_command_goes_on(tmp_path: Path) -> None:
    prelude = f"""
import importlib, pathlib, time
def wait(*_, **__):
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    time.sleep(60)
importlib.import_module("grandrounds.simulation.sweep").run_arms = wait
"""
    running = start("map", "lazy_mil", "--out", tmp_path / "out", prelude=prelude)
    running.until(tmp_path / "begun")
    running.send(signal.SIGINT)
    assert running.wait(30).complaint(130) == "stopped; what was finished is kept, and the same command goes on"
