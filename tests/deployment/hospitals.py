"""Five hospitals that sum in secret over Flower's Grid in memory, each with its own keys and disk."""

from __future__ import annotations

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
from grandrounds.federation.audit import Audit
from grandrounds.federation.contract import Registration
from grandrounds.federation.coordinator import AbandonedError, Federation, Ledger, RoundCohort
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Expected, Packed, Payload
from grandrounds.federation.policy import Policy
from grandrounds.federation.private import PrivateStore
from grandrounds.federation.public_sets import PublicSetCache
from grandrounds.federation.runner import SiteData, SiteRunner
from grandrounds.federation.secure.fixed_point import FixedPoint
from grandrounds.federation.secure.randomness import from_the_system
from grandrounds.federation.secure.settings import SecureSettings
from grandrounds.federation.secure.site import SecureSite
from grandrounds.federation.secure.store import OnDisk
from grandrounds.registry import ALGORITHMS
from tests.deployment.grids import MemoryGrid, apps, over, reported

NAMES = ("charity", "general", "mercy", "trinity", "university")
SIZE = 400
SETTINGS = SecureSettings("examples", 0.5)
PHASES = ("keys", "shares", "masked", "agree", "unmask")
RAN: list[str] = []
"""Sites whose method ran."""


@algorithm("send_numbers")
class SendNumbers(Algorithm):
    def not_averaged(self) -> str:
        return ""

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
        self.phase = ""
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
        self.phase = asks[0].phase
        if self.phase == self.ends_before:
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
        phases = {site: PHASES[PHASES.index(phase) :] for phase, site in when}

        def lost(site: str, reply: Message) -> list[Message]:
            return [] if self.phase in phases.get(site, ()) else [reply]

        self.trouble = lost

    def stop_before(self, phase: str, round: int = 1) -> None:
        """An honest sum that goes no further: from here on the coordinator may ask what it likes."""
        self.ends_before = phase
        with pytest.raises(AbandonedError):
            self.mean(round)
        self.ends_before = "never"

    def tell(self, site: str, phase: str, *message: Payload) -> Answer:
        """What the site says, without its ledger, to an ask of the attempt under way."""
        ask = replace(self.asked("keys", site), phase=phase, message=tuple(part.pack("fp32") for part in message))
        return self.handlers[site]._runner.answer(ask)

    def alter(self, phase: str, sites: Sequence[str], change: Callable[[Packed], Payload]) -> None:
        """What these sites send in this phase."""
        exchange = self.transport.exchange

        def altered(asks: Sequence[Ask]) -> Iterator[Answer]:
            for answer in exchange(asks):
                if asks[0].phase == phase and answer.site in sites:
                    answer = replace(answer, payloads=(change(answer.payloads[0]).pack("fp32"),))
                yield answer

        self.transport.exchange = altered  # type: ignore[method-assign]


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


def is_random(packed: Packed) -> bool:
    """Words as of a mask: half of them beyond what a value of any site could be."""
    words = packed.tensors["words"].numpy()[:-1].astype(np.int64)
    return bool(0.3 < (np.abs(words) > 2**30).mean() < 0.7)
