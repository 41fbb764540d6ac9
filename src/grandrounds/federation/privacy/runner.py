"""Differential privacy in a runner of sites: which budget an ask is paid from, and replies that were paid for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.files import write_synced, write_whole
from grandrounds.federation.payloads import Packed
from grandrounds.federation.policy import Policy
from grandrounds.federation.privacy.ledger import Limit, SpendingLedger
from grandrounds.federation.privacy.settings import Plan
from grandrounds.federation.privacy.site import Randomness, SitePrivacy

OF_TRAINING = ("examples", "notes", "patients")


class PrivacyRunner:
    def __init__(
        self,
        plan: Plan,
        ledger: Callable[[str], SpendingLedger],
        randomness: Randomness,
        replies: Path | None = None,
        kept_rounds: int = 2,
    ) -> None:
        """`ledger` opens a site's. `replies` is where those of the last rounds are kept, so that the same ask has the
        same noise; None where it comes from the seed anyway."""
        self.plan, self.ledger, self._randomness, self._replies, self._kept_rounds = (
            plan,
            ledger,
            randomness,
            replies,
            kept_rounds,
        )

    def at(self, ask: Ask, registered: Mapping[str, int], policy: Policy) -> SitePrivacy:
        named: dict[str, str | int] = {"run": ask.config[:16], **ask.where, "ask": ask_digest(ask)}
        return self._at(named, registered, policy)

    def registered(self, site: str, config: str, counts: Mapping[str, int], policy: Policy) -> dict[str, int]:
        """What a site says that it has, before the first ask: the counts of its training data with noise, if the config
        wants that, and those of other parts as they are."""
        if not self.plan.settings.noisy_registration:
            return dict(counts)
        asked: dict[str, str | int] = {
            "run": config[:16],
            "round": 0,
            "exchange": 0,
            "site": site,
            "ask": "registration",
        }
        noisy = self._at(asked, counts, policy).registered()
        return {what: noisy if what in OF_TRAINING else count for what, count in counts.items()}

    def _at(self, named: Mapping[str, str | int], registered: Mapping[str, int], policy: Policy) -> SitePrivacy:
        settings = self.plan.settings
        limits = [Limit(settings.epsilon, settings.delta, "the federation")]
        if policy.epsilon is not None:  # of all federations together
            whole = Limit(policy.epsilon, policy.delta or settings.delta, "this site's policy")
            limits = [limits[0]._replace(run=str(named["run"])), whole]
        return SitePrivacy(self.plan, registered, self.ledger(str(named["site"])), limits, named, self._randomness)

    def reply(self, ask: Ask) -> Answer | None:
        """What this ask was answered, if it was."""
        if self._replies is None or not (folder := self._folder(ask)).exists():
            return None
        try:
            note = json.loads((folder / "note.json").read_text(encoding="utf-8"))
            parts = [(folder / f"{place}.safetensors").read_bytes() for place in range(note.pop("payloads"))]
        except (OSError, ValueError, KeyError):  # cut short by a crash: it never left
            return None
        return Answer.of(ask.site, tuple(map(Packed.from_bytes, parts)), note)

    def keep(self, ask: Ask, answer: Answer) -> None:
        """Before it leaves."""
        if self._replies is None:
            return
        folder = self._folder(ask)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for place, part in enumerate(answer.payloads):
            write_synced(folder / f"{place}.safetensors", part.to_bytes())
        note = {**answer.note(), "payloads": len(answer.payloads)}
        write_whole(folder / "note.json", json.dumps(note).encode())
        for old in self._replies.glob("[0-9]*"):
            if int(old.name.partition("-")[0]) <= ask.round - self._kept_rounds:
                shutil.rmtree(old, ignore_errors=True)

    def _folder(self, ask: Ask) -> Path:
        assert self._replies is not None
        return self._replies / f"{ask.round:05d}-{ask.exchange}-{ask_digest(ask)}"


def ask_digest(ask: Ask) -> str:
    """The same for the same ask, whenever it comes."""
    parts = [part.digest if isinstance(part, Packed) else part for part in ask.message]
    said = [ask.config, ask.method, parts, ask.start, ask.commit, ask.public, ask.round, ask.exchange, ask.site]
    return sha256(json.dumps(said).encode()).hexdigest()[:32]
