"""A site's side of a secure sum: four answers an attempt.

keys      fresh keys, signed with the site's enrolment key
shares    of its two secrets, sealed to each peer
masked    what the algorithm's method gives, hidden by a mask of its own and one with each peer
unmask    for each peer one share: of the own mask of who stayed, or of the masking key of who dropped out

A coordinator may lie. So everything that a site says of an attempt is on its disk before it leaves; it says it once,
and says the same again if it is asked the same again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from os import urandom
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.outgoing import Leaving, Step
from grandrounds.federation.payloads import Expected, Packed, Payload, PayloadError, Predictions, unpack
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.secure import masks, shamir
from grandrounds.federation.secure.fixed_point import FixedPoint
from grandrounds.federation.secure.layout import to_row
from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure.settings import LEAST_SITES, SecureSettings
from grandrounds.federation.secure.store import ATTEMPT, Attempt, AttemptStore
from grandrounds.federation.secure_payloads import SIZE, KeyShares, Masked, MaskKeys, OpenedShares, SiteKeys, Stayed

KEYS, SHARES, MASKED, UNMASK = "keys", "shares", "masked", "unmask"
PHASES = (KEYS, SHARES, MASKED, UNMASK)
P = TypeVar("P", bound=Payload)
Entropy = Callable[[Place, str, str], bytes]
"""32 bytes for a purpose of a site's in an attempt."""


class Signer(Protocol):
    """The site's enrolment key, and those of its peers."""

    public: str

    def sign(self, data: bytes) -> bytes: ...

    def check(self, site: str, public: str, data: bytes, signature: bytes) -> None:
        """RefusalError where the site is unknown, its key another one, or the signature not its own."""
        ...


class Unsigned:
    """Sites that are simulated have no keys of their own."""

    public = ""

    def sign(self, data: bytes) -> bytes:
        return b""

    def check(self, site: str, public: str, data: bytes, signature: bytes) -> None: ...


def from_the_system(place: Place, site: str, purpose: str) -> bytes:
    """For real runs: nobody can repeat it."""
    return urandom(32)


def from_the_seed(seed: int) -> Entropy:
    """For simulations, which repeat to the bit and hide nothing from anybody."""

    def drawn(place: Place, site: str, purpose: str) -> bytes:
        return sha256(place.info("simulated", str(seed), site, purpose)).digest()

    return drawn


