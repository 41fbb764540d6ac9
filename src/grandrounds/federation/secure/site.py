"""A site's side of a secure sum: five answers an attempt.

keys      fresh keys, signed with the site's enrolment key
shares    of its two secrets, sealed to each peer
masked    what the algorithm's method gives, hidden by a mask of its own and one with each peer
agree     its signature of who stayed
unmask    for each peer one share: of the own mask of who stayed, or of the masking key of who dropped out; and only
          once enough sites have signed the same

A coordinator may lie. So everything that a site says is on its disk before it leaves. It says it once, and says the
same again if it is asked the same again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.outgoing import Leaving, Step
from grandrounds.federation.payloads import Expected, Packed, Parameters, Payload, PayloadError, Predictions
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.privacy.discrete import discrete_gaussian
from grandrounds.federation.secure import masks
from grandrounds.federation.secure.layout import to_row
from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure.randomness import Randomness, below_the_prime, from_the_system
from grandrounds.federation.secure.settings import LEAST_SITES, SecureSettings
from grandrounds.federation.secure.sharing import seal, split, unseal
from grandrounds.federation.secure.signing import Signer, Unsigned, keys_to_sign, stayed_to_sign
from grandrounds.federation.secure.store import ATTEMPT, Attempt, AttemptStore
from grandrounds.federation.secure_payloads import (
    Agreement,
    KeyShares,
    Masked,
    MaskKeys,
    OpenedShares,
    P,
    SiteKeys,
    Stayed,
    the_only,
)

Hide = Callable[[int, Sequence[object]], Sequence[Step]]
"""The steps that mask a part of a reply, by its place in it and the message that it answers."""
OVER = "this attempt is over"


class SecureSite:
    def __init__(
        self,
        settings: SecureSettings,
        store: AttemptStore,
        randomness: Randomness = from_the_system,
        signer: Signer | None = None,
    ) -> None:
        self._settings, self._store, self._randomness = settings, store, randomness
        self._signer: Signer = Unsigned() if signer is None else signer

    def answer(self, ask: Ask, registration: Registration, least: int = LEAST_SITES) -> Payload:
        """To every phase but the one in which the algorithm's method runs; `least` is the policy's least_sites."""
        match ask.phase:
            case "keys":
                return self._advertise(ask, registration)
            case "shares":
                return self._share(ask, registration, _only(ask.message, MaskKeys))
            case "agree":
                return self._agree(ask, _only(ask.message, Stayed), least)
            case "unmask":
                return self._open(ask, _only(ask.message, Agreement))
        raise RefusalError(f"a secure sum has no phase {ask.phase!r}"[:80])

    def masked(self, ask: Ask, expected: Expected, run: Callable[[Ask, Hide], Answer]) -> Answer:
        """What the algorithm's method gives, masked: `run` runs it with the steps that hide its reply. The same ask
        again has the same answer, since masks hide one answer and not two."""
        attempt = self._attempt(ask)
        if attempt.opened:
            raise RefusalError(OVER)
        if attempt.asked and attempt.asked != _digest(ask):
            raise RefusalError("an answer was masked already in this attempt, to an ask with other content")
        if attempt.asked and (kept := self._store.reply(ask.site)):
            return Answer(ask.site, kept, attempt.version)
        taken = self._take_shares(ask, attempt)
        answer = run(
            replace(ask, message=ask.message[1:]),
            lambda part, received: [self._mask(ask, taken, expected, part, received)],
        )
        self._store.write(ask.site, replace(taken, version=answer.version))
        self._store.keep_reply(ask.site, answer.payloads)
        return answer

    def _advertise(self, ask: Ask, registration: Registration) -> MaskKeys:
        if not ATTEMPT.fullmatch(ask.attempt):
            raise RefusalError("an attempt is called by 16 letters of hex")
        attempt, place, site = self._store.read(ask.site), _place(ask), ask.site
        if attempt is None or attempt.name != ask.attempt:
            secret, masking, sharing = (
                below_the_prime(self._randomness, place, site, purpose).hex()
                for purpose in ("own", "masking", "sharing")
            )
            self._store.write(site, Attempt(ask.attempt, _text(place), secret, masking, sharing))
        keys = self._own_keys(self._attempt(ask), registration)
        return MaskKeys({site: keys._replace(signature=self._signer.sign(keys_to_sign(place, site, keys)))})

    def _own_keys(self, attempt: Attempt, registration: Registration) -> SiteKeys:
        """Without a signature."""
        if attempt.opened:
            raise RefusalError(OVER)
        by = self._settings.weight_by
        return SiteKeys(
            masks.public_of(bytes.fromhex(attempt.masking)),
            masks.public_of(bytes.fromhex(attempt.sharing)),
            masks.commitment(bytes.fromhex(attempt.secret)),
            1 if by == "uniform" else registration.counts[by],
            self._signer.public,
            b"",
        )

    def _share(self, ask: Ask, registration: Registration, roster: MaskKeys) -> KeyShares:
        attempt, place, site = self._attempt(ask), _place(ask), ask.site
        plain = dict(roster.pack("fp32").header)
        if attempt.roster:
            if attempt.roster != plain:
                raise RefusalError("shares were sealed already in this attempt, for other keys")
            return KeyShares.unpack(Packed(KeyShares.kind, attempt.boxes, {}), Expected())
        self._check_keys(roster, self._own_keys(attempt, registration), place, site)
        threshold = self._enough(roster, len(roster.sites))
        shares = split(attempt, place, sorted(roster.sites), site, threshold, self._randomness)
        sealed = KeyShares(seal(attempt, place, shares, site, roster.sites, self._randomness))
        boxes = dict(sealed.pack("fp32").header)
        self._store.write(site, replace(attempt, roster=plain, boxes=boxes, shares={site: shares[site]}))
        return sealed

    def _check_keys(self, roster: MaskKeys, own: SiteKeys, place: Place, site: str) -> None:
        """RefusalError unless our own keys are among them as we sent them, and each peer's are signed by it."""
        said = roster.sites.get(site)
        if said is None or said._replace(signature=b"") != own:
            raise RefusalError("among the sites' keys our own are not there, or others")
        for peer, keys in roster.sites.items():
            if peer != site:
                self._signer.check(peer, keys.key, keys_to_sign(place, peer, keys), keys.signature)
            if not all(map(masks.usable, keys[:2])):
                raise RefusalError("a peer's key is none that a secret can be agreed on with")

    def _take_shares(self, ask: Ask, attempt: Attempt) -> Attempt:
        """With the peers' shares, which come before the algorithm's own message."""
        if not attempt.roster:
            raise RefusalError("keys must be shared before anything is masked")
        boxes, roster = _only(ask.message[:1], KeyShares).boxes, _roster(attempt)
        names, said = sorted(roster.sites), self._store.said(ask.site, ask.round, ask.exchange)
        if not boxes.keys() <= roster.sites.keys() - {ask.site}:
            raise RefusalError("shares came from sites that advertised no keys")
        self._enough(roster, len(boxes) + 1)
        if said.roster and said.roster != names:
            raise RefusalError("for this round and exchange numbers were masked with other sites already")
        shares = {ask.site: attempt.shares[ask.site]}
        shares |= unseal(attempt, _place(ask), boxes, ask.site, roster.sites)
        self._store.note(ask.site, ask.round, ask.exchange, replace(said, roster=names))
        taken = replace(attempt, shares=shares, asked=_digest(ask))
        self._store.write(ask.site, taken)
        return taken

    def _mask(self, ask: Ask, attempt: Attempt, expected: Expected, part: int, received: Sequence[object]) -> Step:
        """The step of the outgoing chain that hides a payload, the part-th of its reply."""
        roster, place = _roster(attempt).sites, _place(ask)
        weight = self._settings.weights({site: keys.weight for site, keys in roster.items()})[ask.site]
        numbers, private = self._settings.numbers(len(roster)), bytes.fromhex(attempt.masking)

        def step(leaving: Leaving) -> Leaving:
            if isinstance(leaving, Packed):
                raise TypeError("a payload is masked before it is packed")
            row = to_row(leaving, expected)
            if (noise := self._settings.noise) is None:
                words, clipped = numbers.encode(row, weight)
            else:
                words, clipped = numbers.encode_update(_sent(received, expected), row, weight, noise.clip)
                deviation = noise.part(numbers.bits, self._settings.threshold(len(roster)))
                seed = self._randomness(place, ask.site, f"noise {part}")
                words += discrete_gaussian(len(words), deviation, masks.uniform(seed)).astype(np.uint32)
            words = np.append(words, np.uint32(min(clipped, numbers.most_clipped)))
            masks.add_mask(words, masks.self_seed(bytes.fromhex(attempt.secret), place, ask.site), part)
            for peer in sorted(attempt.shares.keys() - {ask.site}):
                seed = masks.pair_seed(private, roster[peer].masking, place, ask.site, peer)
                masks.add_mask(words, seed, part, subtract=ask.site > peer)
            form = leaving.form if isinstance(leaving, Predictions) else ""
            return Masked(torch.from_numpy(words.view(np.int32)), leaving.kind, form)

        return step

    def _agree(self, ask: Ask, stayed: Stayed, least: int) -> Agreement:
        attempt, names = self._attempt(ask), sorted(stayed.sites)
        if attempt.opened:
            raise RefusalError(OVER)
        if not attempt.asked:
            raise RefusalError("nothing was masked in this attempt, so there is nothing to open")
        if ask.site not in stayed.sites or not stayed.sites <= attempt.shares.keys():
            raise RefusalError("a sum is of sites that shared their keys, this one among them")
        self._enough(_roster(attempt), len(names), least)
        said = self._store.said(ask.site, ask.round, ask.exchange)
        if said.stayed and said.stayed != names:
            raise RefusalError("for this round and exchange a sum of other sites was agreed on already")
        self._store.note(ask.site, ask.round, ask.exchange, replace(said, stayed=names))
        self._store.write(ask.site, replace(attempt, stayed=names))
        signature = self._signer.sign(stayed_to_sign(_place(ask), _roster(attempt), stayed.sites))
        return Agreement({ask.site: signature})

    def _open(self, ask: Ask, agreement: Agreement) -> OpenedShares:
        attempt = self._attempt(ask)
        if not attempt.stayed:
            raise RefusalError("nothing was agreed on in this attempt, so there is nothing to open")
        roster, stayed = _roster(attempt), frozenset(attempt.stayed)
        content = stayed_to_sign(_place(ask), roster, stayed)
        signed = {site: one for site, one in agreement.signatures.items() if site in stayed}
        agreed = [site for site, one in signed.items() if self._is_of(site, roster, content, one)]
        self._enough(roster, len(agreed))
        self._store.write(ask.site, replace(attempt, opened=True, secret="", masking="", sharing=""))
        own = {site: int(share, 16) for site, (share, _) in attempt.shares.items() if site in stayed}
        pair = {site: int(share, 16) for site, (_, share) in attempt.shares.items() if site not in stayed}
        return OpenedShares(own, pair)

    def _is_of(self, site: str, roster: MaskKeys, content: bytes, signature: bytes) -> bool:
        try:
            self._signer.check(site, roster.sites[site].key, content, signature)
        except RefusalError:
            return False
        return True

    def _enough(self, roster: MaskKeys, found: int, least: int = LEAST_SITES) -> int:
        """The threshold; RefusalError where fewer sites than it, or than the policy's least, are there."""
        threshold = self._settings.threshold(len(roster.sites))
        if found < (needed := max(threshold, least)):
            raise RefusalError(f"a sum of {found} sites is not opened, of {needed} it is")
        return threshold

    def _attempt(self, ask: Ask) -> Attempt:
        attempt = self._store.read(ask.site)
        if attempt is None or attempt.name != ask.attempt or attempt.place != _text(_place(ask)):
            raise RefusalError("this site has no keys for this attempt")
        return attempt


def _only(message: Sequence[object], kind: type[P]) -> P:
    try:
        return the_only(message, kind)
    except PayloadError as problem:
        raise RefusalError(str(problem)) from problem


def _sent(received: Sequence[object], expected: Expected) -> NDArray[np.float32]:
    """The weights that a site was asked to start from."""
    sent = next((part for part in received if isinstance(part, Parameters)), None)
    if sent is None:
        raise RefusalError("this site adds noise to updates of weights, and it was sent none")
    return to_row(sent, expected)


def _roster(attempt: Attempt) -> MaskKeys:
    return MaskKeys.unpack(Packed(MaskKeys.kind, attempt.roster, {}), Expected())


def _place(ask: Ask) -> Place:
    return Place(ask.config, ask.round, ask.exchange, ask.attempt)


def _text(place: Place) -> str:
    return place.info("attempt").decode()


def _digest(ask: Ask) -> str:
    parts = [part.digest if isinstance(part, Packed) else part for part in ask.message]
    return sha256(json.dumps([ask.method, parts, ask.start, ask.commit, ask.public]).encode()).hexdigest()
