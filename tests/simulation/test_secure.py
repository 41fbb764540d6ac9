"""Secure aggregation in a simulation: algorithms that average learn as without it, with the same bits everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.secure.total import Total
from grandrounds.registry import ALGORITHMS
from tests.conftest import TinyConfig, task_for
from tests.deployment.grids import run_over_grid
from tests.simulation.crashes import Watch, cut, metrics, models, timeless

AVERAGE = ("ditto", "fedavg", "feded", "fedlcc", "fedner", "fedopt", "fedper", "fedprox", "moon")
SENT = {"mask_keys", "key_shares", "masked", "agreement", "opened_shares"}


def setting(tiny_config: TinyConfig, name: str, **more: Any) -> dict[str, Any]:
    few = {"iterations": 2} if name == "fedner" else {}
    return tiny_config(
        **{
            "algorithm": {"name": name, **few},
            "federation.rounds": 2,
            "federation.secure": True,
            **task_for(name),
            **more,
        }
    )


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_either_averages_or_is_refused(tiny_config: TinyConfig, tmp_path: Path, name: str) -> None:
    content = setting(tiny_config, name)
    if name not in AVERAGE:
        with pytest.raises(ConfigError, match=r"federation\.secure"):
            make_config(content)
        return
    watch = Watch()
    secure = grandrounds.run(content, out=tmp_path / "secure", watcher=watch)
    content["federation"]["secure"] = False
    grandrounds.run(content, out=tmp_path / "plain")
    close(tmp_path / "secure", tmp_path / "plain", 2e-3 if name == "fedner" else 2e-4)
    run_over_grid(setting(tiny_config, name), tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "secure")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "secure"))
    up = {line["kind"] for line in log(tmp_path / "secure") if line.get("direction") == "up"}
    assert up - {"scores", "done"} == SENT
    assert not [sentence for sentence in watch.said if "clipped" in sentence]
    assert secure.rounds == 2
    first = metrics(tmp_path / "secure")[0]
    assert 0 < first["diagnostics"]["secure_rounding"] < 1e-6
    assert first["diagnostics"]["secure_clipped"] == 0


def close(secure: Path, plain: Path, tolerance: float) -> None:
    found = [sorted(out.rglob("model.safetensors")) for out in (secure, plain)]
    found = [[path for path in paths if path.parent.name == "model" or "models" in path.parts] for paths in found]
    assert len(found[0]) == len(found[1]) > 0
    for ours, theirs in zip(*found, strict=True):
        a, b = (safetensors.torch.load_file(path) for path in (ours, theirs))
        assert a.keys() == b.keys()
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance)


def test_workers_and_one_process_have_the_same_bits_and_the_same_log(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = setting(tiny_config, "fedlcc")
    grandrounds.run(content, out=tmp_path / "one")
    grandrounds.run(content, {"workers": 2}, out=tmp_path / "two")
    assert models(tmp_path / "one") == models(tmp_path / "two")
    sent = [
        [(line["site"], line["kind"], line["digest"]) for line in log(tmp_path / out) if "digest" in line]
        for out in ("one", "two")
    ]
    assert sent[0] == sent[1]
    assert len(sent[0]) == 2 * 3 * (1 + 2 + 3 + 2 + 2)  # rounds, sites; keys up, then each phase with what goes down


@pytest.mark.parametrize("name", ["fedavg", "fedner"])
def test_a_resumed_run_ends_with_the_same_bits(tiny_config: TinyConfig, tmp_path: Path, name: str) -> None:
    content = setting(tiny_config, name, **{"federation.rounds": 3})
    grandrounds.run(content, out=tmp_path / "whole")
    cut(content, tmp_path / "cut", after=2)
    grandrounds.run(content, out=tmp_path / "cut", resume=True)
    assert models(tmp_path / "cut") == models(tmp_path / "whole")


def test_weights_are_those_of_registrations(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """A Dirichlet partition: sites differ in size, and what is over the largest share is clipped as without masks."""
    skewed = {"partition": {"scheme": "dirichlet", "alpha": 0.3, "sites": 4}, "federation.rounds": 1}
    content = setting(tiny_config, "fedavg", **skewed)
    grandrounds.run(content, out=tmp_path / "secure")
    content["federation"]["secure"] = False
    grandrounds.run(content, out=tmp_path / "plain")
    close(tmp_path / "secure", tmp_path / "plain", 1e-4)
    content["federation"]["weight_by"] = "uniform"
    grandrounds.run(content, out=tmp_path / "uniform")
    with pytest.raises(AssertionError):
        close(tmp_path / "secure", tmp_path / "uniform", 1e-4)


def test_clipped_values_are_counted_and_said(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """An attacker's thousandfold weights count no more than +-32; that it was this site, nobody sees."""
    content = setting(tiny_config, "fedavg", **{"sites": {"site-01": {"attack": "scale"}}, "federation.rounds": 1})
    watch = Watch()
    grandrounds.run(content, out=tmp_path / "run", watcher=watch)
    (said,) = [sentence for sentence in watch.said if "clipped" in sentence]
    number = metrics(tmp_path / "run")[0]["diagnostics"]["secure_clipped"]
    assert number > 10
    assert said == f"{number:,.0f} uploaded values were beyond +-32 and were clipped (federation.secure)"


def test_a_round_of_one_site_is_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the sum of one would be its upload"):
        grandrounds.run(setting(tiny_config, "fedavg", **{"federation.fraction": 0.3}), out=tmp_path / "run")


def test_gradients_leave_as_whole_tables(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """FedNER's rows show which words a batch has; masked, every upload has the same size."""
    grandrounds.run(setting(tiny_config, "fedner"), out=tmp_path / "run")
    sizes = {line["bytes"] for line in log(tmp_path / "run") if line.get("kind") == "masked"}
    assert len(sizes) == 1


def test_what_the_coordinator_sees_is_random(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """The bytes of masked uploads are uniform, and no two sites' are alike."""
    seen: list[np.ndarray] = []
    add = Total.add

    def listening(self: Any, site: str, parts: Any) -> None:
        seen.append(parts[0].tensors["words"].numpy().copy())
        add(self, site, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Total, "add", listening)
        grandrounds.run(setting(tiny_config, "fedavg", **{"federation.rounds": 1}), out=tmp_path / "run")
    assert len(seen) == 3
    for words in seen:
        counts = np.bincount(words.view(np.uint8), minlength=256)
        chi = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert 150 < chi < 375
    assert abs(np.corrcoef(np.stack(seen))[np.triu_indices(3, 1)]).max() < 0.05
