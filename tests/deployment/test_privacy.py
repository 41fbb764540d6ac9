"""Privacy between hosts: a site's own ledger, signed heads, stored replies, and what a dry run tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")
pytest.importorskip("cryptography", reason="needs grandrounds[flower]")

from grandrounds.deployment.dry_run import dry_run
from grandrounds.deployment.enrolment import Enrolment, read_enrolment
from grandrounds.deployment.site import Holding, make_runner, read_holding
from grandrounds.deployment.spending import ledger_path, open_privacy, outlook, played, registered
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Parameters
from grandrounds.federation.policy import Policy
from grandrounds.federation.privacy.ledger import spent_lines
from tests.hosts import Hosts


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path]) -> Hosts:
    settings = {"privacy__unit": "patient", "privacy__epsilon": 4.0, "training__batch_size": 4}
    return Hosts(tmp_path_factory.mktemp("private"), encoder_folder("bert"), **settings).found_here()


@pytest.fixture
def site(founded: Hosts) -> tuple[Enrolment, Holding]:
    enrolment = read_enrolment(founded.enrolment("mercy"))
    for path in enrolment.state.glob("privacy*"):
        path.unlink()
    return enrolment, read_holding(enrolment, [founded.folder / "mercy.jsonl"], "json")


def ask(enrolment: Enrolment, holding: Holding, round: int = 1) -> Ask:
    terms: Any = enrolment.terms
    algorithm = terms.config.make_algorithm()
    sent = Parameters.of(holding.site_data.spec.initial_model()).pack("fp32")
    where: dict[str, Any] = {"site": "mercy", "round": round, "exchange": 1, "commit": f"{round:05d}.1"}
    return Ask(
        **where,
        algorithm=algorithm.name,
        options=asdict(algorithm),
        method="train",
        message=(sent,),
        config=terms.digest,
        start=None,
        needed=(),
    )


def same(one: Answer, other: Answer) -> bool:
    pairs = zip(one.payloads, other.payloads, strict=True)
    return all(torch.equal(a.tensors[name], b.tensors[name]) for a, b in pairs for name in a.tensors)


def test_a_repeated_ask_has_the_stored_reply_and_a_fresh_draw_is_paid_for(site: tuple[Enrolment, Holding]) -> None:
    enrolment, holding = site
    first = make_runner(enrolment, holding, print).answer(ask(enrolment, holding))
    assert first.lost is None
    again = make_runner(enrolment, holding, print).answer(ask(enrolment, holding))  # another process, after a restart
    assert same(first, again)
    assert (again.version, again.work) == (first.version, first.work)
    assert len(spent_lines(ledger_path(enrolment))) == 1
    for note in (enrolment.state / "replies").rglob("note.json"):
        note.unlink()  # killed before the reply was whole on the disk
    fresh = make_runner(enrolment, holding, print).answer(ask(enrolment, holding))
    assert not same(first, fresh)  # the system's randomness is never drawn twice
    assert len(spent_lines(ledger_path(enrolment))) == 2
    refused = make_runner(enrolment, holding, print).answer(
        ask(enrolment, holding, round=2)
    )  # both rounds are paid for
    assert "privacy budget is spent" in (refused.lost or "")


def test_a_ledger_that_was_cut_is_found_by_the_head_that_its_site_signed(site: tuple[Enrolment, Holding]) -> None:
    enrolment, holding = site
    make_runner(enrolment, holding, print).answer(ask(enrolment, holding, round=2))
    path = ledger_path(enrolment)
    with path.open("ab") as file:
        file.write(b'{"torn": ')  # a crash in the middle of a line is no harm
    open_privacy(enrolment)
    path.write_text("")
    with pytest.raises(GrandRoundsError, match="a later line was once recorded"):
        open_privacy(enrolment)


def test_federations_with_the_same_data_can_share_a_ledger(site: tuple[Enrolment, Holding], founded: Hosts) -> None:
    enrolment, _ = site
    named = enrolment.site.model_copy(update={"privacy_ledger": "../shared.jsonl"})
    assert ledger_path(Enrolment(enrolment.folder, named)) == enrolment.folder / "../shared.jsonl"
    assert ledger_path(enrolment) == enrolment.folder / "private" / "privacy.jsonl"


def test_a_dry_run_tells_what_the_terms_would_spend_and_spends_nothing(site: tuple[Enrolment, Holding]) -> None:
    enrolment, holding = site
    with played(enrolment.terms.config.privacy_plan) as privacy:
        assert privacy is not None
        dry_run(enrolment, holding, privacy)
        allowed = outlook(enrolment, privacy, Policy())
        refused = outlook(enrolment, privacy, Policy(epsilon=2.0))
    assert "Privacy by patient: a round would draw noise of" in allowed[0]
    assert "2 rounds would spend epsilon 3.9" in allowed[0] or "2 rounds would spend epsilon 4 " in allowed[0]
    assert "The ledger has epsilon 0 so far" in allowed[1]
    assert "refuse to go on" in refused[-1]
    assert not ledger_path(enrolment).exists()


@pytest.mark.parametrize("unit", ["patient", "site"])
def test_a_dry_run_of_a_secure_sum_counts_this_site_alone(
    unit: str, tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    """Others are played at home, too, and what they would spend is not ours."""
    settings = {"privacy__unit": unit, "privacy__epsilon": 4.0, "federation__secure": True}
    hosts = Hosts(tmp_path, encoder_folder("bert"), **settings).found_here()
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    with played(enrolment.terms.config.privacy_plan) as privacy:
        assert privacy is not None
        uploads = dry_run(enrolment, read_holding(enrolment, [tmp_path / "mercy.jsonl"], "json"), privacy)
        said = outlook(enrolment, privacy, Policy())
    assert "masked" in {upload.kind for upload in uploads}
    assert len(said) == 2
    assert "2 rounds would spend epsilon 3.9" in said[0] or "2 rounds would spend epsilon 4 " in said[0]


def test_a_site_draws_what_it_registers_once_and_pays_for_it(
    tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    settings = {"privacy__unit": "patient", "privacy__epsilon": 4.0, "privacy__noisy_registration": True}
    hosts = Hosts(tmp_path, encoder_folder("bert"), **settings).found_here()
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    held = read_holding(enrolment, [tmp_path / "mercy.jsonl"], "json").site_data
    told = registered(enrolment, held).registration.counts
    assert registered(enrolment, held).registration.counts == told  # after a restart
    assert len(set(told.values())) == 1
    (line,) = spent_lines(ledger_path(enrolment))
    assert (line["round"], line["steps"]) == (0, 1)
    with played(enrolment.terms.config.privacy_plan) as privacy:
        assert privacy is not None
        dry_run(enrolment, read_holding(enrolment, [tmp_path / "mercy.jsonl"], "json"), privacy)
        said = outlook(enrolment, privacy, Policy())
    assert "2 rounds would spend epsilon 3" in said[0]
    assert len(said) == 2
