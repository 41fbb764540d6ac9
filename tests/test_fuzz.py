"""What `make fuzz` does for an hour, for a moment: every target's seeds and some changes of them, unguided."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from grandrounds.registry import FORMATS
from tests.fuzz.__main__ import table
from tests.fuzz.readers import READERS
from tests.fuzz.seen import Crash, Seen
from tests.fuzz.targets import GROUPS, make, names
from tests.fuzz.totals import add

TARGETS = [(group, name) for group in GROUPS for name in names(group)]
assert len(TARGETS) > 20


def test_every_format_is_fuzzed() -> None:
    assert {reader.format for reader in READERS.values()} == set(FORMATS)


@pytest.mark.parametrize(("group", "name"), TARGETS)
def test_what_a_target_is_given_is_read_or_refused(group: str, name: str) -> None:
    target, draw = make(group, name), random.Random(name)
    seeds = target.seeds()
    assert seeds
    for seed in seeds:
        target.run(seed)
    for _ in range(50):
        changed = draw.choice(seeds)
        for _ in range(draw.randint(1, 4)):
            changed = target.mutate(changed, draw)
        target.run(changed)


@pytest.mark.parametrize("name", READERS)
def test_the_seeds_of_a_reader_are_good_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that is refused at its first line would lead nowhere."""
    from tests.fuzz import readers

    found = []
    real = readers.read
    monkeypatch.setattr(readers, "read", lambda *given, **named: found.append(real(*given, **named)))
    reader = READERS[name]
    for seed in reader.seeds():
        reader.run(seed)
    assert len(found) == 2 * len(reader.seeds())


def test_the_table_sums_up_a_group_and_names_what_crashed() -> None:
    seen = [
        Seen("readers", "brat", 60.0, 1000, 0, 0.02, 9),
        Seen("readers", "ade", 60.0, 2000, 1, 1.5, 9, [Crash("slow", "slow: 1.5 s", "crash-1")]),
    ]
    assert Seen.loads(seen[1].dumps()) == seen[1]
    *_, total, crash = table(seen).splitlines()
    assert total.split() == ["readers", "120", "3,000", "1", "1500.0", "ms"]
    assert crash == "readers/ade: slow: 1.5 s (crash-1)"


def test_runs_add_up_and_a_crash_that_was_mended_is_no_longer_open(tmp_path: Path) -> None:
    results = tmp_path / "fuzz.json"
    add(results, [Seen("readers", "ade", 60.0, 2000, 3, 1.5, 9, [Crash("slow", "slow: 1.5 s", "crash-1")])])
    add(results, [Seen("readers", "brat", 30.0, 10, 0, 0.01, 70), Seen("readers", "ade", 40.0, 500, 0, 0.2, 70)])
    held = json.loads(results.read_text())
    assert [one["target"] for one in held["targets"]] == ["brat", "ade"]
    ade = {"cpu_seconds": 100.0, "executions": 2500, "slowest": 1.5, "slowest_bytes": 9, "found": ["slow"], "open": []}
    assert held["targets"][1] == {"group": "readers", "target": "ade", **ade}
    (readers,) = held["groups"]
    assert (readers["targets"], readers["cpu_seconds"], readers["executions"]) == (2, 130, 2510)
    assert (readers["crashes_found"], readers["crashes_open"], readers["slowest"]) == (1, 0, 1.5)
    assert held["commits"] == [held["commit"]]
    assert held["command"]
    assert held["versions"]
