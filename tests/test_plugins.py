"""Others' code comes in without touching ours: an algorithm, a task and a format of one's own, in every runtime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

import grandrounds
from grandrounds.cli.app import app
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.state import TensorState
from grandrounds.registry import ALGORITHMS, FORMATS, TASKS
from grandrounds.simulation.prepare import prepare
from tests.cli.commands import run
from tests.conftest import TinyConfig, corpus
from tests.deployment.grids import run_over_grid
from tests.hosts import Hosts
from tests.simulation.crashes import models

EXAMPLE = Path(__file__).parents[1] / "examples" / "scaffold" / "src"
PLUGIN = "grandrounds_scaffold"
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.0, "clip_norm": 0.0, "epochs": 1, "batch_size": 8}


@pytest.fixture
def scaffold(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example on the path of this process and of its children, as if its folder were on PYTHONPATH."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE), prepend=":")
    yield PLUGIN
    ALGORITHMS.pop("scaffold", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == PLUGIN]:
        del sys.modules[name]


@pytest.fixture
def content(tiny_config: TinyConfig, scaffold: str) -> Callable[..., dict[str, object]]:
    def make(**changes: object) -> dict[str, object]:
        own = {"algorithm": {"name": "scaffold"}, "training": SGD, "federation.weight_by": "uniform"}
        return tiny_config(**{**own, "imports": [scaffold], **changes})

    return make


def test_the_first_round_of_scaffold_is_fedavg_s(content: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    """All control variates are zero in it."""
    grandrounds.run(content(**{"federation.rounds": 1}), out=tmp_path / "scaffold")
    grandrounds.run(content(**{"federation.rounds": 1, "algorithm": {"name": "fedavg"}}), out=tmp_path / "fedavg")
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("scaffold", "fedavg"))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in theirs)


def test_a_later_round_is_not(content: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    grandrounds.run(content(**{"federation.rounds": 3}), out=tmp_path / "scaffold")
    grandrounds.run(content(**{"federation.rounds": 3, "algorithm": {"name": "fedavg"}}), out=tmp_path / "fedavg")
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("scaffold", "fedavg"))
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) > 1e-4


def test_workers_and_the_grid_give_the_same_bits(content: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    grandrounds.run(content(), out=tmp_path / "process")
    grandrounds.run(content(workers=2), out=tmp_path / "workers")
    run_over_grid(content(), tmp_path / "grid")
    assert models(tmp_path / "workers") == models(tmp_path / "process") == models(tmp_path / "grid")


def test_control_variates_are_those_of_option_ii(content: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    """By hand, in NumPy: two steps of SGD from zero controls give c_i = (x - y) / (K eta), and c their mean."""
    from grandrounds_scaffold.scaffold import CONTROL, Scaffold

    from grandrounds.config.schema import make_config
    from grandrounds.federation.contract import make_algorithm

    config = make_config(content())
    simulation = prepare(config, Path(), tmp_path)
    made = make_algorithm("scaffold", {})
    assert isinstance(made, Scaffold)
    from grandrounds.federation.learner import Site
    from grandrounds.federation.payloads import Parameters, Tensors

    start = {name: value.numpy().copy() for name, value in Parameters.of(simulation.model).values.items()}
    zeros = {name: torch.zeros_like(p) for name, p in simulation.model.named_parameters()}
    for data in simulation.sites.values():
        model = data.spec.initial_model()
        site = Site(data.registration, data.spec, data.splits, model, model.state_dict, {}, None, 1, 1, lambda: b"")
        weights, change = made.train(site, Parameters.of(simulation.model), Tensors(zeros))
        steps = -(-len(data.splits["train"]) // SGD["batch_size"])
        for name, delta in change.values.items():
            expected = (start[name] - weights.values[name].numpy()) / (steps * SGD["learning_rate"])
            assert np.allclose(delta.numpy(), expected, atol=1e-5)
        kept = TensorState()
        assert site.recall(CONTROL, kept)
        assert all(torch.equal(kept[name], change.values[name]) for name in kept)


def test_an_algorithm_that_nobody_imported_is_unknown(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown algorithm 'scaffold'"):
        grandrounds.run(tiny_config(algorithm={"name": "scaffold"}), out=tmp_path / "run")


def test_the_option_import_brings_it_to_a_command(scaffold: str, tmp_path: Path) -> None:
    command = ("run", EXAMPLE.parent / "scaffold.toml", "imports=[]", "--import", scaffold, "--out", tmp_path / "run")
    small = ("federation.rounds=1", "data.options.notes=6", "model.warm_up=0")
    run(*command, *small, prelude=f"import sys\nsys.path.insert(0, {str(EXAMPLE)!r})").good()
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


@pytest.fixture
def hosts(tmp_path: Path, encoder_folder: Callable[[str], Path], scaffold: str) -> Hosts:
    """A federation that runs the example."""
    own = {"algorithm": {"name": "scaffold"}, "training": SGD, "imports": [scaffold]}
    return Hosts(tmp_path, encoder_folder("bert"), **own).found_here()


def test_a_site_loads_only_what_its_own_file_names(hosts: Hosts, scaffold: str) -> None:
    folder = hosts.enrolment("mercy")
    assert "imports" not in (folder / "terms" / "federation.toml").read_text()
    ALGORITHMS.pop("scaffold")
    del sys.modules[f"{scaffold}.scaffold"], sys.modules[scaffold]
    with pytest.raises(
        GrandRoundsError, match=r"algorithm 'scaffold' is not built in; .* name its module in site\.toml"
    ):
        _ = read_enrolment(folder).terms
    (folder / "site.toml").write_text((folder / "site.toml").read_text() + f'imports = ["{scaffold}"]\n')
    hosts.handler("mercy")
    assert read_enrolment(folder).terms.config.algorithm["name"] == "scaffold"


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
