"""A coordinator that lies, and sites that send what is wrong: nothing of a single site is learnt, and nothing wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec

from grandrounds import Tensors
from grandrounds.deployment.keys import CURVE, public_text, sign
from grandrounds.federation.coordinator import AbandonedError
from grandrounds.federation.exchange import Answer
from grandrounds.federation.payloads import Expected, Packed, Parameters, Payload, unpack
from grandrounds.federation.secure.store import OnDisk
from grandrounds.federation.secure_payloads import Agreement, KeyShares, Masked, MaskKeys, OpenedShares, Stayed
from tests.deployment.hospitals import NAMES, SETTINGS, SIZE, Hospitals, began, exact, is_random

pytestmark = pytest.mark.usefixtures("send_numbers")
ALL = frozenset(NAMES)
WITHOUT = ALL - {"mercy"}
"""The coordinator wants mercy's numbers."""


@pytest.fixture
def summed(tmp_path: Path) -> Hospitals:
    """After an honest sum of all five."""
    hospitals = Hospitals(tmp_path)
    hospitals.mean()
    return hospitals


@pytest.fixture
def masked(tmp_path: Path) -> Hospitals:
    """All five have sent masked numbers, and none has heard who stayed."""
    hospitals = Hospitals(tmp_path)
    hospitals.stop_before("agree")
    return hospitals


def refused(answer: Answer, why: str) -> None:
    assert not answer.payloads
    assert why in str(answer.lost)


def signatures(hospitals: Hospitals, told: dict[str, frozenset[str]]) -> dict[str, bytes]:
    """Of sites that were told that these stayed; some may refuse."""
    found: dict[str, bytes] = {}
    for site, stayed in told.items():
        for part in hospitals.tell(site, "agree", Stayed(stayed)).payloads:
            found |= read(part, Agreement).signatures
    return found


def read(part: Packed, kind: type[Any]) -> Any:
    return unpack(part, Expected(), kind)


def opened(hospitals: Hospitals, sites: Iterable[str], signed: dict[str, bytes]) -> dict[str, OpenedShares]:
    answers = {site: hospitals.tell(site, "unmask", Agreement(signed)) for site in sites}
    return {site: read(answer.payloads[0], OpenedShares) for site, answer in answers.items() if answer.payloads}


def test_who_dropped_can_not_be_told_in_two_ways(masked: Hospitals) -> None:
    """All stayed, they hear; then, that mercy dropped: her masking key would open her upload."""
    signed = signatures(masked, dict.fromkeys(NAMES, ALL))
    for name in WITHOUT:
        refused(masked.tell(name, "agree", Stayed(WITHOUT)), "a sum of other sites was agreed on already")
    shares = opened(masked, NAMES, signed)
    assert shares.keys() == ALL
    assert all(one.own.keys() == ALL and not one.pair for one in shares.values())
    for name in WITHOUT:
        masked.restart(name)
        refused(masked.tell(name, "agree", Stayed(WITHOUT)), "this attempt is over")


def test_nothing_is_opened_on_the_coordinator_s_word_alone(masked: Hospitals) -> None:
    refused(masked.tell("mercy", "unmask", Agreement({})), "nothing was agreed on in this attempt")
    signed = signatures(masked, dict.fromkeys(NAMES, ALL))
    few = {name: signed[name] for name in ("charity", "mercy")}
    forged = dict.fromkeys(NAMES, few["charity"])
    for wrong in ({}, few, forged, {**few, "nobody": few["mercy"]}):
        refused(masked.tell("mercy", "unmask", Agreement(wrong)), "sites is not opened, of 3 it is")
    assert opened(masked, ["mercy"], signed).keys() == {"mercy"}


@pytest.mark.parametrize("told", range(6))
def test_a_lie_to_some_sites_opens_one_sum_at_most(masked: Hospitals, told: int) -> None:
    """Some hear that mercy dropped, the others that she stayed."""
    heard = {name: WITHOUT if place < told else ALL for place, name in enumerate((*sorted(WITHOUT), "mercy"))}
    shares = opened(masked, NAMES, signatures(masked, heard))
    dropped = {name for name, stayed in heard.items() if stayed == WITHOUT and name != "mercy"}
    agreed = dropped if len(dropped) >= 3 else ALL - dropped if told < 3 else set()
    assert shares.keys() == agreed - ({"mercy"} if told == 5 else set())
    assert len({frozenset(one.own) for one in shares.values()}) <= 1


