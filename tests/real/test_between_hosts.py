"""At length what tests/test_between_hosts.py shows in brief: every algorithm, 100 kills of each side, 25 strangers of
each kind. GRANDROUNDS_KILLS=20 for fewer; those of several runs add up in GRANDROUNDS_FIGURES. Times are printed
(pytest -s)."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grandrounds.deployment.keys import issue_certificate
from grandrounds.federation.audit import compare, verify
from grandrounds.registry import ALGORITHMS
from grandrounds.runs.provenance import commit
from tests.cli.commands import start
from tests.conftest import task_for
from tests.hosts import REFUSALS, SITES, Hosts, stranger, until
from tests.real.figures import note, noted

pytestmark = pytest.mark.real
KILLS, TRIES = int(os.environ.get("GRANDROUNDS_KILLS", 100)), 25
PATIENT = {"federation__absence": 600, "federation__deadline": 1200}
"""A busy machine costs no site its place in a round."""
assert ALGORITHMS, "nothing is registered, so nothing would be tested"
BETWEEN = sorted(name for name, kind in ALGORITHMS.items() if not kind.pooled)


def metrics(hosts: Hosts) -> list[dict[str, Any]]:
    path = hosts.root / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(what: str, seconds: list[float]) -> str:
    return f"{what}: median {statistics.median(seconds):.1f} s, at most {max(seconds):.1f} s, of {len(seconds)}"


@pytest.mark.parametrize("name", BETWEEN)
def test_every_algorithm_over_loopback(found: Callable[..., Hosts], name: str) -> None:
    hosts = found(algorithm__name=name, **task_for(name))
    hosts.run().good()
    assert hosts.models() == hosts.reference_models()
    for site in SITES:
        compare(hosts.root / "run" / "audit.jsonl", hosts.enrolment(site) / "private" / "audit.jsonl", site)


def finished(hosts: Hosts) -> int:
    """The last round that a checkpoint holds: what comes after it is run again."""
    return max((int(path.name[-5:]) for path in (hosts.root / "run" / "checkpoints").glob("round-?????")), default=0)


def disturbed(hosts: Hosts, result: Any, rounds: int) -> None:
    """All rounds once, with all sites, and the bits of a run that nobody disturbed."""
    assert result["rounds"] == rounds
    assert [line["round"] for line in metrics(hosts)] == list(range(1, rounds + 1))
    assert not any(line["lost"] for line in metrics(hosts))
    assert hosts.models() == hosts.reference_models()
    verify(hosts.root / "run" / "audit.jsonl", result["audit_head"])


def test_kills_of_the_coordinator_at_random_moments_change_no_bit(found: Callable[..., Hosts]) -> None:
    name, rounds = "SIGKILL of the coordinator", 3 * KILLS  # more than finish between kills on a fast machine
    hosts = found(federation__rounds=rounds, algorithm__name="feded", algorithm__download="predictions", **PATIENT)
    before, back, last = noted(name), list[float](), 0
    rng = random.Random(f"{name} after {before.get('kills', 0)}")
    for site in SITES:
        hosts.join(site)
    for kill in range(KILLS):
        began = time.monotonic()
        coordinator = hosts.coordinate(*(["--resume"] if (hosts.root / "run" / "config.toml").exists() else []))
        # At any moment: while it starts, while sites rejoin, within a round.
        if kill % 4:
            until(lambda last=last, coordinator=coordinator: coordinator.ended(0) or finished(hosts) > last, 900)
            assert not coordinator.ended(0), coordinator.said()
            back.append(time.monotonic() - began)
            time.sleep(rng.random())
        else:
            time.sleep(3 + 6 * rng.random())
        coordinator.kill()
        assert finished(hosts) >= last, "a finished round was lost"
        last = finished(hosts)
    result = hosts.finish(hosts.coordinate("--resume", "--json")).json()
    print(summary("coordinator: from its start to the next finished round", back))
    disturbed(hosts, result, rounds)
    _add(name, before, rounds, back)


def test_kills_of_a_site_at_random_moments_change_no_bit(found: Callable[..., Hosts]) -> None:
    name, rounds = "SIGKILL of a site", 3 * KILLS
    hosts = found(federation__rounds=rounds, algorithm__name="feded", algorithm__download="predictions", **PATIENT)
    before, back = noted(name), list[float]()
    rng = random.Random(f"{name} after {before.get('kills', 0)}")
    for site in SITES:
        hosts.join(site)
    coordinator = hosts.coordinate("--json")
    until(lambda: len(metrics(hosts)) >= 1, 900)
    for _ in range(KILLS):
        victim = rng.choice(SITES)
        time.sleep(rng.random())
        hosts.running[victim].kill()
        now, began = len(metrics(hosts)), time.monotonic()
        hosts.join(victim)
        until(lambda now=now: coordinator.ended(0) or len(metrics(hosts)) > now + 1, 900)
        back.append(time.monotonic() - began)
        assert not coordinator.ended(0), "more rounds are needed for so many kills"
    result = hosts.finish(coordinator).json()
    print(summary("site: from its restart to the end of the next whole round", back))
    disturbed(hosts, result, rounds)
    _add(name, before, rounds, back)


def _add(name: str, before: dict[str, Any], rounds: int, back: list[float]) -> None:
    earlier = before.get("batches", [])
    note(
        name,
        kills=before.get("kills", 0) + KILLS,
        rounds=before.get("rounds", 0) + rounds,
        finished_rounds_lost=0,
        seconds=[*before.get("seconds", []), *(round(one, 1) for one in back)],
        batches=[*earlier, {"kills": KILLS, "rounds": rounds, "commit": commit()}],
    )


def test_a_site_that_stays_away_is_named_and_rejoins_with_its_state(found: Callable[..., Hosts]) -> None:
    settings = {"algorithm__name": "feded", "algorithm__download": "predictions", "federation__absence": 3}
    hosts = found(federation__rounds=30, **settings)
    for site in SITES:
        hosts.join(site)
    coordinator = hosts.coordinate("--json")
    until(lambda: len(metrics(hosts)) >= 2, 120)
    hosts.running["mercy"].kill()
    began = time.monotonic()
    until(lambda: any(line["lost"] for line in metrics(hosts)), 120)
    print(f"site: its loss is noticed and named after {time.monotonic() - began:.1f} s (absence 3 s)")
    hosts.join("mercy")
    result = hosts.finish(coordinator).json()
    lost = [line["round"] for line in metrics(hosts) if line["lost"]]
    assert result["rounds"] == 30
    assert lost
    assert lost[-1] < 30, "it never came back"
    assert all(list(line["lost"]) == ["mercy"] for line in metrics(hosts) if line["lost"])


def knock(hosts: Hosts, folder: Path, how: str) -> str:
    """One stranger's try; what it was told."""
    process = stranger(hosts, folder, how)
    until(lambda: "trying again" in process.said(), 60)
    said = process.said()
    process.kill()
    assert "joined" not in said
    return next(line for line in said.splitlines() if "trying again" in line)[11:]


