"""One site's share of a mean is limited, whatever it registers, and everybody hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grandrounds.config.schema import make_config
from grandrounds.federation.contract import Registration
from grandrounds.federation.shares import clipped, sentences, weights
from grandrounds.runs.loop import Silent
from grandrounds.simulation.run import run
from tests.conftest import HOSPITALS, TinyConfig


def sites(**examples: int) -> list[Registration]:
    return [Registration(name, {"examples": number}, [], {}) for name, number in examples.items()]


def test_a_site_that_registers_a_trillion_examples_gets_half() -> None:
    found = weights(sites(a=100, b=300, c=10**12), "examples", 0.5)
    assert found == {"a": 100, "b": 300, "c": 400}


@pytest.mark.parametrize("examples", [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 10**12}, {"a": 5}])
def test_shares_within_the_limit_and_few_sites_are_as_registered(examples: dict[str, int]) -> None:
    assert weights(sites(**examples), "examples", 0.5) == examples


def test_several_may_be_over_a_small_limit() -> None:
    found = clipped({"a": 1000, "b": 500, "c": 6, "d": 4}, 0.4)
    assert found == pytest.approx({"a": 20, "b": 20, "c": 6, "d": 4})
    assert found["a"] / sum(found.values()) == pytest.approx(0.4)
    assert clipped({"a": 9, "b": 2, "c": 1}, 0.2) == {"a": 1, "b": 1, "c": 1}  # no three shares of a fifth make a whole
    cascade = clipped({"a": 100, "b": 42, "c": 10, "d": 10}, 0.4)  # clipping the first makes the second too large
    assert cascade == pytest.approx({"a": 40, "b": 40, "c": 10, "d": 10})


def test_shares_and_what_was_clipped_are_said() -> None:
    assert sentences(sites(a=100, b=300, c=600), "examples", 0.5) == [
        "weights by examples: c 50.0%, b 37.5%, a 12.5%",
        "site 'c' registered 600 examples, 60.0% of all: it counts for 50.0% (federation.largest_share)",
    ]
    assert sentences(sites(a=1, b=1), "uniform", 0.5) == []


class Heard(Silent):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def test_a_run_says_it_and_the_model_is_that_of_the_clipped_weights(
    tiny_config: TinyConfig, corpora: Path, tmp_path: Path
) -> None:
    """The large site weighs as much as the other two together: no more, wherever the limit stands above that."""
    own: dict[str, Any] = {name: {"train": str(corpora / f"{name}.jsonl")} for name in HOSPITALS[:2]}
    own["large"] = {"train": str(corpora / "train.jsonl")}
    without = {"partition": None, "data.train": None, "data.public": None, "data.validation": None}
    models = {}
    for limit in (None, 0.5, 1.0):
        content = tiny_config(sites=own, **without, **{"federation.rounds": 1, "federation.largest_share": limit})
        heard, out = Heard(), tmp_path / str(limit)
        run(make_config(content), out=out, watcher=heard)
        models[limit] = (out / "model" / "model.safetensors").read_bytes()
        clipped = [sentence for sentence in heard.sentences if "federation.largest_share" in sentence]
        assert len(clipped) == (limit != 1.0)
        assert heard.sentences[0].startswith(f"weights by examples: large {0.652 if limit == 1 else 0.5:.1%}")
    assert models[None] == models[0.5] != models[1.0]
