"""Secure sums between five real processes on loopback, some of which are killed: one before it masked, one after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from grandrounds.federation.audit import compare
from tests.cli.commands import run, start
from tests.conftest import corpus, write_corpus
from tests.hosts import Hosts
from tests.real.figures import note

pytestmark = pytest.mark.real
NAMES = ("charity", "general", "mercy", "trinity", "university")
KILLED = """
import os
from grandrounds.federation.secure.site import SecureSite
SecureSite.{method} = lambda *given, **named: os.kill(os.getpid(), 9)
"""
BEFORE, AFTER = "masked", "_agree"
"""Where a site is killed: when it should mask, and once it has masked and should sign who stayed."""
MAY_LEAVE = ["agreement", "done", "key_shares", "mask_keys", "opened_shares", "scores"]


class Five(Hosts):
    sites = NAMES

    def __init__(self, folder: Path, encoder: Path) -> None:
        rounds = {"rounds": 1, "secure": True, "evaluate_on": ["test"], "deadline": 900, "absence": 20}
        super().__init__(folder, encoder, federation=rounds)
        for i, site in enumerate(NAMES):
            write_corpus(folder / f"{site}.jsonl", corpus(16 + 8 * i, site))
        self.content["sites"] = {site: {"train": f"{site}.jsonl"} for site in NAMES}
        self.config.write_text(tomli_w.dumps(self.content))

    def join_and_die(self, site: str, method: str) -> None:
        data = ("--data", self.folder / f"{site}.jsonl", "--format", "json", "--accept")
        self.running[site] = start("site", "join", self.enrolment(site), *data, prelude=KILLED.format(method=method))

    def run_with(self, killed: Mapping[str, str]) -> dict[str, Any]:
        """The round's line in metrics.jsonl."""
        for site in NAMES:
            if site in killed:
                self.join_and_die(site, killed[site])
            else:
                self.join(site)
        self.coordinate("--json").wait(1800).good()
        (line,) = (self.root / "run" / "metrics.jsonl").read_text().splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    def without_masks_of(self, sites: list[str]) -> bytes:
        """The model of the same round in one process, where these sites take part until they should mask."""
        policy = self.folder / "no-masked.toml"
        policy.write_text(tomli_w.dumps({"allow": MAY_LEAVE}))
        for site in sites:
            self.content["sites"][site]["policy"] = str(policy)
        config = self.folder / "reference.toml"
        config.write_text(tomli_w.dumps(self.content))
        run("run", config, "--out", self.folder / "reference").good()
        return (self.folder / "reference" / "model" / "model.safetensors").read_bytes()


@pytest.fixture
def five(tmp_path: Path, encoder_folder: Callable[[str], Path]) -> Iterator[Five]:
    hosts = Five(tmp_path, encoder_folder("bert"))
    hosts.found()
    yield hosts
    hosts.close()


@pytest.mark.parametrize(("before", "after"), [("general", "mercy"), ("university", "charity")])
def test_one_site_killed_before_and_one_after_it_masked(five: Five, before: str, after: str) -> None:
    line = five.run_with({before: BEFORE, after: AFTER})
    assert not line["abandoned"]
    assert line["replies"] == 4
    assert line["lost"].keys() == {before, after}
    assert five.models() == {"model": five.without_masks_of([before])}
    for site in set(NAMES) - {before, after}:
        compare(five.root / "run" / "audit.jsonl", five.enrolment(site) / "private" / "audit.jsonl", site)
    note(f"secure sum, {before} killed before and {after} after masking", replies=4, same_bits=True)


def test_with_fewer_than_the_threshold_nothing_is_opened(five: Five) -> None:
    line = five.run_with({"charity": BEFORE, "general": BEFORE, "mercy": AFTER})
    assert line["abandoned"]
    log = [json.loads(text) for text in (five.root / "run" / "audit.jsonl").read_text().splitlines()]
    kinds = [one["kind"] for one in log if one.get("direction") == "up"]
    assert kinds.count("masked") == 3
    assert kinds.count("agreement") == 2
    assert "opened_shares" not in kinds
    note("secure sum, three of five killed", abandoned=True)
