"""Secure sums over Flower's Grid, with each site's own keys and disk: who drops out, and who lies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message

from grandrounds import Algorithm, Cohort, Server, Site, Tensors, algorithm, mean, on_site
from grandrounds.deployment.handler import MessageHandler
from grandrounds.deployment.keys import CURVE, public_text
from grandrounds.deployment.ledger import SiteLedger
from grandrounds.deployment.peers import Peers, PeerSigner
from grandrounds.deployment.protocol import AskMethod, PeerKeys, Request, Response, decode, encode
from grandrounds.federation.audit import Audit, compare
from grandrounds.federation.contract import Registration
from grandrounds.federation.coordinator import AbandonedError, Federation, Ledger, RoundCohort
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Expected, Packed, Parameters, unpack
from grandrounds.federation.policy import Policy
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.runner import SiteData, SiteRunner
from grandrounds.federation.secure.fixed_point import FixedPoint
from grandrounds.federation.secure.settings import SecureSettings
from grandrounds.federation.secure.site import SecureSite, from_the_system
from grandrounds.federation.secure.store import OnDisk
from grandrounds.federation.secure_payloads import KeyShares, Masked, MaskKeys, OpenedShares, Stayed
from grandrounds.registry import ALGORITHMS
from tests.deployment.grids import MemoryGrid, apps, over, reported

NAMES = ("charity", "general", "mercy", "trinity", "university")
SIZE = 400
SETTINGS = SecureSettings("examples", 0.5)
REPEATS = int(os.environ.get("GRANDROUNDS_SECURE_RUNS", "3"))
"""100 of them were run once; every one draws other keys and other numbers."""
RAN: list[str] = []
"""Sites whose method ran."""


@algorithm("send_numbers")
class SendNumbers(Algorithm):
    def averages(self) -> bool:
        return True

    def tensors(self, shared: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        return {"x": (SIZE,)}

    def round(self, server: Server, cohort: Cohort) -> None:
        raise NotImplementedError

    @on_site
    def give(self, site: Site, shift: Tensors) -> Tensors:
        """The site's own numbers, by its name and round."""
        RAN.append(site.who)
        return Tensors({"x": numbers(site.who, site.round) + shift.values["x"]})


