"""A config is checked before anything is computed, and every mistake is explained."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from grandrounds.algorithms.feded import FedED
from grandrounds.config.overrides import parse_override
from grandrounds.config.schema import Config, load_config, make_config
from grandrounds.config.validation import leaves
from grandrounds.errors import ConfigError
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig

BASE: dict[str, Any] = {"data": {"train": "a.jsonl", "test": "b.jsonl"}}


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        ("sead", 1, "'sead'; did you mean 'seed'"),
        ("federation.round", 3, r"'federation\.round'; did you mean 'federation\.rounds'"),
        ("training.epoch", 3, r"did you mean 'training\.epochs'"),
        ("partition.shceme", "iid", r"did you mean 'partition\.scheme'"),
        ("task.blindd", True, r"did you mean 'task\.blind'"),
        ("sites.mercy.trian", "a", r"did you mean 'sites\.mercy\.train'"),
        ("server.epoch", 1, r"did you mean 'server\.epochs'"),
        ("algorithm.name", "fedavgg", "unknown algorithm 'fedavgg'; did you mean 'fedavg'"),
        ("task.name", "sentence_er", r"task\.name: .*did you mean 'sentence_re'"),
        ("data.format", "bratt", r"data\.format: .*did you mean 'brat'"),
        ("partition.scheme", "dirichle", "did you mean 'dirichlet'"),
        ("partition.entropy", "papr", "did you mean 'paper'"),
        ("partition.unit", "sentense", "did you mean 'sentence'"),
    ],
)
def test_an_unknown_key_or_name_suggests_the_nearest(key: str, value: Any, nearest: str) -> None:
    with pytest.raises(ConfigError, match=nearest):
        make_config({**BASE, "algorithm": {"name": "fedavg"}}, {"task.name": "sentence_re", key: value})


def test_every_key_is_found_by_its_last_part_alone() -> None:
    content = {**BASE, "task": {"name": "sentence_re"}, "algorithm": {"name": "feded"}}
    keys = {field.name: f"algorithm.{field.name}" for field in fields(FedED)}
    for leaf in leaves(Config):
        keys.setdefault(leaf.rpartition(".")[2], leaf)
    keys |= {"max_length": "task.max_length", "rounds": "federation.rounds", "sites": "partition.sites"}
    for last in keys.keys() - Config.model_fields.keys() | {"sites"}:
        with pytest.raises(ConfigError, match=re.escape(f"'{keys[last]}'")):
            make_config(content, {last: 1})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("epochs", "did you mean 'training.epochs' or 'server.epochs'?"),
        ("learningrate", "did you mean 'training.learning_rate' or 'server.learning_rate'?"),
        ("algorithm.rounds", "did you mean 'federation.rounds'?"),
        ("task.rounds", "did you mean 'federation.rounds'?"),
        ("sites.mercy.rounds", "did you mean 'federation.rounds'?"),
    ],
)
def test_a_key_of_another_section_is_found_there(key: str, meant: str) -> None:
    content = {**BASE, "task": {"name": "sentence_re"}, "algorithm": {"name": "feded"}}
    with pytest.raises(ConfigError, match=re.escape(f"unknown config key '{key}'; {meant}")):
        make_config(content, {key: 1})


def test_an_unknown_option_of_an_algorithm_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="algorithm 'fedatt': unknown option 'nois'; did you mean 'noise'"):
        make_config({**BASE, "algorithm": {"name": "fedatt", "nois": 1}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("federation.rounds", "many"),
        ("federation.rounds", 0),
        ("federation.fraction", 1.5),
        ("training.learning_rate", -1.0),
        ("training.optimizer", "adamm"),
        ("seed", "one"),
        ("task.max_length", 3),
        ("federation.compression", "int4"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config({**BASE, "task": {"name": "sentence_re"}}, {key: value})
    assert str(caught.value).startswith(f"{key}: ")
    assert f"(it is {value!r})" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("federation.rounds=5", ("federation.rounds", 5)),
        ("training.learning_rate=2.5e-5", ("training.learning_rate", 2.5e-5)),
        ("algorithm.name=fedatt", ("algorithm.name", "fedatt")),
        ('algorithm.name="fedatt"', ("algorithm.name", "fedatt")),
        ("task.blind=false", ("task.blind", False)),
        ('data.train=["a.tsv", "b.tsv"]', ("data.train", ["a.tsv", "b.tsv"])),
        ("data.train=/a b/c=d.tsv", ("data.train", "/a b/c=d.tsv")),
        (" seed = 3 ", ("seed", 3)),
    ],
)
def test_an_override_is_toml_or_a_string(text: str, expected: tuple[str, Any]) -> None:
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["rounds", "=5", ""])
def test_what_is_no_override_is_explained(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an override; write it as section\.key=value"):
        parse_override(text)


def test_overrides_reach_their_sections_and_leave_the_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('seed = 3\n[data]\ntrain = "a"\ntest = "b"\n[federation]\nrounds = 7\n')
    config = load_config(path, ["federation.rounds=5", "algorithm.name=fedatt", "algorithm.step=1.2"])
    assert (config.seed, config.federation.rounds, config.make_algorithm().step) == (3, 5, 1.2)
    content = {**BASE, "federation": {"rounds": 7}}
    make_config(content, {"federation.rounds": 5})
    assert content["federation"] == {"rounds": 7}
    section = {"rounds": 7}
    assert make_config(BASE, {"federation": section, "federation.rounds": 5}).federation.rounds == 5
    assert section == {"rounds": 7}
    with pytest.raises(ConfigError, match=r"'seed\.x' can't be set: 'seed' is not a section"):
        load_config(path, ["seed.x=1"])


def test_a_config_written_as_toml_loads_to_an_equal_one(tiny_config: TinyConfig) -> None:
    config = make_config(
        tiny_config(
            **{
                "algorithm": {"name": "fedatt", "step": 1.2},
                "data.options": {"a": [1, 2], "b": {"c": 0.5}},
                "sites": {"mercy": {"train": ["x.jsonl", "y.jsonl"], "policy": "p.toml"}},
                "compare": {"other": {"seed": 2}},
                "task.pairs": [["treatment", "problem"]],
            }
        )
    )
    again = make_config(tomllib.loads(config.to_toml()))
    assert again.complete() == config.complete()
    assert again.digest() == config.digest()


def test_a_format_without_a_corpus_and_a_target_that_is_never_measured_are_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"give sites.a.train too"):
        make_config(tiny_config(sites={"a": {"format": "brat"}}))
    with pytest.raises(ConfigError, match=r"add 'test' to federation.evaluate_on"):
        make_config(tiny_config(**{"federation.stop_at_f1": 0.7, "federation.evaluate_on": ["validation"]}))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"task": {"name": "masked_lm"}, "algorithm.name": "moon"},
            "'moon' needs a task that finds mentions",
        ),
        (
            {"task": {"name": "masked_lm"}, "federation.stop_at_f1": 0.7},
            "stop_at_f1 needs a task that finds",
        ),
        (
            {"federation.keep_models": True, "algorithm.name": "local_only"},
            "trains one per site",
        ),
    ],
)
def test_what_could_have_no_effect_or_no_meaning_is_refused(
    overrides: dict[str, Any], said: str, tiny_config: TinyConfig
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_config(tiny_config(**overrides))


def test_the_digest_is_of_what_the_result_depends_on() -> None:
    digest = make_config(BASE).digest()
    for same in (
        {"workers": 2},
        {"federation.rounds": 99},
        {"federation.checkpoint_every": 5},
        {"federation.deadline": 9},
    ):
        assert make_config(BASE, same).digest() == digest
    for other in ({"seed": 2}, {"training.epochs": 2}, {"federation.fraction": 0.5}, {"algorithm.name": "fedatt"}):
        assert make_config(BASE, other).digest() != digest


def test_a_config_without_data_or_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.train is missing"):
        prepare(make_config({}), tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="there is no config"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seed = ")
    with pytest.raises(ConfigError, match=r"bad\.toml' can't be read"):
        load_config(tmp_path / "bad.toml")
