"""State dicts go to disk and come back exactly; versions of private state are kept as long as they are needed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from grandrounds.federation.private import MissingVersionError, PrivateStore
from grandrounds.federation.state import Flat, flatten, rebuild
from grandrounds.federation.state_folder import DamagedError, read_folder, write_folder


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "plain sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4, generator=generator)).square().mean().backward()
        optimizer.step()
        scheduler.step()


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_for_bit_from_states_on_disk(name: str, tmp_path: Path) -> None:
    model = small_model()
    optimizer = OPTIMIZERS[name](model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
    train(model, optimizer, scheduler, 5, seed=1)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    state = scheduler.state_dict()
    held = {n: flatten({k: v for k, v in part.state_dict().items() if not callable(v)}) for n, part in parts.items()}
    write_folder(tmp_path / "0001", held, {"round": 5})
    flats, record = read_folder(tmp_path / "0001")
    assert record == {"round": 5}
    assert equal(dict(model.state_dict()), rebuild(flats["model"]))
    assert equal(optimizer.state_dict(), rebuild(flats["optimizer"]))

    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    again = OPTIMIZERS[name](other.parameters())
    later = torch.optim.lr_scheduler.OneCycleLR(again, 0.1, total_steps=20)
    other.load_state_dict(rebuild(flats["model"]))
    again.load_state_dict(rebuild(flats["optimizer"]))
    later.load_state_dict({**state, **rebuild(flats["scheduler"])})
    train(model, optimizer, scheduler, 5, seed=2)
    train(other, again, later, 5, seed=2)
    assert equal(dict(model.state_dict()), dict(other.state_dict()))
    assert equal(optimizer.state_dict(), again.state_dict())


@pytest.mark.parametrize(
    "value",
    [
        {},
        {1: "a", "1": "b"},
        {"a": None, "b": [1, 2.5, True, "x", (1, (2,))], "c": {}},
        {"rate": 0.1 + 0.2, "big": 2**70, "not": float("-inf")},
        {"empty": torch.zeros(0, 3), "scalar": torch.tensor(3), "bool": torch.tensor([True, False])},
        {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}},
        {1: torch.ones(1), "1": torch.zeros(1)},
    ],
    ids=["empty", "keys", "nested", "numbers", "tensors", "slashes", "int and str keys"],
)
def test_a_tree_comes_back_exactly_through_a_folder(value: Any, tmp_path: Path) -> None:
    write_folder(tmp_path / "1", {"it": flatten(value)}, {})
    assert equal(rebuild(read_folder(tmp_path / "1")[0]["it"]), value)


def test_a_flat_state_is_a_copy_in_both_directions() -> None:
    weights = torch.ones(3)
    flat = flatten({"w": weights})
    weights.zero_()
    rebuild(flat)["w"].fill_(5)
    assert rebuild(flat)["w"].tolist() == [1, 1, 1]
    assert flat.nbytes == 12


def test_what_json_and_safetensors_cannot_hold_is_named() -> None:
    with pytest.raises(TypeError, match="not set at /a/0"):
        flatten({"a": [{1, 2}]})


@pytest.mark.parametrize("name", ["it.safetensors", "state.json", "digest"])
def test_a_folder_with_a_byte_changed_cut_or_without_a_file_is_damaged(name: str, tmp_path: Path) -> None:
    path = tmp_path / "1"
    write_folder(path, {"it": flatten({"w": torch.ones(3), "n": 1})}, {})
    whole = (path / name).read_bytes()
    for place in range(len(whole)):
        (path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedError):
            read_folder(path)
    (path / name).write_bytes(whole[:-1])
    with pytest.raises(DamagedError):
        read_folder(path)
    (path / name).unlink()
    with pytest.raises(DamagedError):
        read_folder(path)


# Private versions


def state(value: float, size: int = 10) -> dict[str, Flat]:
    return {"model": flatten({"w": torch.full((size,), float(value))})}


def value(store: PrivateStore, site: str, version: str | None) -> float:
    return float(rebuild(store.read(site, version)["model"])["w"][0])


@pytest.mark.parametrize("memory", [0, 100, 1 << 20])
def test_versions_are_kept_by_site_in_memory_or_on_disk(memory: int, tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, memory)
    for round in range(1, 6):
        for site in ("a", "b/../c"):
            store.write(site, f"{round:05d}.1", state(round + (site != "a") / 2))
    assert [value(store, "a", f"{round:05d}.1") for round in range(1, 6)] == [1, 2, 3, 4, 5]
    assert [value(store, "b/../c", f"{round:05d}.1") for round in range(1, 6)] == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert store.read("a", None) == {}
    assert all(path.parent == tmp_path for path in tmp_path.glob("*"))


def test_a_small_budget_sends_the_oldest_to_disk(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, memory=100)
    for round in (1, 2, 3, 4):
        store.write("a", f"{round:05d}.1", state(round))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["00001.1", "00002.1"]
    store.flush()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [f"{round:05d}.1" for round in (1, 2, 3, 4)]
    assert value(PrivateStore(tmp_path), "a", "00004.1") == 4


def test_only_retained_versions_live_on(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, memory=100)
    for round in (1, 2, 3, 4):
        store.write("a", f"{round:05d}.1", state(round))
        store.write("b", f"{round:05d}.1", state(round))
    store.retain("a", {"00002.1", "00004.1"})
    store.flush()
    for version in ("00001.1", "00003.1"):
        with pytest.raises(MissingVersionError, match=version):
            store.read("a", version)
    assert [value(store, "a", version) for version in ("00002.1", "00004.1")] == [2, 4]
    assert value(store, "b", "00001.1") == 1


def test_a_version_can_be_made_again(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, memory=0)
    store.write("a", "00001.1", state(1))
    store.write("a", "00001.1", state(9))
    assert value(store, "a", "00001.1") == 9


def test_a_damaged_version_is_missing(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, memory=0)
    store.write("a", "00001.1", state(1))
    path = tmp_path / "a" / "00001.1" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(MissingVersionError, match=r"00001\.1 of the private state is not here"):
        store.read("a", "00001.1")


def test_training_with_what_was_recalled_does_not_change_the_version(tmp_path: Path) -> None:
    """torch's optimisers take over the tensors that they load, and change them in place."""
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    none = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    train(model, optimizer, none, 3, seed=1)
    store = PrivateStore(tmp_path)
    store.write("a", "00001.1", {"optimizer": flatten(optimizer.state_dict())})
    before = copy.deepcopy(rebuild(store.read("a", "00001.1")["optimizer"]))
    optimizer.load_state_dict(rebuild(store.read("a", "00001.1")["optimizer"]))
    train(model, optimizer, none, 3, seed=2)
    assert equal(rebuild(store.read("a", "00001.1")["optimizer"]), before)