def test_no_lies_at_all_open_more_than_one_sum(tmp_path: Path) -> None:
    """Every site hears another story, drawn at random, of three sites or more; all signatures go to all."""
    hospitals, rng, sums = Hospitals(tmp_path), random.Random(1), 0
    for round in range(1, 13):
        hospitals.stop_before("agree", round)
        stories = [frozenset(rng.sample(NAMES, rng.choice([2, 3, 4]))) for _ in range(2)] + [ALL]
        heard = {name: rng.choice([one for one in stories if name in one]) for name in NAMES}
        shares = opened(hospitals, NAMES, signatures(hospitals, heard))
        assert len({(frozenset(one.own), frozenset(one.pair)) for one in shares.values()}) <= 1
        assert all(len(one.own) >= 3 and not one.own.keys() & one.pair.keys() for one in shares.values())
        sums += bool(shares)
    assert 2 < sums < 12


def test_a_second_sum_of_other_sites_is_not_opened_for_the_same_round(summed: Hospitals) -> None:
    """After a pretended crash: a new attempt for the same round, in which mercy is said to have dropped. The difference
    of the two sums would be her numbers."""
    hospitals = summed
    for handler in hospitals.handlers.values():
        handler._ledger.greeted()
    hospitals.drop(("masked", "mercy"))
    with pytest.raises(AbandonedError, match="0 sites answered in the phase 'agree'"):
        hospitals.mean()
    assert "a sum of other sites was agreed on already" in str(hospitals.said[-1][2].lost)


def test_numbers_are_not_masked_with_other_sites_for_the_same_round(summed: Hospitals) -> None:
    """The same, with mercy left out from the beginning."""
    hospitals = summed
    for handler in hospitals.handlers.values():
        handler._ledger.greeted()
    hospitals.drop(("keys", "mercy"))
    with pytest.raises(AbandonedError, match="numbers were masked with other sites already"):
        hospitals.mean()


def test_masks_are_not_used_for_two_answers(masked: Hospitals) -> None:
    """The difference of two uploads under one mask would be that of the numbers."""
    ask = masked.asked("masked", "mercy")
    other = replace(ask, message=(ask.message[0], Tensors({"x": torch.ones(SIZE)}).pack("fp32")))
    for _ in range(2):
        refused(masked.ask(other), "this round and exchange were answered already")
        refused(masked.handlers["mercy"]._runner.answer(other), "an answer was masked already in this attempt")
        masked.restart("mercy")


def test_a_replayed_attempt_has_other_keys(summed: Hospitals) -> None:
    """What was sealed, masked and signed for the first attempt of a name is of no use for the second."""
    before = {phase: summed.asked(phase, "mercy") for phase in ("keys", "shares", "masked", "agree", "unmask")}
    refused(summed.ask(before["keys"]), "this attempt is over")
    summed.stop_before("agree", round=2)
    first = next(answer for phase, ask, answer in summed.said if phase == "keys" and ask.site == "mercy")
    again = summed.handlers["mercy"]._runner.answer(before["keys"])  # the name is free again, and the site forgot it
    keys = [read(answer.payloads[0], MaskKeys).sites["mercy"] for answer in (first, again)]
    assert keys[0].masking != keys[1].masking
    assert keys[0].commitment != keys[1].commitment
    for phase in ("shares", "masked", "agree", "unmask"):
        assert not summed.handlers["mercy"]._runner.answer(before[phase]).payloads


def test_an_attempt_of_one_place_is_none_of_another(masked: Hospitals) -> None:
    ask = masked.asked("keys", "mercy")
    for other in (replace(ask, round=2), replace(ask, exchange=2)):
        refused(masked.handlers["mercy"]._runner.answer(other), "no keys for this attempt")


