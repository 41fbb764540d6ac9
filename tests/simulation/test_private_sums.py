"""Differential privacy with secure sums: the coordinator sees masked numbers alone, and their mean has noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.privacy.accounting import epsilon
from grandrounds.federation.privacy.ledger import draws_of, spent_lines
from grandrounds.federation.secure.noise import SharedNoise
from grandrounds.federation.secure.total import Total
from tests.conftest import TinyConfig
from tests.deployment.grids import run_over_grid
from tests.simulation.crashes import Watch, cut, metrics, models, timeless

SENT = {"mask_keys", "key_shares", "masked", "agreement", "opened_shares"}
CLIP = 0.3


def setting(tiny_config: TinyConfig, unit: str, **more: Any) -> dict[str, Any]:
    private = {"privacy.unit": unit, "privacy.epsilon": 8.0, "privacy.clip": CLIP, "federation.secure": True}
    return tiny_config(**{**private, "training.batch_size": 4, **more})


def spent(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.stem: spent_lines(path) for path in sorted((out / "privacy").glob("*.jsonl"))}


def noise_found(out: Path, sent: dict[str, Any]) -> float:
    """The deviation of what a round changed; updates are short, and noise is not."""
    found = load_file(out / "model" / "model.safetensors")
    moved = [(found[n].double() - sent[n].double()).numpy().ravel() for n in found if n in sent]
    return float(np.concatenate(moved).std())


def start(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    from grandrounds.simulation.prepare import prepare

    return dict(prepare(make_config(content), Path(), folder).spec.initial_model().state_dict())


@pytest.mark.parametrize("unit", ["patient", "site"])
def test_over_the_grid_and_in_one_process_with_the_same_bits_and_the_same_spending(
    unit: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    content, seen = setting(tiny_config, unit), list[np.ndarray]()
    add = Total.add

    def listening(self: Any, site: str, parts: Any) -> None:
        seen.append(parts[0].tensors["words"].numpy().copy())
        add(self, site, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Total, "add", listening)
        grandrounds.run(content, out=tmp_path / "one")
    run_over_grid(content, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "one")
    assert (
        timeless(metrics(tmp_path / "grid"))[0]["diagnostics"] == timeless(metrics(tmp_path / "one"))[0]["diagnostics"]
    )
    without_time = [
        {site: [{k: v for k, v in line.items() if k not in ("time", "previous", "hash")} for line in lines]}
        for out in ("one", "grid")
        for site, lines in spent(tmp_path / out).items()
    ]
    assert without_time[:3] == without_time[3:]
    for site, lines in spent(tmp_path / "one").items():
        assert [line["round"] for line in lines] == [1, 2]
        assert {(line["site"], line["unit"]) for line in lines} == {(site, unit)}
        assert 7.5 < epsilon(draws_of(lines), 1e-5) <= 8.0
    for out in ("one", "grid"):
        log = [json.loads(line) for line in (tmp_path / out / "audit.jsonl").read_text().splitlines()]
        assert {line["kind"] for line in log if line.get("direction") == "up"} - {"scores", "done"} == SENT
    assert len(seen) == 6
    for words in seen:  # uniform bytes
        counts = np.bincount(words.view(np.uint8), minlength=256)
        assert 150 < ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 375


def test_whole_sites_pay_for_a_secure_sum_as_for_a_plain_one(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = setting(tiny_config, "site", **{"federation.rounds": 1})
    grandrounds.run(content, out=tmp_path / "secure")
    content["federation"]["secure"] = False
    grandrounds.run(content, out=tmp_path / "plain")
    one, other = (
        {site: draws_of(lines) for site, lines in spent(tmp_path / out).items()} for out in ("secure", "plain")
    )
    assert one == other


ALL, LEAVES = {"site-01", "site-02", "site-03"}, ["agreement", "done", "key_shares", "mask_keys", "opened_shares"]


@pytest.mark.parametrize(("lost", "excess"), [((), 3**0.5), (("site-02",), 2**0.5)])
def test_the_sum_of_who_stayed_has_the_noise_that_the_ledger_says_or_more(
    lost: tuple[str, ...], excess: float, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """Three sites, of whom two must stay: each adds the whole noise, so that neither knows what the other's part is."""
    policy = tmp_path / "no-masked.toml"
    policy.write_text(f"allow = {json.dumps(LEAVES)}")
    own = {"sites": {site: {"policy": str(policy)} for site in lost}, "federation.weight_by": "uniform"}
    content = setting(tiny_config, "site", **{**own, "federation.rounds": 1})
    grandrounds.run(content, out=tmp_path / "run")
    (round,) = metrics(tmp_path / "run")
    assert round["lost"].keys() == set(lost)
    assert round["diagnostics"]["secure_noise"] == pytest.approx(excess, rel=1e-6)
    noise = spent(tmp_path / "run")["site-01"][0]["noise"]
    stated = noise * CLIP / len(ALL - set(lost))
    assert noise_found(tmp_path / "run", start(content, tmp_path)) == pytest.approx(excess * stated, rel=0.02)


def test_a_wrong_deviation_is_seen(tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = SharedNoise.part
    monkeypatch.setattr(SharedNoise, "part", lambda *given: 0.95 * part(*given))
    test = test_the_sum_of_who_stayed_has_the_noise_that_the_ledger_says_or_more
    with pytest.raises(AssertionError):
        test((), 3**0.5, tiny_config, tmp_path)


def test_without_noise_to_speak_of_the_mean_of_clipped_updates_is_that_of_plain_sums(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    own = {"privacy.noise": 1e-4, "privacy.epsilon": 1e300, "federation.rounds": 1}
    content = setting(tiny_config, "site", **own)
    sent = start(content, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        from grandrounds.federation.privacy.ledger import SpendingLedger

        patch.setattr(SpendingLedger, "_check", lambda *given: None)  # so little noise costs more than any budget
        grandrounds.run(content, out=tmp_path / "secure")
        content["federation"]["secure"] = False
        grandrounds.run(content, out=tmp_path / "plain")
    one, other = (load_file(tmp_path / out / "model" / "model.safetensors") for out in ("secure", "plain"))
    apart = sum(((one[n].double() - other[n].double()) ** 2).sum().item() for n in one if n in sent) ** 0.5
    moved = sum(((one[n].double() - sent[n].double()) ** 2).sum().item() for n in one if n in sent) ** 0.5
    assert 0.1 < moved < CLIP + 0.05
    assert apart < 0.03


def test_a_resumed_run_has_the_same_bits_and_pays_once(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = setting(tiny_config, "site", **{"federation.rounds": 3})
    grandrounds.run(content, out=tmp_path / "whole")
    cut(content, tmp_path / "cut", after=2)
    grandrounds.run(content, out=tmp_path / "cut", resume=True)
    assert models(tmp_path / "cut") == models(tmp_path / "whole")
    assert [len(lines) for lines in spent(tmp_path / "cut").values()] == [3, 3, 3]


def test_noise_that_has_no_room_in_32_bits_is_refused_before_round_1(tiny_config: TinyConfig, tmp_path: Path) -> None:
    watch = Watch()
    content = setting(tiny_config, "site", **{"privacy.clip": 1e9})
    with pytest.raises(ConfigError, match=r"lower privacy\.clip"):
        grandrounds.run(content, out=tmp_path / "run", watcher=watch)
    assert not spent(tmp_path / "run")
