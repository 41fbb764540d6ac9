"""What a site of a federation between hosts spends on privacy, and would spend."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import quote

from grandrounds.deployment.enrolment import Enrolment
from grandrounds.deployment.heads import SignedHead, check_log, read_heads, write_heads
from grandrounds.deployment.keys import read_private
from grandrounds.federation.audit import Audit
from grandrounds.federation.files import write_whole
from grandrounds.federation.policy import Policy
from grandrounds.federation.privacy.accounting import Draw, epsilon
from grandrounds.federation.privacy.ledger import SpendingLedger, draws_of
from grandrounds.federation.privacy.runner import PrivacyRunner
from grandrounds.federation.privacy.settings import Plan
from grandrounds.federation.privacy.site import from_the_system, noise_of
from grandrounds.federation.runner import SiteData

HEAD, REPLIES, REGISTERED = "privacy.head", "replies", "registered.json"


def ledger_path(enrolment: Enrolment) -> Path:
    """The site's ledger: its own file, or one that federations with the same data share."""
    return enrolment.folder / (enrolment.site.privacy_ledger or Path("private") / "privacy.jsonl")


def open_privacy(enrolment: Enrolment) -> PrivacyRunner | None:
    """By the terms; GrandRoundsError where the ledger is not the one whose head this site signed."""
    if (plan := enrolment.terms.config.privacy_plan) is None:
        return None
    key, path, noted = read_private(enrolment.key), ledger_path(enrolment), enrolment.state / HEAD
    if path.exists():
        Audit(path).close()  # puts a torn line aside
    for head in read_heads(noted).values():
        check_log(path, head, key.public_key())

    def sign(head: str) -> None:
        write_heads(noted, {enrolment.site.name: SignedHead.of(head, key)})

    ledger = SpendingLedger(path, plan.unit, changed=sign)
    kept = enrolment.terms.config.federation.checkpoint_every + 1  # a coordinator goes back to its last checkpoint
    return PrivacyRunner(plan, lambda site: ledger, from_the_system, enrolment.state / REPLIES, kept)


def registered(enrolment: Enrolment, site_data: SiteData) -> SiteData:
    """With the counts that this site tells the coordinator: drawn once for these terms, and kept."""
    terms, path = enrolment.terms, enrolment.state / REGISTERED
    if (privacy := open_privacy(enrolment)) is None or not privacy.plan.settings.noisy_registration:
        return site_data
    us = site_data.registration
    told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if terms.digest not in told:
        counts = privacy.registered(us.site, terms.digest, us.counts, site_data.policy)
        told = {**told, terms.digest: counts}
        write_whole(path, json.dumps(told).encode())
    return replace(site_data, registration=replace(us, counts=told[terms.digest]))


@contextmanager
def played(plan: Plan | None) -> Iterator[PrivacyRunner | None]:
    """For a dry run: noise is drawn and counted, and nothing of the site's own ledger changes."""
    if plan is None:
        yield None
        return
    unit = plan.unit
    with tempfile.TemporaryDirectory() as folder:  # a ledger for each: in a secure sum, others are played, too
        ledger = cache(lambda site: SpendingLedger(Path(folder) / f"{quote(site, safe='')}.jsonl", unit))
        yield PrivacyRunner(plan, ledger, from_the_system)


def outlook(enrolment: Enrolment, privacy: PrivacyRunner, policy: Policy) -> list[str]:
    """What the terms would spend, from one round that was played, as sentences."""
    plan, settings = privacy.plan, privacy.plan.settings
    drawn = draws_of(privacy.ledger(enrolment.site.name).lines())
    if not drawn:
        return [f"Privacy by {plan.unit}: in a round of this algorithm the site would spend nothing."]
    whole = [draw._replace(steps=draw.steps * plan.rounds) for draw in drawn]
    if settings.noisy_registration:
        whole.append(Draw(noise_of(plan, 1.0, plan.counts, counts=True), 1.0, 1))
    before = SpendingLedger(ledger_path(enrolment), plan.unit).epsilon(settings.delta)
    after = SpendingLedger(ledger_path(enrolment), plan.unit).epsilon(settings.delta, *whole)
    first, steps = drawn[0], sum(draw.steps for draw in drawn)
    limit = settings.epsilon if policy.epsilon is None else policy.epsilon
    whose = "the federation's" if policy.epsilon is None else "this site's policy's"
    said = [
        f"Privacy by {plan.unit}: a round would draw noise of {first.noise:g} in {steps} steps, each with "
        f"{first.rate:.4g} of the {plan.unit}s; {plan.rounds} rounds would spend epsilon "
        f"{epsilon(whole, settings.delta):.3g} at delta {settings.delta:g}.",
        f"The ledger has epsilon {before:.3g} so far, and would have {after:.3g}; {whose} limit is {limit:g}.",
    ]
    return [*said, "The site would refuse to go on before the last round."] if after > limit else said