def test_altered_shares_are_found_out(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.stop_before("masked")
    boxes: dict[str, dict[str, bytes]] = {name: {} for name in NAMES}
    for phase, ask, answer in hospitals.said:
        if phase == "shares":
            for peer, box in read(answer.payloads[0], KeyShares).boxes.items():
                boxes[peer][ask.site] = box
    mine = boxes["mercy"]
    numbers = Tensors({"x": torch.zeros(SIZE)})
    altered = {**mine, "general": mine["general"][:-1] + bytes([mine["general"][-1] ^ 1])}
    for wrong in (altered, {**mine, "general": mine["charity"]}, {**mine, "general": boxes["charity"]["general"]}):
        refused(hospitals.tell("mercy", "masked", KeyShares(wrong), numbers), "altered on their way")
    refused(hospitals.tell("mercy", "masked", KeyShares({**mine, "mercy": mine["general"]}), numbers), "no keys")
    refused(hospitals.tell("mercy", "masked", KeyShares({"general": mine["general"]}), numbers), "of 3 it is")
    assert hospitals.tell("mercy", "masked", KeyShares(mine), numbers).payloads


def test_nothing_that_is_averaged_leaves_unmasked(summed: Hospitals) -> None:
    ask = summed.asked("masked", "mercy")
    plain = replace(ask, phase="", attempt="", round=2, message=ask.message[1:])
    refused(summed.ask(plain), "what is averaged leaves this site masked only")


@pytest.mark.parametrize(
    ("stayed", "why"),
    [
        ({"mercy"}, "a sum of 1 sites is not opened, of 3 it is"),
        ({"mercy", "general"}, "a sum of 2 sites is not opened, of 3 it is"),
        ({"charity", "general", "trinity"}, "this one among them"),
        ({"mercy", "general", "nobody"}, "sites that shared their keys"),
    ],
)
def test_a_sum_of_few_or_of_others_is_not_agreed_on(masked: Hospitals, stayed: set[str], why: str) -> None:
    refused(masked.tell("mercy", "agree", Stayed(frozenset(stayed))), why)


def swapped(hospitals: Hospitals, change: Callable[[MaskKeys], MaskKeys]) -> Answer:
    """What mercy says to a roster that the coordinator altered."""
    hospitals.stop_before("shares", round=3)
    keys: dict[str, Any] = {}
    for phase, _, answer in hospitals.said:
        if phase == "keys":
            keys |= read(answer.payloads[0], MaskKeys).sites
    return hospitals.tell("mercy", "shares", change(MaskKeys(keys)))


def with_site(keys: MaskKeys, site: str, **changed: Any) -> MaskKeys:
    before = keys.sites[site] if site in keys.sites else keys.sites["general"]
    return MaskKeys({**keys.sites, site: before._replace(**changed)})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda keys: keys, ""),
        (lambda keys: with_site(keys, "general", masking=bytes(31) + b"\t"), "are not signed by it"),
        (lambda keys: with_site(keys, "general", sharing=bytes(31) + b"\t"), "are not signed by it"),
        (lambda keys: with_site(keys, "general", commitment=bytes(32)), "are not signed by it"),
        (lambda keys: with_site(keys, "general", weight=1), "are not signed by it"),
        (lambda keys: with_site(keys, "mercy", weight=10**9), "our own are not there, or others"),
        (lambda keys: with_site(keys, "mercy", masking=bytes(31) + b"\t"), "our own are not there, or others"),
        (lambda keys: with_site(keys, "the coordinator"), "is not the one in peers.json"),
        (lambda keys: with_site(keys, "general", key="no key"), "is none"),
        (lambda keys: MaskKeys({"mercy": keys.sites["mercy"]}), "a sum of 1 sites is not opened"),
    ],
)
def test_a_coordinator_can_not_swap_keys_weights_or_sites(
    tmp_path: Path, change: Callable[[MaskKeys], MaskKeys], why: str
) -> None:
    answer = swapped(Hospitals(tmp_path), change)
    assert bool(answer.payloads) == (not why)
    assert why in (answer.lost or "")


def test_keys_of_another_attempt_are_not_taken(tmp_path: Path) -> None:
    """They are signed, but for another place."""
    hospitals = Hospitals(tmp_path)
    hospitals.mean(1)
    old = [
        read(a.payloads[0], MaskKeys).sites
        for phase, ask, a in hospitals.said
        if (phase, ask.site) == ("keys", "general")
    ]
    answer = swapped(hospitals, lambda keys: MaskKeys({**keys.sites, **old[0]}))
    assert "are not signed by it" in str(answer.lost)


def test_another_site_s_key_is_not_taken_even_if_it_signs(tmp_path: Path) -> None:
    """The coordinator makes a key of its own and says that it is general's."""
    hospitals, own = Hospitals(tmp_path), ec.generate_private_key(CURVE())
    answer = swapped(
        hospitals,
        lambda keys: with_site(keys, "general", key=public_text(own.public_key()), signature=sign(b"", own)),
    )
    assert "the key of site 'general' is not the one in peers.json" in str(answer.lost)