del ALGORITHMS["send_numbers"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ALGORITHMS["send_numbers"] = SendNumbers
    RAN.clear()
    yield
    del ALGORITHMS["send_numbers"]


def numbers(site: str, round: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1000 * round + NAMES.index(site))
    return torch.randn(SIZE, generator=rng)


class Spec:
    """As much of a site's spec as numbers need."""

    seed, model_key, device, trained = 1, "none", torch.device("cpu"), None

    def initial_model(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 1)

    def __getattr__(self, name: str) -> Any:
        return None


class Hospitals:
    """Five sites, each with its key, its disk and its handler, and a coordinator that talks to them over the Grid."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES, settings: SecureSettings = SETTINGS) -> None:
        self.folder, self.names, self.settings = folder, names, settings
        self.registrations = {
            name: Registration(name, {"examples": 100 + 37 * NAMES.index(name)}, (), {}) for name in names
        }
        self.keys = {name: ec.generate_private_key(CURVE()) for name in names}
        self.expected = Expected(tensors={"x": (SIZE,)})
        self.policies = {name: Policy() for name in names}
        self.handlers = {name: self.handler(name) for name in names}
        shown = {name: public_text(key.public_key()) for name, key in self.keys.items()}
        for handler in self.handlers.values():
            assert reported(handler, PeerKeys(keys=shown)).what == "done"
        self.trouble: Callable[[str, Message], list[Message]] = lambda site, reply: [reply]
        self.grid = MemoryGrid(apps(self.handlers), lambda site, reply: self.trouble(site, reply))
        self.transport = over(self.grid, folder, deadline=0.3, absence=0.1)
        self.audit = Audit(folder / "audit.jsonl")
        self.said: list[tuple[str, Ask, Answer]] = []
        self.ends_before = "never"
        """The phase for which nobody is asked any more."""

    def handler(self, name: str) -> MessageHandler:
        """Also that of a process that was killed and started again."""
        state = self.folder / name
        state.mkdir(exist_ok=True)
        peers = Peers(state / "peers.json", name, self.keys[name].public_key(), lambda sentence: None)
        secure = SecureSite(
            self.settings, OnDisk(state / "secure"), from_the_system, PeerSigner(self.keys[name], peers)
        )
        spec: Any = Spec()
        runner = SiteRunner(
            SendNumbers(),  # type: ignore[call-arg]
            {name: SiteData(self.registrations[name], {}, spec, self.policies[name])},
            self.expected,
            PrivateStore(state / "states", 0),
            "fp32",
            "terms",
            None,
            PublicSetCache(state / "public"),
            secure=secure,
        )
        log = state / "audit.jsonl"
        ledger = SiteLedger(log, 200, SendNumbers())  # type: ignore[call-arg]
        return MessageHandler(runner, self.registrations[name], {}, Audit(log), self.keys[name], state, ledger)

    def restart(self, name: str) -> None:
        self.handlers[name] = self.handler(name)
        self.grid.apps = apps(self.handlers)

    def cohort(self, round: int = 1) -> RoundCohort:
        federation = Federation(
            SendNumbers(),  # type: ignore[call-arg]
            self,
            Ledger(),
            self.expected,
            self.audit,
            "terms",
            "examples",
            secure=self.settings,
        )
        return federation.cohort(list(self.registrations.values()), round)

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        if asks[0].phase == self.ends_before:
            yield from (Answer(ask.site, lost="lost") for ask in asks)
            return
        by_site = {ask.site: ask for ask in asks}
        for answer in self.transport.exchange(asks):
            self.said.append((by_site[answer.site].phase, by_site[answer.site], answer))
            yield answer

    def flush(self) -> None: ...
    def close(self) -> None: ...

    def mean(self, round: int = 1, shift: float = 0.0) -> tuple[torch.Tensor, RoundCohort]:
        cohort = self.cohort(round)
        message = Tensors({"x": torch.full((SIZE,), shift)})
        return mean(cohort.ask(SendNumbers().give, message)).values["x"], cohort  # type: ignore[call-arg]

    def asked(self, phase: str, site: str) -> Ask:
        """The last ask of that phase."""
        return [ask for said, ask, _ in self.said if (said, ask.site) == (phase, site)][-1]

    def ask(self, ask: Ask) -> Answer:
        """What the site's own process says to an ask, whoever made it."""
        payloads: list[bytes] = []

        def put(packed: Packed) -> int:
            payloads.append(packed.to_bytes())
            return len(payloads) - 1

        data, sent = self.handlers[ask.site](encode(Request(id="7", message=AskMethod.of(ask, put))), payloads)
        message: Any = decode(Response, data).message
        return message.answer(ask.site, sent)

    def drop(self, *when: tuple[str, str]) -> None:
        """These sites' answers in these phases, and all later ones, never arrive."""
        order = ("keys", "shares", "masked", "unmask")
        phases = {site: order[order.index(phase) :] for phase, site in when}

        def lost(site: str, reply: Message) -> list[Message]:
            return [] if self.phase(site) in phases.get(site, ()) else [reply]

        self.trouble = lost

    def phase(self, site: str) -> str:
        """By the site's own log: which phase it answered last."""
        lines = (self.folder / site / "audit.jsonl").read_text().splitlines()
        asked = [json.loads(line) for line in lines if '"asked"' in line]
        return str(json.loads(asked[-1]["place"])[-1]) if asked else ""


def exact(settings: SecureSettings, began: Mapping[str, int], stayed: Sequence[str], round: int) -> torch.Tensor:
    """The mean in whole numbers, derived without masks: integers of Python."""
    weights = settings.weights(began)
    bits = FixedPoint(len(began)).bits
    total = [0] * SIZE
    for name in stayed:
        values = numbers(name, round).double().numpy() * 2.0**bits * weights[name] / 1024
        total = [a + int(b) for a, b in zip(total, np.rint(values).tolist(), strict=True)]
    whole = sum(weights[name] for name in stayed)
    return torch.tensor([value * 1024 / 2**bits / whole for value in total], dtype=torch.float64).float()


def began(hospitals: Hospitals, *without: str) -> dict[str, int]:
    return {name: r.counts["examples"] for name, r in hospitals.registrations.items() if name not in without}


CASES = {
    "nobody": ((), (), ()),
    "before keys": ((("keys", "mercy"),), ("mercy",), ("mercy",)),
    "before shares": ((("shares", "mercy"),), (), ("mercy",)),
    "after shares, before masked numbers": ((("masked", "mercy"),), (), ("mercy",)),
    "after masked numbers": ((("unmask", "mercy"),), (), ()),
    "one before and one after masking": ((("masked", "general"), ("unmask", "mercy")), (), ("general",)),
    "one at every time": ((("keys", "charity"), ("masked", "general")), ("charity",), ("charity", "general")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sum_is_exactly_that_of_those_who_stayed(tmp_path: Path, case: str) -> None:
    dropped, without, lost = CASES[case]
    hospitals = Hospitals(tmp_path)
    for round in range(1, REPEATS + 1):
        hospitals.drop(*dropped)
        found, cohort = hospitals.mean(round)
        stayed = [name for name in NAMES if name not in lost]
        assert torch.equal(found, exact(SETTINGS, began(hospitals, *without), stayed, round))
        floats = sum(numbers(name, round) * cohort._weights[name] for name in stayed)
        assert (found - floats / sum(cohort._weights[name] for name in stayed)).abs().max() < 2e-3
        assert cohort.traffic.replies == len(stayed)
        assert cohort.traffic.lost.keys() == {site for _, site in dropped}


BELOW = {
    "keys": [("keys", name) for name in NAMES[:4]],
    "shares": [("shares", name) for name in NAMES[:3]],
    "masked": [("masked", name) for name in NAMES[:3]],
    "unmask": [("unmask", name) for name in NAMES[:3]],
    "at several times": [("shares", NAMES[0]), ("masked", NAMES[1]), ("unmask", NAMES[2])],
}


@pytest.mark.parametrize("case", BELOW)
def test_below_the_threshold_the_round_is_abandoned_and_nothing_is_learnt(tmp_path: Path, case: str) -> None:
    hospitals = Hospitals(tmp_path)
    for round in range(1, REPEATS + 1):
        hospitals.said.clear()
        hospitals.drop(*BELOW[case])
        with pytest.raises(AbandonedError, match="sites answered in the phase"):
            hospitals.mean(round)
        opened = [answer for phase, _, answer in hospitals.said if phase == "unmask" and answer.payloads]
        assert len(opened) < SETTINGS.threshold(5)
        for _, _, answer in hospitals.said:
            for packed in answer.payloads:
                if packed.kind == "masked":
                    assert is_random(packed)


def is_random(packed: Packed) -> bool:
    """Words as of a mask: half of them beyond what a value of any site could be."""
    words = packed.tensors["words"].numpy()[:-1].astype(np.int64)
    return bool(0.3 < (np.abs(words) > 2**30).mean() < 0.7)


def test_every_upload_is_random_and_fresh(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.mean(1)
    hospitals.mean(2)
    masked = [answer.payloads[0] for phase, _, answer in hospitals.said if phase == "masked"]
    assert len(masked) == 10
    assert all(map(is_random, masked))
    keys = [unpack(answer.payloads[0], Expected(), MaskKeys) for phase, _, answer in hospitals.said if phase == "keys"]
    assert len({one.masking for advertised in keys for one in advertised.sites.values()}) == 10  # type: ignore[attr-defined]


def test_the_logs_of_both_sides_agree(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.mean()
    for name in NAMES:
        assert compare(tmp_path / "audit.jsonl", tmp_path / name / "audit.jsonl", name).agreed == 8


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
    hospitals.drop(("unmask", "mercy"))
    hospitals.mean()
    first = {phase: answer for phase, ask, answer in hospitals.said if ask.site == "charity"}
    assert RAN.count("charity") == 1
    hospitals.restart("charity")
    again = hospitals.ask(hospitals.asked("unmask", "charity"))
    assert [part.digest for part in again.payloads] == [part.digest for part in first["unmask"].payloads]
    hospitals.ends_before = "unmask"
    with pytest.raises(AbandonedError):
        hospitals.mean(2)
    answers = {phase: answer for phase, ask, answer in hospitals.said if ask.site == "charity"}
    hospitals.restart("charity")
    for phase in ("keys", "shares", "masked"):
        again = hospitals.ask(hospitals.asked(phase, "charity"))
        sent = [list(answer.payloads) for answer in (again, answers[phase])]
        if phase == "keys":  # an ECDSA signature is another one each time, of the same keys
            sent = [[replace(p, header={**p.header, "signature": {}}) for p in some] for some in sent]
        assert [part.digest for part in sent[0]] == [part.digest for part in sent[1]]
    assert RAN.count("charity") == 2  # once a round


@pytest.fixture
def summed(tmp_path: Path) -> Hospitals:
    """After an honest sum of all five. From here on the coordinator wants mercy's numbers."""
    hospitals = Hospitals(tmp_path)
    hospitals.mean()
    return hospitals


def refused(hospitals: Hospitals, ask: Ask, *why: str) -> None:
    """By the site's ledger, by its secure sums alone, and by those of a process that was started again."""
    answers = [hospitals.ask(ask), hospitals.handlers[ask.site]._runner.answer(ask)]
    hospitals.restart(ask.site)
    answers += [hospitals.ask(ask), hospitals.handlers[ask.site]._runner.answer(ask)]
    for answer, sentence in zip(answers, (*why, *why), strict=True):
        assert not answer.payloads
        assert sentence in str(answer.lost)


def test_who_dropped_can_not_be_told_in_two_ways(summed: Hospitals) -> None:
    """After the sum of all, mercy is said to have dropped: her masking key would open her upload."""
    without = (Stayed(frozenset(NAMES) - {"mercy"}).pack("fp32"),)
    for name in NAMES:
        ask = replace(summed.asked("unmask", name), message=without)
        refused(summed, ask, "this round and exchange were answered already", "in this attempt, for other sites")


def test_a_lie_to_half_of_the_sites_opens_neither_secret(tmp_path: Path) -> None:
    """Some hear that mercy stayed, some that she dropped: both of her secrets would open her upload, and no number of
    answers gives the threshold's shares of both."""
    hospitals = Hospitals(tmp_path)
    hospitals.ends_before = "unmask"
    for round, told in enumerate(range(5), start=1):  # that she dropped
        with pytest.raises(AbandonedError):
            hospitals.mean(round)
        own, pair = 0, 0
        others = [name for name in NAMES if name != "mercy"]
        for both in ((True, False), (False, True)):  # each is asked for either secret, one after the other
            for place, name in enumerate([*others, "mercy"]):
                dropped = both[place >= told]
                stayed = frozenset(others) if dropped else frozenset(NAMES)
                ask = replace(hospitals.asked("masked", name), phase="unmask", message=(Stayed(stayed).pack("fp32"),))
                for part in hospitals.handlers[name]._runner.answer(ask).payloads:
                    opened = unpack(part, Expected(), OpenedShares)
                    assert isinstance(opened, OpenedShares)
                    own, pair = own + ("mercy" in opened.own), pair + ("mercy" in opened.pair)
        assert (own, pair) == (5 - told, told)
        assert min(own, pair) < SETTINGS.threshold(5)


def test_a_second_sum_of_other_sites_is_not_opened_for_the_same_round(summed: Hospitals) -> None:
    """After a pretended crash: a new attempt for the same round, in which mercy is said to have dropped. The difference
    of the two sums would be her numbers."""
    hospitals = summed
    for handler in hospitals.handlers.values():
        handler._ledger.greeted()  # the coordinator greeted anew
    hospitals.drop(("masked", "mercy"))
    with pytest.raises(AbandonedError, match="0 sites answered in the phase 'unmask'"):
        hospitals.mean()
    assert "a sum of other sites was opened already" in str(hospitals.said[-1][2].lost)
    hospitals.trouble = lambda site, reply: [reply]
    for handler in hospitals.handlers.values():
        handler._ledger.greeted()
    found, _ = hospitals.mean()  # after a real crash: the same sum of the same sites
    assert torch.equal(found, exact(SETTINGS, began(hospitals), NAMES, 1))


def test_masks_are_not_used_for_two_answers(tmp_path: Path) -> None:
    """The difference of two uploads under one mask would be that of the numbers."""
    hospitals = Hospitals(tmp_path)
    hospitals.ends_before = "unmask"
    with pytest.raises(AbandonedError):
        hospitals.mean()
    ask = hospitals.asked("masked", "mercy")
    other = replace(ask, message=(ask.message[0], Tensors({"x": torch.ones(SIZE)}).pack("fp32")))
    refused(hospitals, other, "this round and exchange were answered already", "an answer was masked already")


def test_nothing_that_is_averaged_leaves_unmasked(summed: Hospitals) -> None:
    ask = summed.asked("masked", "mercy")
    plain = replace(ask, phase="", attempt="", round=2, message=ask.message[1:])
    refused(summed, plain, *2 * ["what is averaged leaves this site masked only"])


def test_a_sum_of_few_is_not_opened(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.ends_before = "unmask"
    with pytest.raises(AbandonedError):
        hospitals.mean()
    for stayed, why in (
        ({"mercy"}, "a sum of 1 sites is not opened, of 3 it is"),
        ({"mercy", "general"}, "a sum of 2 sites is not opened, of 3 it is"),
        ({"charity", "general", "trinity"}, "this one among them"),
        ({"mercy", "general", "nobody"}, "sites that shared their keys"),
    ):
        message = (Stayed(frozenset(stayed)).pack("fp32"),)
        ask = replace(hospitals.asked("masked", "mercy"), phase="unmask", message=message)
        assert why in str(hospitals.handlers["mercy"]._runner.answer(ask).lost)


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


def swapped(hospitals: Hospitals, change: Callable[[MaskKeys], MaskKeys]) -> Answer:
    """What mercy says to a roster that the coordinator altered."""
    hospitals.drop(*[("shares", name) for name in NAMES])
    with pytest.raises(AbandonedError):
        hospitals.mean(3)
    keys = {}
    for phase, ask, answer in hospitals.said:
        if phase == "keys":
            found = unpack(answer.payloads[0], Expected(), MaskKeys)
            assert isinstance(found, MaskKeys)
            keys[ask.site] = found.sites[ask.site]
    ask = replace(hospitals.asked("keys", "mercy"), phase="shares", message=(change(MaskKeys(keys)).pack("fp32"),))
    store = OnDisk(hospitals.folder / "mercy" / "secure")
    attempt = store.read("mercy")
    assert attempt is not None
    store.write("mercy", replace(attempt, roster={}, boxes={}, shares={}))  # as before it saw the true one
    return hospitals.handlers["mercy"]._runner.answer(ask)


def with_site(keys: MaskKeys, site: str, **changed: Any) -> MaskKeys:
    return MaskKeys({**keys.sites, site: keys.sites.get(site, keys.sites["general"])._replace(**changed)})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda keys: keys, ""),
        (lambda keys: with_site(keys, "general", masking=bytes(31) + b"\t"), "are not signed by it"),
        (lambda keys: with_site(keys, "general", sharing=bytes(31) + b"\t"), "are not signed by it"),
        (lambda keys: with_site(keys, "general", weight=1), "are not signed by it"),
        (lambda keys: with_site(keys, "mercy", weight=10**9), "our own are not there, or others"),
        (lambda keys: with_site(keys, "mercy", masking=bytes(31) + b"\t"), "our own are not there, or others"),
        (lambda keys: with_site(keys, "the coordinator"), "is not the one in peers.json"),
        (lambda keys: with_site(keys, "general", key="no key"), "is none"),
        (lambda keys: MaskKeys({"mercy": keys.sites["mercy"]}), "1 sites advertised keys"),
    ],
)
def test_a_coordinator_can_not_swap_keys_weights_or_sites(
    tmp_path: Path, change: Callable[[MaskKeys], MaskKeys], why: str
) -> None:
    answer = swapped(Hospitals(tmp_path), change)
    assert bool(answer.payloads) == (not why)
    assert why in (answer.lost or "")


def test_another_site_s_key_is_not_taken_even_if_it_signs(tmp_path: Path) -> None:
    """The coordinator makes a key of its own and says that it is general's."""
    hospitals, own = Hospitals(tmp_path), ec.generate_private_key(CURVE())
    from grandrounds.deployment.keys import sign

    answer = swapped(
        hospitals,
        lambda keys: with_site(keys, "general", key=public_text(own.public_key()), signature=sign(b"", own)),
    )
    assert "the key of site 'general' is not the one in peers.json" in str(answer.lost)


def test_a_site_that_sends_a_wrong_share_is_passed_over_while_others_suffice(tmp_path: Path) -> None:
    """And where they do not, nothing wrong is learnt."""
    hospitals = Hospitals(tmp_path)
    exchange = hospitals.transport.exchange

    def altered(wrong: Sequence[str]) -> Callable[[Sequence[Ask]], Iterator[Answer]]:
        def run(asks: Sequence[Ask]) -> Iterator[Answer]:
            for answer in exchange(asks):
                for part in answer.payloads:
                    if part.kind == "opened_shares" and answer.site in wrong:
                        opened = unpack(part, Expected(), OpenedShares)
                        assert isinstance(opened, OpenedShares)
                        bad = OpenedShares({site: share // 3 for site, share in opened.own.items()}, opened.pair)
                        answer = replace(answer, payloads=(bad.pack("fp32"),))
                yield answer

        return run

    hospitals.transport.exchange = altered(["charity", "mercy"])  # type: ignore[method-assign]
    assert torch.equal(hospitals.mean(1)[0], exact(SETTINGS, began(hospitals), NAMES, 1))
    hospitals.transport.exchange = altered(["charity", "general", "mercy"])  # type: ignore[method-assign]
    with pytest.raises(AbandonedError, match="do not fit together"):
        hospitals.mean(2)


def test_masked_words_that_are_no_sum_are_not_learnt(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    exchange = hospitals.transport.exchange

    def altered(asks: Sequence[Ask]) -> Iterator[Answer]:
        for answer in exchange(asks):
            for part in answer.payloads:
                if part.kind == "masked" and answer.site == "mercy":
                    words = torch.from_numpy(np.random.default_rng(1).integers(-(2**31), 2**31, SIZE + 1, np.int32))
                    answer = replace(answer, payloads=(Masked(words, "tensors").pack("fp32"),))
            yield answer

    hospitals.transport.exchange = altered  # type: ignore[method-assign]
    with pytest.raises(AbandonedError, match="no sum of the sites"):
        hospitals.mean()


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (Masked(torch.zeros(SIZE, dtype=torch.int32), "tensors"), "400 masked words of 'tensors' came"),
        (Masked(torch.zeros(SIZE + 1, dtype=torch.int32), "parameters"), "masked words of 'parameters' came"),
        (Parameters({}), "where 'masked' was declared"),
        (KeyShares({}), "where 'masked' was declared"),
    ],
)
def test_a_malformed_upload_is_one_site_s_loss(tmp_path: Path, payload: Any, why: str) -> None:
    hospitals = Hospitals(tmp_path)
    exchange = hospitals.transport.exchange

    def altered(asks: Sequence[Ask]) -> Iterator[Answer]:
        for answer in exchange(asks):
            if answer.site == "mercy" and asks[0].phase == "masked":
                answer = replace(answer, payloads=(payload.pack("fp32"),))
            yield answer

    hospitals.transport.exchange = altered  # type: ignore[method-assign]
    found, cohort = hospitals.mean()
    stayed = [name for name in NAMES if name != "mercy"]
    assert torch.equal(found, exact(SETTINGS, began(hospitals), stayed, 1))
    assert why in cohort.traffic.lost["mercy"]


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
