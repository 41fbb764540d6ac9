"""Others' code comes in without touching ours: an algorithm, a task and a format of one's own, in every runtime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from click.testing import Result
from typer.testing import CliRunner

import grandrounds
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.cli.app import app
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.registry import ALGORITHMS, FORMATS, TASKS
from tests.algorithms.quadratic import Quadratics
from tests.cli.commands import run
from tests.conftest import TinyConfig, corpus
from tests.deployment.grids import run_over_grid
from tests.hosts import Hosts
from tests.simulation.crashes import models

EXAMPLE = Path(__file__).parents[1] / "examples" / "feddyn" / "src"
PLUGIN = "grandrounds_feddyn"


@pytest.fixture
def feddyn(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example on the path of this process and of its children, as if its folder were on PYTHONPATH."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE), prepend=":")
    yield PLUGIN
    ALGORITHMS.pop("feddyn", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == PLUGIN]:
        del sys.modules[name]


@pytest.fixture
def content(tiny_config: TinyConfig, feddyn: str) -> Callable[..., dict[str, object]]:
    def make(**changes: object) -> dict[str, object]:
        return tiny_config(**{"algorithm": {"name": "feddyn"}, "imports": [feddyn], **changes})

    return make


def test_sites_that_pull_apart_reach_the_best_weights_of_all(feddyn: str) -> None:
    """FedAvg stops elsewhere: each site goes nearly to its own minimum, however flat it is."""
    from grandrounds_feddyn.feddyn import FedDyn

    sites = ([[1.0, 1.0], [8.0, 0.5], [0.2, 3.0]], [[0.0, 4.0], [1.0, -2.0], [5.0, 1.0]])
    best = Quadratics(*sites).best
    drifted, found = (Quadratics(*sites, steps=40).path(made, 300)[-1] for made in (FedAvg(), FedDyn(alpha=1.0)))
    assert np.abs(drifted - best).max() > 0.3
    np.testing.assert_allclose(found, best, atol=1e-2)


def test_a_round_is_that_of_algorithm_1(feddyn: str) -> None:
    from grandrounds_feddyn.feddyn import FedDyn

    sites, alpha = Quadratics([[1.0], [4.0]], [[2.0], [-1.0]], steps=5), 0.5
    w, h, g, found = np.zeros(1), np.zeros(1), np.zeros((2, 1)), []
    for _ in range(3):
        y = np.stack([w] * 2)
        for _ in range(5):
            y = y - 0.1 * (sites.a * (y - sites.b) - g + alpha * (y - w))
        g = g - alpha * (y - w)
        h = h - alpha * (y - w).mean(axis=0)
        w = y.mean(axis=0) - h / alpha
        found.append(w)
    np.testing.assert_allclose(sites.path(FedDyn(alpha=alpha), 3), found, rtol=1e-4)


def test_workers_and_the_grid_give_the_same_bits(content: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    grandrounds.run(content(), out=tmp_path / "process")
    grandrounds.run(content(workers=2), out=tmp_path / "workers")
    run_over_grid(content(), tmp_path / "grid")
    assert models(tmp_path / "workers") == models(tmp_path / "process") == models(tmp_path / "grid")


def test_an_algorithm_that_nobody_imported_is_unknown(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown algorithm 'feddyn'"):
        grandrounds.run(tiny_config(algorithm={"name": "feddyn"}), out=tmp_path / "run")


def test_the_option_import_brings_it_to_a_command(feddyn: str, tmp_path: Path) -> None:
    command = ("run", EXAMPLE.parent / "feddyn.toml", "imports=[]", "--import", feddyn, "--out", tmp_path / "run")
    small = ("federation.rounds=1", "data.options.notes=6", "model.warm_up=0")
    run(*command, *small, prelude=f"import sys\nsys.path.insert(0, {str(EXAMPLE)!r})").good()
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


@pytest.fixture
def hosts(tmp_path: Path, encoder_folder: Callable[[str], Path], feddyn: str) -> Hosts:
    """A federation that runs the example."""
    own = {"algorithm": {"name": "feddyn"}, "imports": [feddyn]}
    return Hosts(tmp_path, encoder_folder("bert"), **own).found_here()


def test_a_site_loads_only_what_its_own_file_names(hosts: Hosts, feddyn: str) -> None:
    folder = hosts.enrolment("mercy")
    assert "imports" not in (folder / "terms" / "federation.toml").read_text()
    ALGORITHMS.pop("feddyn")
    del sys.modules[f"{feddyn}.feddyn"], sys.modules[feddyn]
    with pytest.raises(GrandRoundsError, match=r"algorithm 'feddyn' is not built in; .* name its module in site\.toml"):
        _ = read_enrolment(folder).terms
    (folder / "site.toml").write_text((folder / "site.toml").read_text() + f'imports = ["{feddyn}"]\n')
    hosts.handler("mercy")
    assert read_enrolment(folder).terms.config.algorithm["name"] == "feddyn"


def test_terms_that_name_modules_are_refused(hosts: Hosts) -> None:
    terms = hosts.enrolment("mercy") / "terms" / "federation.toml"
    terms.write_text(tomli_w.dumps({"imports": ["os"]}) + terms.read_text())
    with pytest.raises(GrandRoundsError, match=r"a site imports only what its own site\.toml names"):
        _ = read_enrolment(hosts.enrolment("mercy")).terms


OWN = """
from collections import Counter
from grandrounds import Document
from grandrounds.data.documents import Span
from grandrounds.data.formats.source import Format
from grandrounds.registry import FORMATS, TASKS
from typing import Literal
from grandrounds.tasks.sentence_re import SentenceRE, SentenceREOptions