@pytest.mark.parametrize("field", ["masking", "sharing"])
def test_a_key_that_makes_secrets_known_to_all_is_one_site_s_loss(tmp_path: Path, field: str) -> None:
    """Zero, which a hostile site may well sign."""
    hospitals = Hospitals(tmp_path)

    def zero(packed: Packed) -> MaskKeys:
        return with_site(read(packed, MaskKeys), "mercy", **{field: bytes(32)})

    hospitals.alter("keys", ["mercy"], zero)
    found, cohort = hospitals.mean()
    stayed = [name for name in NAMES if name != "mercy"]
    assert torch.equal(found, exact(SETTINGS, began(hospitals, "mercy"), stayed, 1))
    assert "none that a secret can be agreed on with" in cohort.traffic.lost["mercy"]


def third(packed: Packed) -> OpenedShares:
    shares = read(packed, OpenedShares)
    return OpenedShares({site: share // 3 for site, share in shares.own.items()}, shares.pair)


def test_wrong_shares_are_passed_over_while_others_suffice(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.alter("unmask", ["charity", "mercy"], third)
    assert torch.equal(hospitals.mean()[0], exact(SETTINGS, began(hospitals), NAMES, 1))


def test_where_no_right_shares_suffice_nothing_wrong_is_learnt(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.alter("unmask", ["charity", "general", "mercy"], third)
    with pytest.raises(AbandonedError, match="do not fit together"):
        hospitals.mean()


def test_a_site_that_signs_what_is_wrong_counts_as_one_that_did_not_agree(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.alter("agree", ["charity", "mercy"], lambda packed: replace_signature(packed, b"wrong"))
    assert torch.equal(hospitals.mean()[0], exact(SETTINGS, began(hospitals), NAMES, 1))


def replace_signature(packed: Packed, signature: bytes) -> Agreement:
    return Agreement(dict.fromkeys(read(packed, Agreement).signatures, signature))


def test_masked_words_that_are_no_sum_are_not_learnt(tmp_path: Path) -> None:
    """A site that masks wrongly spoils the round, and the round does not count."""
    hospitals, rng = Hospitals(tmp_path), np.random.default_rng(1)
    words = torch.from_numpy(rng.integers(-(2**31), 2**31, SIZE + 1, np.int32))
    hospitals.alter("masked", ["mercy"], lambda packed: Masked(words, "tensors"))
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
def test_a_malformed_upload_is_one_site_s_loss(tmp_path: Path, payload: Payload, why: str) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.alter("masked", ["mercy"], lambda packed: payload)
    found, cohort = hospitals.mean()
    stayed = [name for name in NAMES if name != "mercy"]
    assert torch.equal(found, exact(SETTINGS, began(hospitals), stayed, 1))
    assert why in cohort.traffic.lost["mercy"]


def test_the_test_of_randomness_fails_where_masks_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grandrounds.federation.secure import masks

    monkeypatch.setattr(masks, "add_mask", lambda *given, **named: None)
    hospitals = Hospitals(tmp_path)
    hospitals.stop_before("agree")
    sent = [answer.payloads[0] for phase, _, answer in hospitals.said if phase == "masked"]
    assert len(sent) == 5
    assert not any(map(is_random, sent))


def test_the_test_of_randomness_fails_where_masks_are_used_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grandrounds.federation.secure import masks

    monkeypatch.setattr(masks, "self_seed", lambda *given: bytes(32))
    monkeypatch.setattr(masks, "pair_seed", lambda *given: bytes(32))
    hospitals = Hospitals(tmp_path)
    for round in (1, 2):
        hospitals.stop_before("agree", round)
    of_mercy = [
        a.payloads[0].tensors["words"] for phase, ask, a in hospitals.said if (phase, ask.site) == ("masked", "mercy")
    ]
    assert not is_random(Packed("masked", {}, {"words": of_mercy[0] - of_mercy[1]}))


def test_a_store_that_was_edited_is_named(masked: Hospitals) -> None:
    (masked.folder / "mercy" / "secure" / "mercy" / "attempt.json").write_text("{")
    from grandrounds.errors import GrandRoundsError

    with pytest.raises(GrandRoundsError, match="was edited or torn"):
        OnDisk(masked.folder / "mercy" / "secure").read("mercy")