class SecureSite:
    def __init__(
        self,
        settings: SecureSettings,
        store: AttemptStore,
        entropy: Entropy = from_the_system,
        signer: Signer | None = None,
    ) -> None:
        self._settings, self._store, self._entropy = settings, store, entropy
        self._signer: Signer = Unsigned() if signer is None else signer

    def answer(self, ask: Ask, registration: Registration, least: int = LEAST_SITES) -> Payload:
        """To every phase but the one in which the algorithm's method runs; `least` is the policy's least_sites."""
        match ask.phase:
            case "keys":
                return self._advertise(ask, registration)
            case "shares":
                return self._share(ask, registration, _only(ask.message, MaskKeys))
            case "unmask":
                return self._open(ask, _only(ask.message, Stayed), least)
        raise RefusalError(f"a secure sum has no phase {ask.phase!r}"[:80])

    def masked_before(self, ask: Ask) -> Answer | None:
        """What was answered to the same ask already: it leaves again as it is, since masks hide one answer."""
        attempt = self._attempt(ask)
        if attempt.asked and attempt.asked != _digest(ask):
            raise RefusalError("an answer was masked already in this attempt, to an ask with other content")
        kept = self._store.reply(ask.site) if attempt.asked else ()
        return Answer(ask.site, kept, attempt.version) if kept else None

    def take_shares(self, ask: Ask) -> Ask:
        """The algorithm's own ask, without the peers' shares, which are noted down."""
        attempt = self._attempt(ask)
        if not attempt.roster:
            raise RefusalError("keys must be shared before anything is masked")
        inbox, roster = _only(ask.message[:1], KeyShares), _roster(attempt)
        there = {*inbox.boxes, ask.site}
        if not there <= roster.sites.keys() or ask.site in inbox.boxes:
            raise RefusalError("shares came from sites that advertised no keys")
        if len(there) < (needed := self._settings.threshold(len(roster.sites))):
            raise RefusalError(f"shares came from {len(there)} sites, and {needed} are needed")
        place, shares = _place(ask), {ask.site: attempt.shares[ask.site]}
        for sender, box in inbox.boxes.items():
            info = place.info("shares", sender, ask.site)
            try:
                opened = masks.unseal(box, bytes.fromhex(attempt.sharing), roster.sites[sender].sharing, info)
            except ValueError as error:
                raise RefusalError("a peer's shares can't be opened: they were altered on their way") from error
            shares[sender] = opened[:SIZE].hex(), opened[SIZE:].hex()
        self._store.write(ask.site, replace(attempt, shares=shares, asked=_digest(ask)))
        return replace(ask, message=ask.message[1:])

    def mask(self, ask: Ask, expected: Expected, part: int) -> Step:
        """The step of the outgoing chain that hides a payload, the part-th of its reply."""
        attempt = self._attempt(ask)
        roster, place = _roster(attempt).sites, _place(ask)
        weight = self._settings.weights({site: keys.weight for site, keys in roster.items()})[ask.site]
        numbers, private = FixedPoint(len(roster)), bytes.fromhex(attempt.masking)

        def step(leaving: Leaving) -> Leaving:
            if isinstance(leaving, Packed):
                raise TypeError("a payload is masked before it is packed")
            words, clipped = numbers.encode(to_row(leaving, expected), weight)
            words = np.append(words, np.uint32(min(clipped, numbers.most_clipped)))
            masks.add_mask(words, masks.self_seed(bytes.fromhex(attempt.secret), place, ask.site), part)
            for peer in sorted(attempt.shares.keys() - {ask.site}):
                seed = masks.pair_seed(private, roster[peer].masking, place, ask.site, peer)
                masks.add_mask(words, seed, part, subtract=ask.site > peer)
            form = leaving.form if isinstance(leaving, Predictions) else ""
            return Masked(torch.from_numpy(words.view(np.int32)), leaving.kind, form)

        return step

    def keep(self, answer: Answer) -> None:
        """Before it leaves."""
        attempt = self._store.read(answer.site)
        assert attempt is not None
        self._store.write(answer.site, replace(attempt, version=answer.version))
        self._store.keep_reply(answer.site, answer.payloads)

    def _advertise(self, ask: Ask, registration: Registration) -> MaskKeys:
        if not ATTEMPT.fullmatch(ask.attempt):
            raise RefusalError("an attempt is called by 16 letters of hex")
        attempt, place = self._store.read(ask.site), _place(ask)
        if attempt is None or attempt.name != ask.attempt:
            drawn = (self._secret(place, ask.site, what).hex() for what in ("own", "masking", "sharing"))
            attempt = Attempt(ask.attempt, _text(place), *drawn)
            self._store.write(ask.site, attempt)
        attempt = self._attempt(ask)
        if attempt.opened is not None:
            raise RefusalError("this attempt is over")
        return MaskKeys({ask.site: self._own_keys(attempt, place, registration)})

    def _own_keys(self, attempt: Attempt, place: Place, registration: Registration) -> SiteKeys:
        by = self._settings.weight_by
        keys = SiteKeys(
            masks.public_of(bytes.fromhex(attempt.masking)),
            masks.public_of(bytes.fromhex(attempt.sharing)),
            masks.commitment(bytes.fromhex(attempt.secret)),
            1 if by == "uniform" else registration.counts[by],
            self._signer.public,
            b"",
        )
        return keys._replace(signature=self._signer.sign(_signed(place, registration.site, keys)))

    def _share(self, ask: Ask, registration: Registration, roster: MaskKeys) -> KeyShares:
        attempt, place = self._attempt(ask), _place(ask)
        plain = dict(roster.pack("fp32").header)
        if attempt.roster:
            if attempt.roster != plain:
                raise RefusalError("shares were sealed already in this attempt, for other keys")
            return KeyShares.unpack(Packed(KeyShares.kind, attempt.boxes, {}), Expected())
        if attempt.opened is not None:
            raise RefusalError("this attempt is over")
        self._check(roster, attempt, place, registration)
        names = sorted(roster.sites)
        threshold = self._settings.threshold(len(names))
        if len(names) < threshold:
            raise RefusalError(f"{len(names)} sites advertised keys, and a sum is of {threshold} at least")
        split = [
            shamir.split(
                int(secret, 16),
                threshold,
                range(1, len(names) + 1),
                lambda i, what=what: int.from_bytes(self._secret(place, ask.site, f"{what} share {i}"), "big"),
            )
            for what, secret in (("own", attempt.secret), ("masking", attempt.masking))
        ]
        boxes, own = {}, ("", "")
        for number, peer in enumerate(names, start=1):
            pair = [shares[number].to_bytes(SIZE, "big") for shares in split]
            if peer == ask.site:
                own = pair[0].hex(), pair[1].hex()
                continue
            nonce = self._entropy(place, ask.site, f"nonce {peer}")[: masks.NONCE]
            info = place.info("shares", ask.site, peer)
            private = bytes.fromhex(attempt.sharing)
            try:
                boxes[peer] = masks.seal(b"".join(pair), private, roster.sites[peer].sharing, nonce, info)
            except ValueError as error:
                raise RefusalError("a peer's key is none that a secret can be agreed on with") from error
        sealed = KeyShares(boxes)
        made = replace(attempt, roster=plain, boxes=dict(sealed.pack("fp32").header), shares={ask.site: own})
        self._store.write(ask.site, made)
        return sealed

    def _check(self, roster: MaskKeys, attempt: Attempt, place: Place, registration: Registration) -> None:
        """RefusalError unless our own keys are among them as we sent them, and each peer's are signed by it."""
        own = self._own_keys(attempt, place, registration)
        said = roster.sites.get(registration.site)
        if said is None or said._replace(signature=b"") != own._replace(signature=b""):
            raise RefusalError("among the sites' keys our own are not there, or others")
        for site, keys in roster.sites.items():
            if site != registration.site:
                self._signer.check(site, keys.key, _signed(place, site, keys), keys.signature)

    def _open(self, ask: Ask, stayed: Stayed, least: int) -> OpenedShares:
        attempt = self._attempt(ask)
        if attempt.opened is not None and set(attempt.opened) != stayed.sites:
            raise RefusalError("shares were opened already in this attempt, for other sites")
        if not attempt.asked:
            raise RefusalError("nothing was masked in this attempt, so there is nothing to open")
        if ask.site not in stayed.sites or not stayed.sites <= attempt.shares.keys():
            raise RefusalError("a sum is of sites that shared their keys, this one among them")
        needed = max(self._settings.threshold(len(_roster(attempt).sites)), least)
        if len(stayed.sites) < needed:
            raise RefusalError(f"a sum of {len(stayed.sites)} sites is not opened, of {needed} it is")
        before = self._store.opened(ask.site, ask.round).get(str(ask.exchange))
        if before is not None and set(before) != stayed.sites:
            # Two sums of the same uploads that differ by one site would show that site's.
            raise RefusalError("for this round and exchange a sum of other sites was opened already")
        names = sorted(stayed.sites)
        self._store.note_opened(ask.site, ask.round, ask.exchange, names)
        self._store.write(ask.site, replace(attempt, opened=names, secret="", masking="", sharing=""))
        own = {site: int(share, 16) for site, (share, _) in attempt.shares.items() if site in stayed.sites}
        pair = {site: int(share, 16) for site, (_, share) in attempt.shares.items() if site not in stayed.sites}
        return OpenedShares(own, pair)

    def _attempt(self, ask: Ask) -> Attempt:
        attempt = self._store.read(ask.site)
        if attempt is None or attempt.name != ask.attempt or attempt.place != _text(_place(ask)):
            raise RefusalError("this site has no keys for this attempt")
        return attempt

    def _secret(self, place: Place, site: str, purpose: str) -> bytes:
        """Below the prime; two draws differ from that with a chance of 2^-496."""
        drawn = self._entropy(place, site, purpose)
        again = self._entropy(place, site, f"{purpose} again")
        return drawn if int.from_bytes(drawn, "big") < shamir.PRIME else again


def _only(message: Sequence[Any], kind: type[P]) -> P:
    """The one payload of a message; RefusalError where it is something else."""
    if len(message) != 1 or not isinstance(message[0], Packed):
        raise RefusalError(f"where '{kind.kind}' should be, something else came")
    try:
        found = unpack(message[0], Expected(), kind)
    except PayloadError as problem:
        raise RefusalError(str(problem)) from problem
    assert isinstance(found, kind)
    return found


def _roster(attempt: Attempt) -> MaskKeys:
    return MaskKeys.unpack(Packed(MaskKeys.kind, attempt.roster, {}), Expected())


def _place(ask: Ask) -> Place:
    return Place(ask.config, ask.round, ask.exchange, ask.attempt)


def _text(place: Place) -> str:
    return place.info("attempt").decode()


def _signed(place: Place, site: str, keys: SiteKeys) -> bytes:
    return place.info("keys", site, *(v.hex() if isinstance(v, bytes) else str(v) for v in keys[:-1]))


def _digest(ask: Ask) -> str:
    parts = [part.digest if isinstance(part, Packed) else part for part in ask.message]
    return sha256(json.dumps([ask.method, parts, ask.start, ask.commit, ask.public]).encode()).hexdigest()