@pytest.mark.parametrize("how", [*REFUSALS, "expired certificate"])
def test_twenty_five_strangers_of_each_kind(found: Callable[..., Hosts], how: str) -> None:
    hosts = found()
    prelude = ""
    if how == "expired certificate":
        issue_certificate(hosts.root, ["127.0.0.1"], days=-1)
        prelude = (
            "from grandrounds.deployment import consortium\n"
            "consortium.Consortium.check_certificate = lambda self: None\n"
            "from grandrounds.deployment.flower import superlink\n"
            "superlink.SuperLink.open_run = lambda self, keys: __import__('time').sleep(600)\n"
        )
    coordinator = start("coordinator", hosts.root, prelude=prelude)
    hosts.running["coordinator"] = coordinator
    log = hosts.root / "superlink.log"
    until(lambda: log.exists() and "Uvicorn running" in log.read_text(), 60)
    time.sleep(1)
    reported = {knock(hosts, hosts.folder / f"stranger{number}", how) for number in range(TRIES)}
    print(how, "->", *sorted(reported))
    wanted = REFUSALS.get(how, "its certificate has expired (certificate has expired)")
    assert all(wanted in sentence for sentence in reported)
    assert "Activated node" not in log.read_text()
    assert not coordinator.ended(0)


def test_two_processes_with_one_key_are_named(found: Callable[..., Hosts]) -> None:
    """The enrolment was copied to a second machine, where no lock is seen."""
    hosts = found(federation__rounds=2000)  # it is not to end meanwhile
    for site in SITES:
        hosts.join(site)
    coordinator = hosts.coordinate()
    until(lambda: len(metrics(hosts)) >= 1, 900)
    copied = hosts.folder / "elsewhere" / "mercy"
    shutil.copytree(hosts.enrolment("mercy"), copied)
    data = ("--data", hosts.folder / "mercy.jsonl", "--format", "json", "--test", hosts.test_data("mercy"), "--accept")
    twin = start("site", "join", copied, *data)
    sentence = "another process serves with this site's key"
    until(lambda: sentence in twin.said() + hosts.running["mercy"].said(), 300)
    twin.kill()
    assert not coordinator.ended(0)
