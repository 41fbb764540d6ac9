"""A site's own word on what may leave it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Done, Parameters, Scores
from grandrounds.federation.policy import Policy, RefusalError


def load(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return Policy.load(path)


def test_a_policy_is_read_from_toml(tmp_path: Path) -> None:
    policy = load(tmp_path, 'allow = ["scores", "done"]\nmax_bytes = 500_000')
    assert (policy.allow, policy.max_bytes) == (frozenset({"scores", "done"}), 500_000)


def test_a_kind_that_is_not_allowed_is_refused(tmp_path: Path) -> None:
    policy = load(tmp_path, 'allow = ["scores", "done"]')
    policy.check(Scores({"n": 1}).pack("fp32"))
    policy.check(Done().pack("fp32"))
    with pytest.raises(RefusalError, match="does not let 'parameters' leave"):
        policy.check(Parameters({}).pack("fp32"))


def test_an_empty_list_lets_nothing_leave_and_no_list_everything(tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match="'done'"):
        load(tmp_path, "allow = []").check(Done().pack("fp32"))
    load(tmp_path, "").check(Parameters({"w": torch.ones(5)}).pack("fp32"))


def test_a_payload_over_the_limit_is_refused_to_the_byte(tmp_path: Path) -> None:
    packed = Parameters({"w": torch.ones(50)}).pack("fp32")
    load(tmp_path, f"max_bytes = {packed.nbytes}").check(packed)
    with pytest.raises(RefusalError, match=f"lets {packed.nbytes - 1} bytes leave at once, not {packed.nbytes}"):
        load(tmp_path, f"max_bytes = {packed.nbytes - 1}").check(packed)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('alow = ["done"]', "unknown key 'alow'; did you mean 'allow'"),
        ('allow = ["parametres"]', "unknown payload kind 'parametres'; did you mean 'parameters'"),
        ("max_bytes = -1", "max_bytes: .*greater than 0"),
        ('max_bytes = "much"', "max_bytes: .*integer"),
        ("allow = [", "can't be read"),
    ],
)
def test_a_mistake_is_explained(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, text)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml' can't be read"):
        Policy.load(tmp_path / "nowhere.toml")
