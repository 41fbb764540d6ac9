"""Faults of a machine during a federation between hosts: no finished round is lost, the model has the bits of an
undisturbed run, and whoever sits at the screen reads one clear sentence."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.commands import Running, start
from tests.faults import Clocked, fill, pause, read_only, sentences, small_disk
from tests.hosts import SITES, Hosts, until
from tests.real.figures import note

pytestmark = pytest.mark.real
Found = Callable[..., Hosts]
ROUNDS = 5
PATIENT = {"federation__rounds": ROUNDS, "federation__absence": 600, "federation__deadline": 1200}
FEDED = {"algorithm__name": "feded", "algorithm__download": "predictions"}
FULL = "the disk is full: "
GO_ON = "go on (a run with --resume, a site by joining again)"
SMALL_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"


def rounds(hosts: Hosts) -> list[dict[str, Any]]:
    path = hosts.root / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def begin(hosts: Hosts, finished: int = 2) -> Running:
    """All are here, and some rounds are finished."""
    for site in SITES:
        hosts.join(site)
    coordinator = hosts.coordinate("--json")
    until(lambda: len(rounds(hosts)) >= finished, 1800)
    return coordinator


def undisturbed(hosts: Hosts, outcome: Any) -> None:
    """Every round once, with all sites, and the bits of one process."""
    assert outcome.json()["rounds"] == ROUNDS
    assert [(line["round"], line["lost"]) for line in rounds(hosts)] == [(n, {}) for n in range(1, ROUNDS + 1)]
    assert hosts.models() == hosts.reference_models()


def clock_said(said: str, where: str) -> bool:
    """By an hour, but for the seconds that a busy machine takes to say so."""
    return re.search(rf"this machine's clock is (359\d|360\d) s {where}", said) is not None


def resumed(hosts: Hosts, before: int) -> Any:
    assert len(rounds(hosts)) >= before, "a finished round was lost"
    return hosts.finish(hosts.coordinate("--resume", "--json"))


def test_a_full_disk_ends_the_coordinator_with_a_sentence(found: Found) -> None:
    hosts = found(**PATIENT, **FEDED)
    with small_disk(hosts.root / "run") as ballast:
        coordinator = begin(hosts)
        fill(ballast)
        said = coordinator.wait(1800).complaint()
        before = len(rounds(hosts))
        ballast.unlink()
        undisturbed(hosts, resumed(hosts, before))
    note("full disk of the coordinator", said=said, finished_before=before, rounds=ROUNDS)
    assert said.startswith(FULL)
    assert said.endswith(GO_ON)


def test_a_full_disk_ends_a_site_with_a_sentence_and_the_others_wait_for_it(found: Found) -> None:
    hosts = found(**PATIENT, **FEDED)
    with small_disk(hosts.enrolment("mercy") / "private") as ballast:
        coordinator = begin(hosts)
        fill(ballast)
        said = hosts.running["mercy"].wait(1800).complaint()
        before = len(rounds(hosts))
        ballast.unlink()
        hosts.join("mercy")
        undisturbed(hosts, hosts.finish(coordinator))
    note("full disk of a site", said=said, finished_before=before, rounds=ROUNDS)
    assert said.startswith(FULL)
    assert said.endswith(GO_ON)


@pytest.mark.parametrize("who", ["coordinator", "mercy"])
def test_a_file_that_may_grow_no_further_ends_its_process_with_a_sentence(found: Found, who: str) -> None:
    """A quota on the size of files, which needs no root."""
    hosts = found(**PATIENT, **FEDED)
    limit = SMALL_FILES.format(2500)  # an audit log's first lines
    for site in SITES:
        if site != who:
            hosts.join(site)
    data = ("--data", hosts.folder / "mercy.jsonl", "--format", "json", "--test", hosts.test_data("mercy"), "--accept")
    if who == "coordinator":
        said = start("coordinator", hosts.root, prelude=limit).wait(1800).complaint()
        resume = ["--resume"] if (hosts.root / "run" / "config.toml").exists() else []
        undisturbed(hosts, hosts.finish(hosts.coordinate(*resume, "--json")))
    else:
        coordinator = hosts.coordinate("--json")
        said = start("site", "join", hosts.enrolment(who), *data, prelude=limit).wait(1800).complaint()
        hosts.join(who)
        undisturbed(hosts, hosts.finish(coordinator))
    note(f"largest file, {who}", said=said)
    assert "could not be written: File too large" in said


def test_a_disk_that_turns_read_only_ends_the_coordinator_with_a_sentence(found: Found) -> None:
    hosts = found(**PATIENT, **FEDED)
    coordinator = begin(hosts)
    with read_only(hosts.root / "run"):
        said = coordinator.wait(1800).complaint()
        before = len(rounds(hosts))
        again = hosts.coordinate("--resume").wait(1800).complaint()
    undisturbed(hosts, resumed(hosts, before))
    note("read-only disk of the coordinator", said=said, at_its_start=again, finished_before=before, rounds=ROUNDS)
    assert "Read-only file system" in said
    assert "Read-only file system" in again


def test_a_disk_that_turns_read_only_ends_a_site_with_a_sentence(found: Found) -> None:
    hosts = found(**PATIENT, **FEDED)
    coordinator = begin(hosts)
    with read_only(hosts.enrolment("mercy") / "private"):
        said = hosts.running["mercy"].wait(1800).complaint()
        again = hosts.join("mercy").wait(1800).complaint()
        before = len(rounds(hosts))
    hosts.join("mercy")
    undisturbed(hosts, hosts.finish(coordinator))
    note("read-only disk of a site", said=said, at_its_start=again, finished_before=before, rounds=ROUNDS)
    assert "Read-only file system" in said
    assert "Read-only file system" in again


def test_a_site_that_is_suspended_for_a_minute_goes_on(found: Found) -> None:
    hosts = found(**PATIENT, **FEDED)
    coordinator = begin(hosts)
    before = len(rounds(hosts))
    pause(hosts.running["mercy"].pid, 60)
    began = time.monotonic()
    until(lambda: len(rounds(hosts)) > before + 1, 900)
    back = time.monotonic() - began
    undisturbed(hosts, hosts.finish(coordinator))
    said = sentences(hosts.running["mercy"].said(), ["trying again", "lost"])
    note("site suspended for 60 s", seconds_to_next_whole_round=round(back, 1), rounds=ROUNDS, said=said)


@pytest.mark.parametrize("seconds", [3600, -3600], ids=["forwards", "backwards"])
def test_a_site_whose_clock_jumps_says_so_and_goes_on_when_it_is_set(found: Found, seconds: int) -> None:
    hosts = found(**PATIENT, **FEDED)
    for site in SITES[:2]:
        hosts.join(site)
    data = ("--data", hosts.folder / "mercy.jsonl", "--format", "json", "--test", hosts.test_data("mercy"), "--accept")
    site = Clocked(hosts.folder, "mercy", "site", "join", hosts.enrolment("mercy"), *data)
    hosts.running["mercy"] = site  # type: ignore[assignment]
    coordinator = hosts.coordinate("--json")
    until(lambda: len(rounds(hosts)) >= 2, 1800)
    site.jump(seconds)
    until(lambda: "this machine's clock is " in site.said(), 900)
    site.jump(0)
    undisturbed(hosts, hosts.finish(coordinator))
    said = sentences(site.said(), ["this machine's clock"])
    note(f"clock of a site, {seconds:+d} s", said=said[0], sentences=len(said))
    assert clock_said(said[0], "ahead" if seconds > 0 else "behind")


@pytest.mark.parametrize("seconds", [3600, -3600], ids=["forwards", "backwards"])
def test_a_coordinator_whose_clock_jumps_goes_on_at_once_or_says_so_and_resumes(found: Found, seconds: int) -> None:
    """SuperLink goes by the clock: it may hold its own run for dead, or messages for as old as the jump was long."""
    hosts = found(**PATIENT, **FEDED)
    for site in SITES:
        hosts.join(site)
    coordinator = Clocked(hosts.folder, "coordinator", "coordinator", hosts.root, "--json")
    hosts.running["coordinator"] = coordinator  # type: ignore[assignment]
    until(lambda: len(rounds(hosts)) >= 2, 1800)
    coordinator.jump(seconds)
    heard = "this machine's clock is "
    until(lambda: coordinator.ended(0) or all(heard in hosts.running[site].said() for site in SITES), 900)
    coordinator.jump(0)
    outcome, before = coordinator.wait(900), len(rounds(hosts))
    if outcome.code:
        said = outcome.complaint()
        assert said.startswith(f"this machine's clock jumped by {seconds:+d} s")
        outcome = resumed(hosts, before)
    else:
        said = sentences(hosts.running["mercy"].said(), ["this machine's clock"])[0]
        assert clock_said(said, "behind" if seconds > 0 else "ahead")
        for site in SITES:
            hosts.running[site].wait(120)
    undisturbed(hosts, outcome)
    note(f"clock of the coordinator, {seconds:+d} s", said=said, finished_before=before, rounds=ROUNDS)
