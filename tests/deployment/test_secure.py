"""Secure sums over Flower's Grid, with each site's own keys and disk: the sum is exactly that of who stayed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from flwr.app import Message

from grandrounds.deployment.acceptance import needed_kinds
from grandrounds.deployment.dry_run import dry_run
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.deployment.keys import read_private
from grandrounds.deployment.peers import Peers
from grandrounds.deployment.site import read_holding
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import compare
from grandrounds.federation.coordinator import AbandonedError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Expected, Packed, unpack
from grandrounds.federation.policy import Policy
from grandrounds.federation.secure_payloads import MaskKeys
from tests.deployment.hospitals import NAMES, PHASES, RAN, SETTINGS, Hospitals, began, exact, is_random, numbers
from tests.hosts import Hosts

pytestmark = pytest.mark.usefixtures("send_numbers")
RUNS = int(os.environ.get("GRANDROUNDS_SECURE_RUNS", "25"))

CASES = {
    "nobody": ((), (), ()),
    "before keys": ((("keys", "mercy"),), ("mercy",), ("mercy",)),
    "before shares": ((("shares", "mercy"),), (), ("mercy",)),
    "after shares, before masked numbers": ((("masked", "mercy"),), (), ("mercy",)),
    "after masked numbers": ((("agree", "mercy"),), (), ()),
    "after it agreed": ((("unmask", "mercy"),), (), ()),
    "one before and one after masking": ((("masked", "general"), ("agree", "mercy")), (), ("general",)),
    "one at every time": ((("keys", "charity"), ("masked", "general")), ("charity",), ("charity", "general")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sum_is_exactly_that_of_those_who_stayed(tmp_path: Path, case: str) -> None:
    dropped, without, lost = CASES[case]
    hospitals = Hospitals(tmp_path)
    hospitals.drop(*dropped)
    found, cohort = hospitals.mean()
    stayed = [name for name in NAMES if name not in lost]
    assert torch.equal(found, exact(SETTINGS, began(hospitals, *without), stayed, 1))
    floats = sum(numbers(name, 1) * cohort._weights[name] for name in stayed)
    assert (found - floats / sum(cohort._weights[name] for name in stayed)).abs().max() < 2e-3
    assert cohort.traffic.replies == len(stayed)
    assert cohort.traffic.lost.keys() == {site for _, site in dropped}


BELOW = {
    "keys": [("keys", name) for name in NAMES[:4]],
    "shares": [("shares", name) for name in NAMES[:3]],
    "masked": [("masked", name) for name in NAMES[:3]],
    "agree": [("agree", name) for name in NAMES[:3]],
    "unmask": [("unmask", name) for name in NAMES[:3]],
    "at several times": [("shares", NAMES[0]), ("masked", NAMES[1]), ("unmask", NAMES[2])],
}


@pytest.mark.parametrize("case", BELOW)
def test_below_the_threshold_the_round_is_abandoned_and_nothing_is_learnt(tmp_path: Path, case: str) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.drop(*BELOW[case])
    with pytest.raises(AbandonedError, match="sites answered in the phase"):
        hospitals.mean()
    assert_nothing_learnt(hospitals)


def assert_nothing_learnt(hospitals: Hospitals) -> None:
    """Too few shares of any secret came, and all else is random."""
    opened = [answer for phase, _, answer in hospitals.said if phase == "unmask" and answer.payloads]
    began = [answer for phase, _, answer in hospitals.said if phase == "keys" and answer.payloads]
    assert len(opened) < SETTINGS.threshold(len(began))
    masked = [part for _, _, answer in hospitals.said for part in answer.payloads if part.kind == "masked"]
    assert all(map(is_random, masked))


class Losing(Hospitals):
    """Answers of some sites are lost from a phase on; some of these sites were not reached either."""

    def lose(self, since: Mapping[str, str], unreached: Sequence[str]) -> None:
        self.since, self.unreached = since, unreached

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        now = PHASES.index(asks[0].phase)
        gone = {site for site, phase in self.since.items() if now >= PHASES.index(phase)}
        reached = [ask for ask in asks if ask.site not in gone or ask.site not in self.unreached]
        yield from (Answer(ask.site, lost="lost") for ask in asks if ask not in reached)
        for answer in super().exchange(reached) if reached else ():
            if answer.site in gone:
                self.said.pop()
                answer = Answer(answer.site, lost="lost")
            yield answer


def test_runs_with_random_dropouts_are_exact_or_abandoned(tmp_path: Path) -> None:
    """Every run draws other keys, other numbers and other dropouts."""
    hospitals, rng, ended = Losing(tmp_path), random.Random(5), {"exact": 0, "abandoned": 0}
    for run in range(1, RUNS + 1):
        since = {name: rng.choice(PHASES) for name in NAMES if rng.random() < 0.35}
        hospitals.lose(since, [name for name in NAMES if rng.random() < 0.5])
        hospitals.said.clear()
        there = [[name for name in NAMES if name not in since or PHASES.index(since[name]) > i] for i in range(5)]
        if len(there[0]) < 2 or any(len(sites) < SETTINGS.threshold(len(there[0])) for sites in there):
            with pytest.raises(AbandonedError):
                hospitals.mean(run)
            assert_nothing_learnt(hospitals)
            ended["abandoned"] += 1
            continue
        found, cohort = hospitals.mean(run)
        weighed = {name: count for name, count in began(hospitals).items() if name in there[0]}
        assert torch.equal(found, exact(SETTINGS, weighed, there[2], run))
        assert cohort.traffic.lost.keys() == since.keys()
        ended["exact"] += 1
    assert sum(ended.values()) == RUNS
    assert min(ended.values()) > RUNS / 10
    print(ended)


def test_every_upload_is_random_and_fresh(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.mean(1)
    hospitals.mean(2)
    masked = [answer.payloads[0] for phase, _, answer in hospitals.said if phase == "masked"]
    assert len(masked) == 10
    assert all(map(is_random, masked))
    for one, other in combinations(masked, 2):  # a mask that is used twice would leave the difference of two uploads
        assert is_random(Packed("masked", {}, {"words": one.tensors["words"] - other.tensors["words"]}))
    keys = [unpack(answer.payloads[0], Expected(), MaskKeys) for phase, _, answer in hospitals.said if phase == "keys"]
    assert len({one.masking for advertised in keys for one in advertised.sites.values()}) == 10  # type: ignore[attr-defined]


def test_the_logs_of_both_sides_agree(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.mean()
    for name in NAMES:
        assert compare(tmp_path / "audit.jsonl", tmp_path / name / "audit.jsonl", name).agreed == 10


def test_a_process_killed_between_phases_goes_on_from_its_disk(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)

    def restarting(site: str, reply: Message) -> list[Message]:
        if site == "mercy":
            hospitals.restart(site)
        return [reply]

    hospitals.trouble = restarting
    found, _ = hospitals.mean()
    assert torch.equal(found, exact(SETTINGS, began(hospitals), NAMES, 1))


def test_the_same_ask_again_has_the_same_bytes_and_is_not_computed_again(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    for round, phases in ((1, PHASES[:3]), (2, ["unmask"])):
        if round == 1:
            hospitals.stop_before("agree")
        else:
            hospitals.mean(2)
        first = {phase: answer for phase, ask, answer in hospitals.said if ask.site == "charity"}
        hospitals.restart("charity")
        for phase in phases:
            again = hospitals.ask(hospitals.asked(phase, "charity"))
            sent = [list(answer.payloads) for answer in (again, first[phase])]
            if phase == "keys":  # an ECDSA signature is another one each time, of the same keys
                sent = [[replace(p, header={**p.header, "signature": {}}) for p in some] for some in sent]
            assert [part.digest for part in sent[0]] == [part.digest for part in sent[1]] != []
        assert RAN.count("charity") == round


@pytest.mark.parametrize("phase", PHASES[1:])
def test_a_coordinator_that_was_killed_asks_again_and_gets_the_same_sum(tmp_path: Path, phase: str) -> None:
    """As often as it likes: it is no other ask, and the attempt has other keys."""
    hospitals = Hospitals(tmp_path)
    for _ in range(3):
        hospitals.stop_before(phase)
        for handler in hospitals.handlers.values():
            handler._ledger.greeted()
    found, _ = hospitals.mean()
    assert torch.equal(found, exact(SETTINGS, began(hospitals), NAMES, 1))


def test_a_policy_may_want_more_sites_in_a_sum(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.policies = dict.fromkeys(NAMES, Policy(least_sites=5))
    for name in NAMES:
        hospitals.restart(name)
    hospitals.drop(("masked", "mercy"))
    with pytest.raises(AbandonedError, match="a sum of 4 sites is not opened, of 5 it is"):
        hospitals.mean()
    hospitals.trouble = lambda site, reply: [reply]
    assert hospitals.mean(2)[1].traffic.replies == 5


def test_a_higher_threshold_stands_more_colluding_sites(tmp_path: Path) -> None:
    settings = replace(SETTINGS, share=0.7)
    assert [settings.threshold(n) for n in (2, 3, 5, 10)] == [2, 3, 4, 8]
    hospitals = Hospitals(tmp_path, settings=settings)
    hospitals.drop(("masked", "general"), ("unmask", "mercy"))
    with pytest.raises(AbandonedError, match="3 sites answered in the phase 'unmask', and 4 are needed"):
        hospitals.mean()
    hospitals.drop(("masked", "general"))
    assert hospitals.mean(2)[1].traffic.replies == 4


def test_secrets_are_for_the_site_s_user_alone_and_gone_once_shares_were_opened(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.mean()
    path = tmp_path / "mercy" / "secure" / "mercy" / "attempt.json"
    assert path.stat().st_mode & 0o077 == 0
    held = json.loads(path.read_text())
    assert (held["secret"], held["masking"], held["sharing"]) == ("", "", "")
    assert not (path.parent / "reply").exists()


LEAVES = ["agreement", "key_shares", "mask_keys", "masked", "opened_shares"]


def test_a_dry_run_and_an_accepted_policy_name_what_leaves_masked(
    tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    hosts = Hosts(tmp_path, encoder_folder("bert"), federation__secure=True).found_here()
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    uploads = dry_run(enrolment, read_holding(enrolment, [tmp_path / "mercy.jsonl"], "json"))
    assert sorted(upload.kind for upload in uploads) == LEAVES
    assert sorted(needed_kinds(enrolment.terms.config.make_algorithm(), secure=True)) == LEAVES
    (tmp_path / "peers.json").write_text("[1, 2")
    with pytest.raises(GrandRoundsError, match="has to be a JSON object"):
        Peers(tmp_path / "peers.json", "mercy", read_private(enrolment.key).public_key(), print).known()