def read_lines(path, warnings):
    for number, line in enumerate(path.read_text().splitlines()):
        yield Document(f"{path.stem}-{number}", line, (Span(0, len(line)),), (), (), ())

class RenamedOptions(SentenceREOptions):
    name: Literal["renamed_re"] = "renamed_re"

class Renamed(SentenceRE):
    name = "renamed_re"
    Options = RenamedOptions

FORMATS.register("shouted", Format("shouted", "a line a document", read_lines, suffixes=(".shout",)), __name__)
TASKS.register("renamed_re", Renamed, __name__)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_things.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_things"
    FORMATS.pop("shouted", None)
    TASKS.pop("renamed_re", None)
    sys.modules.pop("own_things", None)


def test_a_format_of_one_s_own_is_read_by_name(own_module: str, tmp_path: Path) -> None:
    (tmp_path / "notes.shout").write_text("NO FEVER\nNO PAIN\n")
    with pytest.raises(GrandRoundsError, match="unknown format 'shouted'"):
        grandrounds.read(tmp_path / "notes.shout", "shouted")
    __import__(own_module)
    assert [document.text for document in grandrounds.read(tmp_path / "notes.shout", "shouted").documents] == [
        "NO FEVER",
        "NO PAIN",
    ]


def test_the_data_commands_read_a_format_of_one_s_own(own_module: str, tmp_path: Path) -> None:
    (tmp_path / "notes.shout").write_text("NO FEVER\nNO PAIN\n")

    def command(*words: str) -> Result:
        return CliRunner().invoke(app, ["data", *words, str(tmp_path / "notes.shout"), "--format", "shouted"])

    assert "To use a format of your own, name its module with --import" in str(command("check").exception)
    for name in ("check", "stats"):
        FORMATS.pop("shouted", None)
        sys.modules.pop(own_module, None)
        assert json.loads(command(name, "--import", own_module, "--json").stdout)["documents"] == 2
    written = tmp_path / "notes.jsonl"
    assert command("convert", "--import", own_module, "--to", "json", "--out", str(written)).exit_code == 0
    assert [document.text for document in grandrounds.read(written, "json")] == ["NO FEVER", "NO PAIN"]


def test_a_task_of_one_s_own_is_trained_saved_and_loaded(
    own_module: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content = tiny_config(**{"task.name": "renamed_re", "imports": [own_module]})
    result = grandrounds.run(content, out=tmp_path / "run")
    assert result.task == "renamed_re"
    model = grandrounds.load(tmp_path / "run" / "model")
    assert model.relaters[0].task.name == "renamed_re"
    assert model.extract(corpus(4)[0]).text == corpus(4)[0].text
