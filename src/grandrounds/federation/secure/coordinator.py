"""The coordinator's side of a secure sum: four exchanges, of which it learns the weighted sum of those who stayed.

A site may drop out at any time: before its keys are shared it is not missed; after that, but before its masked numbers
arrived, its masking key is put together of shares, and its masks are taken out of the others' sum; later, the secret of
its own mask is. With fewer sites than the threshold nothing can be opened, and the attempt is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Protocol, TypeVar, cast

import numpy as np

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.contract import Kinds, Registration
from grandrounds.federation.exchange import Plain
from grandrounds.federation.payloads import Expected, Packed, Payload, PayloadError, Predictions, unpack
from grandrounds.federation.secure import masks, shamir
from grandrounds.federation.secure.fixed_point import FixedPoint, Words
from grandrounds.federation.secure.layout import from_row, length_of
from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure.settings import SecureSettings
from grandrounds.federation.secure.site import KEYS, MASKED, SHARES, UNMASK
from grandrounds.federation.secure_payloads import KeyShares, Masked, MaskKeys, OpenedShares, SiteKeys, Stayed

T = TypeVar("T")
P = TypeVar("P", bound=Payload)
Message = tuple[Packed | Plain, ...]
MOST_TRIES = 200
"""Sets of shares that are tried where a site sent a wrong one."""


class GivenUpError(GrandRoundsError):
    """Nothing was learnt in this attempt."""


class Sites(Protocol):
    """Who is asked."""

    def ask(self, phase: str, messages: Mapping[str, Message]) -> Iterator[tuple[str, tuple[Packed, ...]]]:
        """What came of each site that answered."""
        ...

    def reject(self, site: str, problem: PayloadError) -> None: ...


@dataclass(frozen=True)
class SecureSum:
    """What was learnt."""

    payloads: tuple[Payload, ...]
    """The weighted mean, part by part."""
    stayed: tuple[str, ...]
    weight: int
    clipped: int
    """Values beyond the range of fixed point, of all sites together."""
    rounding: float
    """How far the mean can be from that of the numbers before they were rounded, at most."""


def secure_sum(
    sites: Sites,
    registered: Sequence[Registration],
    messages: Mapping[str, Message],
    kinds: Kinds,
    expected: Expected,
    settings: SecureSettings,
    place: Place,
) -> SecureSum:
    """The mean of what these sites answer to these messages; GivenUpError where too few stay."""
    attempt = _Attempt(sites, expected, settings, place)
    by_name = {site.site: site for site in registered}
    keys = attempt.gather(KEYS, dict.fromkeys(messages, ()), lambda site, parts: _keys(by_name[site], parts, settings))
    attempt.begin(keys)
    roster: Message = (MaskKeys(keys).pack("fp32"),)
    boxes = attempt.gather(SHARES, dict.fromkeys(keys, roster), attempt.boxes)
    declared = kinds if isinstance(kinds, tuple) else (kinds,)
    total = _Total(declared, expected)
    inboxes = {site: KeyShares({u: boxes[u][site] for u in boxes if u != site}).pack("fp32") for site in boxes}
    asked = {site: (inboxes[site], *messages[site]) for site in boxes}
    stayed = attempt.gather(MASKED, asked, total.add)
    who: Message = (Stayed(frozenset(stayed)).pack("fp32"),)
    gone = boxes.keys() - stayed.keys()
    opened = attempt.gather(UNMASK, dict.fromkeys(stayed, who), lambda site, parts: _shares(parts, stayed.keys(), gone))
    attempt.unmask(total.words, sorted(stayed), sorted(gone), opened)
    return attempt.read(total, declared, sorted(stayed))


class _Attempt:
    def __init__(self, sites: Sites, expected: Expected, settings: SecureSettings, place: Place) -> None:
        self._sites, self._expected, self._settings, self._place = sites, expected, settings, place
        self._keys: Mapping[str, SiteKeys] = {}
        self._threshold = settings.threshold(1)

    def begin(self, keys: Mapping[str, SiteKeys]) -> None:
        """From here on it is known who can be in the sum."""
        self._keys = keys
        self._threshold = self._settings.threshold(len(keys))
        self._numbers = FixedPoint(len(keys))
        self._weights = self._settings.weights({site: one.weight for site, one in keys.items()})
        self._number = {site: number for number, site in enumerate(sorted(keys), start=1)}
        self._enough(KEYS, len(keys))

    def gather(
        self, phase: str, messages: Mapping[str, Message], read: Callable[[str, tuple[Packed, ...]], T]
    ) -> dict[str, T]:
        """What each site answered, read; GivenUpError below the threshold."""
        found = {}
        for site, parts in self._sites.ask(phase, messages):
            try:
                found[site] = read(site, parts)
            except PayloadError as problem:
                self._sites.reject(site, problem)
        self._enough(phase, len(found))
        return found

    def _enough(self, phase: str, found: int) -> None:
        if found < self._threshold:
            raise GivenUpError(f"{found} sites answered in the phase '{phase}', and {self._threshold} are needed")

    def boxes(self, site: str, parts: tuple[Packed, ...]) -> Mapping[str, bytes]:
        found = _one(parts, KeyShares).boxes
        if found.keys() != self._keys.keys() - {site}:
            raise PayloadError("shares are sealed to each of the other sites")
        return found

    def unmask(
        self, totals: Sequence[Words], stayed: Sequence[str], gone: Sequence[str], opened: Mapping[str, OpenedShares]
    ) -> None:
        """Take out of the sums the own masks of who stayed, and what they share with who dropped out."""
        for site in stayed:
            secret = self._secret(site, {peer: shares.own[site] for peer, shares in opened.items()}, self._fits_own)
            seed = masks.self_seed(secret, self._place, site)
            for part, words in enumerate(totals):
                masks.add_mask(words, seed, part, subtract=True)
        for lost in gone:
            private = self._secret(lost, {peer: shares.pair[lost] for peer, shares in opened.items()}, self._fits_key)
            for site in stayed:
                seed = masks.pair_seed(private, self._keys[site].masking, self._place, lost, site)
                for part, words in enumerate(totals):
                    masks.add_mask(words, seed, part, subtract=site < lost)  # as the site added it

    def _secret(self, site: str, shares: Mapping[str, int], fits: Callable[[bytes, SiteKeys], bool]) -> bytes:
        """Of any shares that fit what the site advertised: a wrong share is passed over."""
        for chosen in islice(combinations(sorted(shares), self._threshold), MOST_TRIES):
            whole = shamir.combine({self._number[peer]: shares[peer] for peer in chosen})
            secret = whole.to_bytes(32, "big")
            if fits(secret, self._keys[site]):
                return secret
        raise GivenUpError("the shares of a site's secret do not fit together: a site sent wrong ones")

    @staticmethod
    def _fits_own(secret: bytes, keys: SiteKeys) -> bool:
        return masks.commitment(secret) == keys.commitment

    @staticmethod
    def _fits_key(secret: bytes, keys: SiteKeys) -> bool:
        return masks.public_of(secret) == keys.masking

    def read(self, total: _Total, kinds: Sequence[type[Payload]], stayed: Sequence[str]) -> SecureSum:
        weights, numbers, clipped, means = [self._weights[site] for site in stayed], self._numbers, 0, list[Payload]()
        for kind, words, form in zip(kinds, total.words, total.forms, strict=True):
            counted = int(words[-1:].view(np.int32)[0])
            if not numbers.possible(words[:-1], len(stayed)) or not 0 <= counted <= len(stayed) * numbers.most_clipped:
                raise GivenUpError("what is left without the masks is no sum of the sites: one of them masked wrongly")
            means.append(from_row(kind, numbers.mean(words[:-1], weights), self._expected, form))
            clipped += counted
        return SecureSum(tuple(means), tuple(stayed), sum(weights), clipped, numbers.rounding(weights))


class _Total:
    """The sum of masked words modulo 2^32, one site at a time; what the first one says of its form holds for all."""

    def __init__(self, kinds: Sequence[type[Payload]], expected: Expected) -> None:
        self._kinds, self._expected = kinds, expected
        self.words: list[Words] = []
        self.forms: list[str] = []

    def add(self, site: str, parts: tuple[Packed, ...]) -> None:
        if len(parts) != len(self._kinds):
            raise PayloadError(f"{len(parts)} payloads came where {len(self._kinds)} were declared")
        found = [self._read(part, kind) for part, kind in zip(parts, self._kinds, strict=True)]
        forms = [one.form for one in found]
        if self.forms and forms != self.forms:
            raise PayloadError("predictions come in the form of the first site's, 'probabilities' or not")
        words = [cast("Words", one.words.numpy().view(np.uint32)) for one in found]
        if not self.words:
            self.words, self.forms = [some.copy() for some in words], forms
            return
        for total, some in zip(self.words, words, strict=True):
            np.add(total, some, out=total)

    def _read(self, part: Packed, kind: type[Payload]) -> Masked:
        masked = _one((part,), Masked)
        if masked.of != kind.kind or len(masked.words) != length_of(kind, self._expected) + 1:
            raise PayloadError(f"{len(masked.words)} masked words of '{masked.of}' came, which was not declared")
        known = ("probabilities", "log_probabilities") if kind is Predictions else ("",)
        if masked.form not in known:
            raise PayloadError("predictions are probabilities or their logarithms")
        return masked


def _keys(site: Registration, parts: tuple[Packed, ...], settings: SecureSettings) -> SiteKeys:
    found = _one(parts, MaskKeys).sites
    if found.keys() != {site.site}:
        raise PayloadError("a site advertises its own keys")
    registered = 1 if settings.weight_by == "uniform" else site.counts.get(settings.weight_by)
    if found[site.site].weight != registered:
        raise PayloadError("a site's weight is what it registered before round 1")
    return found[site.site]


def _shares(parts: tuple[Packed, ...], stayed: Set[str], gone: Set[str]) -> OpenedShares:
    found = _one(parts, OpenedShares)
    if found.own.keys() != stayed or found.pair.keys() != gone:
        raise PayloadError("shares are opened of the own masks of who stayed, and of the keys of who did not")
    return found


def _one(parts: tuple[Packed, ...], kind: type[P]) -> P:
    if len(parts) != 1:
        raise PayloadError(f"{len(parts)} payloads came where one '{kind.kind}' was declared")
    return cast("P", unpack(parts[0], Expected(), kind))
